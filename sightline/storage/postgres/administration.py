"""The audit log and the tables of administrators in Postgres."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from sightline.domain.operator.model import Workspace
from sightline.domain.session.codec import from_doc as session_from_doc
from sightline.domain.session.model import Session
from sightline.ports.administration import (
    AuditAction,
    AuditEntry,
    Refund,
    RefundState,
    SessionFilter,
    SessionNote,
    Suspension,
)
from sightline.ports.ledger import NonceTakenError
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.json import load
from sightline.storage.postgres.workspaces import workspaces_by_slug

APPEND: Final = """
INSERT INTO audit_entry (at_ms, act_id, actor, action, target, reason, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
ENTRIES: Final = """
SELECT * FROM audit_entry WHERE id > $1 AND ($2::text IS NULL OR target = $2) ORDER BY id LIMIT $3
"""
SESSIONS: Final = """
SELECT doc, version FROM session
WHERE ($1::text[] IS NULL OR state = ANY($1))
  AND ($2::uuid IS NULL OR consumer_workspace_id = $2 OR operator_workspace_id = $2)
ORDER BY created_at_ms DESC, id DESC LIMIT $3
"""
SUSPEND: Final = """
INSERT INTO workspace_suspension (workspace_id, at_ms, actor, reason) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id) DO NOTHING
"""
ADD_NOTE: Final = "INSERT INTO session_note (session_id, at_ms, actor, text) VALUES ($1, $2, $3, $4)"
ADD_REFUND: Final = """
INSERT INTO refund (session_id, refund_key, at_ms, actor, reason, to_address, amount_micro, nonce, tx_hash, raw, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
REFUND_LOCK_KEY: Final = 5_300_047
"""Key of the advisory lock on refunds. Any constant number works."""
IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM refund WHERE nonce >= $1 OR (session_id = $2 AND refund_key = $3))
"""
REFUNDED: Final = """
SELECT coalesce(sum(amount_micro), 0)::bigint FROM refund WHERE session_id = $1 AND state <> 'FAILED'
"""


@final
class PostgresAuditLog:
    """The audit log in the table `audit_entry`, whose triggers refuse every change."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, entry: AuditEntry) -> None:
        """Append an entry; returns once it is durable."""
        values = (
            entry.at_ms,
            entry.act_id,
            entry.actor,
            entry.action.value,
            entry.target,
            entry.reason,
            entry.outcome,
        )
        await self._database.run(lambda connection: connection.execute(APPEND, *values))

    async def entries(self, *, after_id: int, limit: int, target: str | None = None) -> Sequence[AuditEntry]:
        """Read entries in ascending order of id."""
        rows = await self._database.read(lambda connection: connection.fetch(ENTRIES, after_id, target, limit))
        return [
            AuditEntry(
                id=row["id"],
                at_ms=row["at_ms"],
                act_id=str(row["act_id"]),
                actor=row["actor"],
                action=AuditAction(row["action"]),
                target=row["target"],
                reason=row["reason"],
                outcome=row["outcome"],
            )
            for row in rows
        ]


@final
class PostgresAdminStore:
    """Lists, suspensions, notes and refunds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_sessions(self, wanted: SessionFilter) -> Sequence[Session]:
        """List sessions of all workspaces, newest first."""
        states = sorted(state.value for state in wanted.states) or None
        rows = await self._fetch(SESSIONS, states, wanted.workspace_id, wanted.limit)
        return [session_from_doc(load(row["doc"]), row["version"]) for row in rows]

    async def list_workspaces(self, *, slug: str | None, limit: int) -> Sequence[Workspace]:
        """List workspaces by slug."""
        return await workspaces_by_slug(self._database, slug or "", limit)

    async def suspensions(self) -> Sequence[Suspension]:
        """Read all suspensions."""
        rows = await self._fetch("SELECT * FROM workspace_suspension ORDER BY at_ms")
        return [Suspension(**dict(row) | {"workspace_id": str(row["workspace_id"])}) for row in rows]

    async def suspend(self, suspension: Suspension) -> None:
        """Store a suspension; an earlier one of the workspace stays as it is."""
        values = (suspension.workspace_id, suspension.at_ms, suspension.actor, suspension.reason)
        await self._database.run(lambda connection: connection.execute(SUSPEND, *values))

    async def unsuspend(self, workspace_id: str) -> bool:
        """Remove a suspension. False if there is none."""
        statement = "DELETE FROM workspace_suspension WHERE workspace_id = $1 RETURNING true"
        return bool(await self._database.run(lambda connection: connection.fetchval(statement, workspace_id)))

    async def add_note(self, note: SessionNote) -> None:
        """Append a note."""
        values = (note.session_id, note.at_ms, note.actor, note.text)
        await self._database.run(lambda connection: connection.execute(ADD_NOTE, *values))

    async def notes(self, session_id: str) -> Sequence[SessionNote]:
        """Read the notes on a session, oldest first."""
        rows = await self._fetch("SELECT * FROM session_note WHERE session_id = $1 ORDER BY id", session_id)
        return [
            SessionNote(session_id=session_id, at_ms=row["at_ms"], actor=row["actor"], text=row["text"]) for row in rows
        ]

    async def refunds(self, session_id: str) -> Sequence[Refund]:
        """Read the refunds of a session, oldest first."""
        return _refunds(await self._fetch("SELECT * FROM refund WHERE session_id = $1 ORDER BY nonce", session_id))

    async def unfinished_refunds(self) -> Sequence[Refund]:
        """Read the refunds in state SENT, by nonce."""
        return _refunds(await self._fetch("SELECT * FROM refund WHERE state = 'SENT' ORDER BY nonce"))

    async def next_refund_nonce(self) -> int:
        """Return the number after the highest stored nonce; 0 if there is none."""
        rows = await self._fetch("SELECT coalesce(max(nonce) + 1, 0) AS next FROM refund")
        return int(rows[0]["next"])

    async def add_refund(self, refund: Refund, *, charged_micro: int) -> bool:
        """Store a refund, unless all refunds of the session would exceed what was charged."""

        async def add(connection: Connection) -> bool:
            # The lock orders the refunds of all servers: they share the nonces of one account.
            await connection.execute("SELECT pg_advisory_xact_lock($1)", REFUND_LOCK_KEY)
            if await connection.fetchval(IS_TAKEN, refund.nonce, refund.session_id, refund.key):
                raise NonceTakenError("another server has stored a refund meanwhile")
            refunded = await connection.fetchval(REFUNDED, refund.session_id)
            if refunded + refund.amount_micro > charged_micro:
                return False
            await connection.execute(
                ADD_REFUND,
                refund.session_id,
                refund.key,
                refund.at_ms,
                refund.actor,
                refund.reason,
                refund.to_address,
                refund.amount_micro,
                refund.nonce,
                refund.tx_hash,
                refund.raw,
                refund.state.value,
            )
            return True

        return await self._database.transact(add)

    async def set_refund_state(self, refund: Refund, state: RefundState) -> None:
        """Record the outcome of a refund."""
        statement = "UPDATE refund SET state = $3 WHERE session_id = $1 AND refund_key = $2 AND state = 'SENT'"
        values = (refund.session_id, refund.key, state.value)
        await self._database.run(lambda connection: connection.execute(statement, *values))

    async def _fetch(self, statement: str, *values: object) -> Sequence[Mapping[str, Any]]:
        rows: Sequence[Mapping[str, Any]] = await self._database.read(
            lambda connection: connection.fetch(statement, *values)
        )
        return rows


def _refunds(rows: Sequence[Mapping[str, Any]]) -> list[Refund]:
    return [
        Refund(
            session_id=str(row["session_id"]),
            key=row["refund_key"],
            at_ms=row["at_ms"],
            actor=row["actor"],
            reason=row["reason"],
            to_address=row["to_address"],
            amount_micro=row["amount_micro"],
            nonce=row["nonce"],
            tx_hash=row["tx_hash"],
            raw=bytes(row["raw"]),
            state=RefundState(row["state"]),
        )
        for row in rows
    ]
