"""Payments that the database does not know, and the append-only journal that adopts them, on Postgres.

The watcher records them with the blocks that they are in (`PostgresLedger.apply_blocks`).
"""

from collections.abc import Sequence
from typing import Any, Final, final

from sightline.domain.settlement import ChainPayment, PaymentSums, UnknownPayments
from sightline.ports.leases import ServerRole
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

_COLUMNS: Final = (
    "session_id_hash, payer, payee, to_amount, fee_amount, rate, seconds, fee_bps, tx_hash, log_index, block_number, "
    "block_hash"
)
_LOCK_KEY: Final = 5_300_047
"""Advisory lock of adoptions: each sees what the one before it has left."""

# A session that is not over will have a settlement, which the relayer then compares with the payment.
_FOUND: Final = """
unknown_payment p WHERE p.is_final
  AND NOT EXISTS (SELECT FROM settlement t WHERE t.session_id_hash = p.session_id_hash AND t.state <> 'WRITTEN_OFF')
  AND NOT EXISTS (SELECT FROM adopted_payment a WHERE a.session_id_hash = p.session_id_hash)
  AND NOT EXISTS (SELECT FROM hold h JOIN session s ON s.id = h.session_id
    WHERE h.session_id_hash = p.session_id_hash AND s.state IN ('REQUESTED', 'ASSIGNED', 'LIVE'))
"""
_COUNT: Final = f"SELECT count(*) AS n, coalesce(sum(p.to_amount + p.fee_amount), 0) AS total FROM {_FOUND}"  # noqa: S608  constants
_LIST: Final = f"SELECT {_COLUMNS} FROM {_FOUND} ORDER BY p.block_number, p.log_index LIMIT $1"  # noqa: S608  constants
_ADOPT: Final = f"""
WITH chosen AS (SELECT {_COLUMNS} FROM {_FOUND} AND p.block_number <= $1),
adopted AS (
  INSERT INTO adopted_payment ({_COLUMNS}, adopted_at_ms, adopted_by, reason)
  SELECT {_COLUMNS}, $2::bigint, $3::text, $4::text FROM chosen
  RETURNING session_id_hash, to_amount + fee_amount AS total),
removed AS (DELETE FROM unknown_payment p USING adopted a WHERE p.session_id_hash = a.session_id_hash)
SELECT count(*) AS n, coalesce(sum(total), 0) AS total FROM adopted
"""  # noqa: S608  constants
_SETTLED: Final = """
SELECT count(*) AS n, coalesce(sum(coalesce(chain_to_amount + chain_fee_amount, amount)), 0) AS total
FROM settlement WHERE state IN ('MINED', 'CONFIRMED', 'MISMATCHED')
"""
_ADOPTED: Final = "SELECT count(*) AS n, coalesce(sum(to_amount + fee_amount), 0) AS total FROM adopted_payment"

ADD_UNKNOWN: Final = f"""
INSERT INTO unknown_payment ({_COLUMNS})
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::numeric[], $5::numeric[], $6::numeric[], $7::numeric[],
  $8::numeric[], $9::text[], $10::integer[], $11::bigint[], $12::text[])
ON CONFLICT (session_id_hash) DO UPDATE SET tx_hash = excluded.tx_hash, log_index = excluded.log_index,
  block_number = excluded.block_number, block_hash = excluded.block_hash, is_final = false
"""  # noqa: S608  constants
MAKE_FINAL: Final = "UPDATE unknown_payment SET is_final = true WHERE NOT is_final AND block_number <= $1"
VOID_UNKNOWN: Final = "DELETE FROM unknown_payment WHERE block_number > $1"
WITHOUT_SETTLEMENT: Final = """
SELECT g.hash FROM unnest($1::text[]) AS g(hash)
WHERE NOT EXISTS (SELECT FROM settlement t WHERE t.session_id_hash = g.hash AND t.state <> 'WRITTEN_OFF')
  AND NOT EXISTS (SELECT FROM adopted_payment a WHERE a.session_id_hash = g.hash)
"""


