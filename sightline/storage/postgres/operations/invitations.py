"""Invitations on Postgres. Inviters of one workspace, and those who answer one invitation, wait for each other."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from sightline.domain.access import Role
from sightline.domain.units import DAY_MS
from sightline.ports.identity import Invitation, InvitationLimits, NotInvited
from sightline.ports.relations import PreconditionFailedError, RelationTuple, TupleUpdate
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres import identity_sql

_COLUMNS: Final = "id, workspace_id, wallet_address, role, invited_by, created_at_ms, expires_at_ms"
_SELECT: Final = f"SELECT {_COLUMNS} FROM invitation"  # noqa: S608  constants only
_ORDER: Final = "ORDER BY created_at_ms, id"
OPEN_IN: Final = f"{_SELECT} WHERE workspace_id = $1 AND ended_at_ms IS NULL AND expires_at_ms > $2 {_ORDER}"
OPEN_FOR: Final = f"""
{_SELECT} WHERE lower(wallet_address) = lower($1) AND ended_at_ms IS NULL AND expires_at_ms > $2 {_ORDER} LIMIT $3
"""
_OPEN: Final = f"""
{_SELECT} WHERE id = $1 AND lower(wallet_address) = lower($2) AND ended_at_ms IS NULL AND expires_at_ms > $3
"""
_OPEN_OF_WALLET: Final = f"""
{_SELECT} WHERE workspace_id = $1 AND lower(wallet_address) = lower($2) AND ended_at_ms IS NULL AND expires_at_ms > $3
"""
_COUNTS: Final = """
SELECT
  (SELECT count(*) FROM invitation WHERE workspace_id = $1 AND ended_at_ms IS NULL AND expires_at_ms > $4) AS open,
  (SELECT count(*) FROM invitation WHERE lower(invited_by) = lower($3) AND created_at_ms > $5) AS of_inviter,
  EXISTS (SELECT FROM invitation WHERE lower(wallet_address) = lower($2) AND ended_as = 'DECLINED' AND ended_at_ms > $6
    AND (workspace_id = $1 OR lower(invited_by) = lower($3))) AS has_declined
