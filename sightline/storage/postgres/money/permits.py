"""The permits that the relayer sends for payers, on Postgres."""

from typing import Any, Final, final

from typing_extensions import override

from sightline.domain.units import MicroUsdc
from sightline.ports.escrow import AllowancePermit
from sightline.ports.ledger import Attempt
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.money.outbox import OutboxSql, PostgresTransactions, outbox_fields

_COLUMNS: Final = """
session_id::text, session_id_hash, owner, spender, amount, nonce, deadline_s, signature, state, lane, reason, tx_hash,
block_number, block_hash, log_index, confirmed_at_ms, retry_at_ms, tries, notified, composed_at_ms, updated_at_ms
"""
_SQL: Final = OutboxSql.of(
    "allowance_permit", "permit_attempt", _COLUMNS, place="log_index = $5", no_place="log_index = NULL"
)
_LOCK_OWNER: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 5300047))"
# What the chain refuses, and what was given up, makes room for another permit with its nonce.
_MAKE_ROOM: Final = """
UPDATE allowance_permit SET state = 'WRITTEN_OFF', updated_at_ms = $4
WHERE owner = $1 AND nonce = $2 AND session_id <> $3 AND state IN ('REVERTED', 'FAILED')
"""
_IS_TAKEN: Final = """
SELECT EXISTS (SELECT FROM allowance_permit WHERE owner = $1 AND nonce = $2 AND session_id <> $3
  AND state <> 'WRITTEN_OFF')
"""
_REQUEST: Final = """
INSERT INTO allowance_permit AS p (session_id, session_id_hash, owner, spender, amount, nonce, deadline_s, signature,
  state, retry_at_ms, composed_at_ms, updated_at_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'COMPOSED', $9, $9, $9)
ON CONFLICT (session_id) DO UPDATE SET state = 'COMPOSED', lane = 'PAYABLE', reason = NULL, retry_at_ms = $9,
  updated_at_ms = $9, signature = $8 WHERE p.state IN ('REVERTED', 'FAILED', 'WRITTEN_OFF')
"""
_WITHDRAW: Final = """
UPDATE allowance_permit SET state = 'WRITTEN_OFF', reason = $3, updated_at_ms = $2
WHERE session_id = $1 AND state IN ('COMPOSED', 'REVERTED', 'FAILED')
"""
_PAID_FOR: Final = """
SELECT (SELECT min(a.signed_at_ms) FROM permit_attempt a WHERE a.session_id = p.session_id) AS signed_at_ms
FROM allowance_permit p
WHERE p.owner = $1 AND p.composed_at_ms >= $2
  AND EXISTS (SELECT FROM permit_attempt a WHERE a.session_id = p.session_id)
ORDER BY 1 DESC LIMIT $3
"""


@final
class PostgresPermits(PostgresTransactions[AllowancePermit]):
    """Implements `PermitOutbox` with two tables."""

    SQL = _SQL

    @override
    def _record(self, row: Any, attempts: tuple[Attempt, ...]) -> AllowancePermit:
        return AllowancePermit(
            **outbox_fields(row, attempts),
            owner=row["owner"],
            spender=row["spender"],
            amount=MicroUsdc(int(row["amount"])),
            nonce=int(row["nonce"]),
            deadline_s=row["deadline_s"],
            signature=row["signature"],
            log_index=row["log_index"],
        )

    async def permit(self, permit_id: str) -> AllowancePermit | None:
        """Return one permit."""
        return next(iter(await self._records(_SQL.of_sessions, [permit_id])), None)

    async def request(self, permit: AllowancePermit, *, now_ms: int) -> bool:
        """Ask for a permit, and return whether its nonce is free for it."""

        async def unit(connection: Connection) -> bool:
            key = (permit.owner, permit.nonce, permit.session_id)
            await connection.execute(_LOCK_OWNER, permit.owner)
            await connection.execute(_MAKE_ROOM, *key, now_ms)
            if await connection.fetchval(_IS_TAKEN, *key):
                return False
            await connection.execute(
                _REQUEST, permit.session_id, permit.session_id_hash, permit.owner, permit.spender, permit.amount,
                permit.nonce, permit.deadline_s, permit.signature, now_ms,
            )  # fmt: skip
            return True

        return await self._database.transact(unit)

    async def withdraw(self, permit_id: str, *, reason: str, now_ms: int) -> None:
        """Give up a permit that was not sent."""
        await self._execute(_WITHDRAW, permit_id, now_ms, reason)

    async def paid_for(self, owner: str, *, since_ms: int, limit: int) -> list[int]:
        """Return when the newest permits of an owner were signed."""
        rows = await self._database.read(lambda connection: connection.fetch(_PAID_FOR, owner, since_ms, limit))
        return [row["signed_at_ms"] for row in rows]