WRITTEN_OFF: Final = """
SELECT t.session_id_hash AS hash FROM settlement t WHERE t.session_id_hash = ANY($1::text[]) AND t.state = 'WRITTEN_OFF'
  AND NOT EXISTS (SELECT FROM adopted_payment a WHERE a.session_id_hash = t.session_id_hash)
"""
# Written off after the watcher had asked, and before it applies the block with the payment.
WRITTEN_OFF_MEANWHILE: Final = f"""
SELECT EXISTS (SELECT FROM ({WRITTEN_OFF}) w WHERE NOT EXISTS (
  SELECT FROM unknown_payment p WHERE p.session_id_hash = w.hash))
"""  # noqa: S608  constants
_IS_READ: Final = """
SELECT CASE c.read_in_epoch WHEN s.epoch THEN 'present' WHEN 0 THEN 'earlier version' ELSE 'earlier watcher' END
FROM chain_cursor c, shard s WHERE s.id = $1
"""


class _CountedOtherwiseError(Exception):
    """There are not as many payments as the person who confirms has seen."""


@final
class PostgresPayments:
    """Implements `PaymentJournal`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unknown(self) -> UnknownPayments:
        """Count the payments that nobody has adopted."""
        return _sum(await self._database.read(lambda connection: connection.fetchrow(_COUNT)))

    async def unknown_payments(self, *, limit: int) -> Sequence[ChainPayment]:
        """Return the payments that nobody has adopted, by block."""
        rows = await self._database.read(lambda connection: connection.fetch(_LIST, limit))
        return [_payment(row) for row in rows]

    async def adopt(
        self, *, through_block: int, count: int, adopted_by: str, reason: str, now_ms: int
    ) -> UnknownPayments | None:
        """Move the unknown payments of the blocks up to one into the journal, in one transaction."""

        async def unit(connection: Connection) -> UnknownPayments:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK_KEY)
            adopted = _sum(await connection.fetchrow(_ADOPT, through_block, now_ms, adopted_by, reason))
            if adopted.count != count:
                raise _CountedOtherwiseError
            return adopted

        try:
            return await self._database.transact(unit)
        except _CountedOtherwiseError:
            return None

    async def is_chain_read(self, *, runs_watcher: bool) -> bool:
        """Return whether the present watcher has read the chain up to its head."""
        found = await self._database.read(lambda connection: connection.fetchval(_IS_READ, ServerRole.WATCHER))
        return bool(found == "present" or (found == "earlier version" and not runs_watcher))

    async def sums(self) -> PaymentSums:
        """Add up the books."""

        async def unit(connection: Connection) -> PaymentSums:
            return PaymentSums(
                settled=_sum(await connection.fetchrow(_SETTLED)), adopted=_sum(await connection.fetchrow(_ADOPTED))
            )

        return await self._database.read(unit)


def unknown_columns(payments: Sequence[ChainPayment]) -> Sequence[list[Any]]:
    """Return the arguments of ADD_UNKNOWN."""
    return (
        [each.session_id_hash for each in payments],
        [each.payer for each in payments],
        [each.payee for each in payments],
        [each.to_amount for each in payments],
        [each.fee_amount for each in payments],
        [each.rate for each in payments],
        [each.seconds for each in payments],
        [each.fee_bps for each in payments],
        [each.tx_hash for each in payments],
        [each.log_index for each in payments],
        [each.block_number for each in payments],
        [each.block_hash for each in payments],
    )


def _sum(row: Any) -> UnknownPayments:
    return UnknownPayments(count=int(row["n"]), amount_micro=int(row["total"]))


def _payment(row: Any) -> ChainPayment:
    return ChainPayment(
        session_id_hash=row["session_id_hash"],
        payer=row["payer"],
        payee=row["payee"],
        to_amount=int(row["to_amount"]),
        fee_amount=int(row["fee_amount"]),
        rate=int(row["rate"]),
        seconds=int(row["seconds"]),
        fee_bps=int(row["fee_bps"]),
        tx_hash=row["tx_hash"],
        log_index=row["log_index"],
        block_number=row["block_number"],
        block_hash=row["block_hash"],
    )