"""
_ADD: Final = f"INSERT INTO invitation ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)"  # noqa: S608  constants only
_END: Final = f"""
UPDATE invitation SET ended_at_ms = $3, ended_as = $4
WHERE id = $1 AND lower(wallet_address) = lower($2) AND ended_at_ms IS NULL AND expires_at_ms > $3 RETURNING {_COLUMNS}
"""  # noqa: S608  constants only
_ACCEPTED: Final = f"{_SELECT} WHERE id = $1 AND lower(wallet_address) = lower($2) AND ended_as = 'ACCEPTED'"
_REOPEN: Final = "UPDATE invitation SET ended_at_ms = NULL, ended_as = NULL WHERE id = $1 AND ended_as = 'ACCEPTED'"
_WITHDRAW: Final = f"""
UPDATE invitation SET ended_at_ms = $3, ended_as = 'WITHDRAWN'
WHERE workspace_id = $1 AND lower(wallet_address) = lower($2) AND ended_at_ms IS NULL AND expires_at_ms > $3
RETURNING {_COLUMNS}
"""  # noqa: S608  constants only
_WITHDRAW_OF: Final = """
UPDATE invitation SET ended_at_ms = $3, ended_as = 'WITHDRAWN'
WHERE workspace_id = $1 AND lower(invited_by) = lower($2) AND ended_at_ms IS NULL
"""


@final
class PostgresInvitations:
    """Implements `InvitationStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def invite(self, invitation: Invitation, limits: InvitationLimits) -> Invitation | NotInvited:
        """Store an invitation within the limits; inviters of one workspace or wallet wait for each other."""
        return await self._database.transact(lambda connection: _invite(connection, invitation, limits))

    async def open_in(self, workspace_id: str, *, now_ms: int) -> tuple[Invitation, ...]:
        """List the open invitations of a workspace."""
        rows = await self._database.read(lambda connection: connection.fetch(OPEN_IN, workspace_id, now_ms))
        return tuple(_invitation(row) for row in rows)

    async def open_for(self, address: str, *, now_ms: int, limit: int) -> tuple[Invitation, ...]:
        """List the open invitations of a wallet."""
        rows = await self._database.read(lambda connection: connection.fetch(OPEN_FOR, address, now_ms, limit))
        return tuple(_invitation(row) for row in rows)

    async def open_invitation(self, invitation_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """Find an open invitation by its primary key."""
        row = await self._database.read(lambda connection: connection.fetchrow(_OPEN, invitation_id, address, now_ms))
        return None if row is None else _invitation(row)

    async def accept(
        self, invitation_id: str, address: str, *, now_ms: int,
        updates: Sequence[TupleUpdate] = (), requires: Sequence[RelationTuple] = (),
    ) -> Invitation | None:  # fmt: skip
        """End an invitation and write edges, in one transaction."""

        async def unit(connection: Connection) -> Invitation | None:
            row = await connection.fetchrow(_END, invitation_id, address, now_ms, "ACCEPTED")
            if row is None:
                return None
            if requires and not await identity_sql.hold_tuples(connection, requires):
                raise PreconditionFailedError
            if updates:
                await identity_sql.write_tuples(connection, updates)
            return _invitation(row)

        return await self._database.transact(unit)

    async def accepted_invitation(self, invitation_id: str, address: str) -> Invitation | None:
        """Find an accepted invitation by its primary key."""
        row = await self._database.read(lambda connection: connection.fetchrow(_ACCEPTED, invitation_id, address))
        return None if row is None else _invitation(row)

    async def reopen(self, invitation_id: str) -> None:
        """Open an accepted invitation again."""
        await self._database.run(lambda connection: connection.execute(_REOPEN, invitation_id))

    async def decline(self, invitation_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """End an invitation of a wallet."""
        row = await self._database.run(
            lambda connection: connection.fetchrow(_END, invitation_id, address, now_ms, "DECLINED")
        )
        return None if row is None else _invitation(row)

    async def withdraw(self, workspace_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """End the invitation of a wallet to a workspace."""
        row = await self._database.run(lambda connection: connection.fetchrow(_WITHDRAW, workspace_id, address, now_ms))
        return None if row is None else _invitation(row)

    async def withdraw_of(self, workspace_id: str, inviter: str, *, now_ms: int) -> None:
        """End the invitations of an inviter."""
        await self._database.run(lambda connection: connection.execute(_WITHDRAW_OF, workspace_id, inviter, now_ms))


async def _invite(connection: Connection, invitation: Invitation, limits: InvitationLimits) -> Invitation | NotInvited:
    workspace_id, wallet, now_ms = invitation.workspace_id, invitation.wallet_address, invitation.created_at_ms
    for lock in sorted((f"invitation:{workspace_id}", f"invitation:{invitation.invited_by.lower()}")):
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
    row = await connection.fetchrow(_OPEN_OF_WALLET, workspace_id, wallet, now_ms)
    if row is not None and row["role"] == invitation.role:
        return _invitation(row)
    counts = await connection.fetchrow(
        _COUNTS, workspace_id, wallet, invitation.invited_by, now_ms, now_ms - DAY_MS, now_ms - limits.declined_ms
    )
    assert counts is not None
    if counts["has_declined"]:
        return NotInvited.DECLINED
    if row is None and counts["open"] >= limits.open_max:
        return NotInvited.WORKSPACE_LIMIT
    if counts["of_inviter"] >= limits.inviter_day_max:
        return NotInvited.INVITER_LIMIT
    if row is not None:
        await connection.execute(_WITHDRAW, workspace_id, wallet, now_ms)
    values = (invitation.id, workspace_id, wallet, invitation.role.value, invitation.invited_by)
    await connection.execute(_ADD, *values, now_ms, invitation.expires_at_ms)
    return invitation


def _invitation(row: Mapping[str, Any]) -> Invitation:
    return Invitation(
        id=str(row["id"]),
        workspace_id=str(row["workspace_id"]),
        wallet_address=row["wallet_address"],
        role=Role(row["role"]),
        invited_by=row["invited_by"],
        created_at_ms=row["created_at_ms"],
        expires_at_ms=row["expires_at_ms"],
    )
