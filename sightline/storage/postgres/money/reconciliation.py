"""What the reconciliation reads of the books, on Postgres."""

from collections.abc import Sequence
from typing import Final, TypeVar, final

from sightline.domain.books.differences import BooksCheck, Difference, DifferenceKind
from sightline.domain.books.rows import JournalPlace, PaidRow, RefundRow
from sightline.ports.ledger import StoredEntry
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.database.work import Unit
from sightline.storage.postgres.money.journal import OWN, stored_entry, without_entry

T = TypeVar("T")
DEADLINE_MS: Final = 120_000
"""Of one query. Some add up the whole journal; nobody waits for them."""

_PLACE: Final = "SELECT c.final_number, j.read_through FROM chain_cursor c CROSS JOIN journal_cursor j"
_BETWEEN: Final = """
SELECT * FROM journal_entry WHERE block_number BETWEEN $1 AND $2 AND kind <> 'WRITE_OFF' ORDER BY id
"""
_OF_TRANSACTIONS: Final = "SELECT * FROM journal_entry WHERE tx_hash = ANY($1::text[]) ORDER BY id"
_SESSIONS: Final = "SELECT session_id::text, session_id_hash FROM hold WHERE session_id_hash = ANY($1::text[])"
_PAID: Final = """
SELECT session_id_hash, tx_hash, coalesce(chain_from, payer) AS payer,
  coalesce(chain_to, lower(payload ->> 'to')) AS payee,
  coalesce(chain_to_amount, (payload ->> 'toAmount')::numeric) AS to_amount,
  coalesce(chain_fee_amount, (payload ->> 'feeAmount')::numeric) AS fee_amount,
  coalesce(chain_seconds, (payload ->> 'seconds')::numeric) AS seconds
FROM settlement WHERE session_id_hash = ANY($1::text[]) AND state IN ('CONFIRMED', 'MISMATCHED')
"""
_PAID_BETWEEN: Final = """
SELECT session_id_hash FROM settlement
WHERE block_number BETWEEN $1 AND $2 AND state IN ('CONFIRMED', 'MISMATCHED')
"""
_OPENED_BETWEEN: Final = """
SELECT session_id_hash, max_amount FROM hold_opening WHERE block_number BETWEEN $1 AND $2 AND state = 'CONFIRMED'
"""
_REFUNDS: Final = """
SELECT tx_hash, session_id::text, lower(to_address) AS receiver, amount_micro FROM refund
WHERE tx_hash = ANY($1::text[])
"""
_BALANCES: Final = """
SELECT coalesce(sum(amount) FILTER (WHERE account = 'escrow'), 0) AS escrow,
  coalesce(sum(amount) FILTER (WHERE account = 'stray'), 0) AS stray,
  coalesce(sum(amount) FILTER (WHERE account LIKE 'held:%'), 0) AS held,
  coalesce(sum(amount) FILTER (WHERE account LIKE 'credit:%'), 0) AS credit
FROM journal_line WHERE block_number <= $1 AND currency = 'micro-USDC'
"""
# Of each session: what the journal has in escrow, and what its row says. A row that changed in a block that is not
# final yet is compared later.
_HELD: Final = """
WITH books AS (
  SELECT session_id, -sum(amount) AS amount FROM journal_line
  WHERE block_number <= $1 AND account LIKE 'held:%' AND session_id IS NOT NULL GROUP BY session_id),
rows AS (
  SELECT h.session_id, h.released_block IS NULL OR h.released_block > $1 AS is_open, h.escrowed_block, o.max_amount
  FROM hold h JOIN hold_opening o USING (session_id) WHERE h.escrowed_block <= $1)
SELECT coalesce(b.session_id, r.session_id)::text AS session_id, coalesce(b.amount, 0) AS books,
  CASE WHEN r.is_open THEN r.max_amount ELSE 0 END AS rows
FROM books b FULL JOIN rows r USING (session_id)
WHERE (r.is_open AND coalesce(b.amount, 0) < r.max_amount) OR (r.is_open IS NOT TRUE AND coalesce(b.amount, 0) <> 0)
"""
_CHARGES: Final = """
SELECT t.session_id::text, t.amount, s.doc #>> '{phase,charged}' AS charged
FROM settlement t JOIN session s ON s.id = t.session_id
WHERE s.state = 'ENDED' AND t.lane <> 'VOID' AND t.block_number <= $1
  AND (s.doc #>> '{phase,charged}')::numeric IS DISTINCT FROM t.amount
"""
_WRITE_OFFS: Final = """
SELECT coalesce(t.session_id::text, e.session_id::text) AS session_id, t.amount, e.amounts[1] AS written
FROM (SELECT * FROM settlement WHERE state = 'WRITTEN_OFF' AND amount > 0) t
FULL JOIN (SELECT * FROM journal_entry WHERE kind = 'WRITE_OFF' AND cardinality(amounts) > 0) e USING (session_id)
WHERE t.amount IS DISTINCT FROM e.amounts[1]
"""
_NOT_FINAL: Final = """
SELECT e.kind, e.block_number, e.tx_hash, c.number FROM journal_entry e CROSS JOIN chain_cursor c
WHERE e.block_number > c.number AND e.kind <> 'WRITE_OFF' AND e.reverses IS NULL
  AND NOT EXISTS (SELECT FROM journal_entry r WHERE r.reverses = e.id)
"""
_RECORD: Final = """
INSERT INTO books_check (at_ms, through_block, entries, differences) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET at_ms = $1, through_block = $2, entries = $3, differences = $4
"""
_LAST: Final = "SELECT at_ms, through_block, entries, differences FROM books_check"


@final
class PostgresBooks:
    """Implements `BooksRows` of the reconciliation."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _read(self, unit: Unit[T]) -> T:
        return await self._database.read(unit, deadline_ms=DEADLINE_MS)

    async def place(self) -> JournalPlace | None:
        """Return how far the watcher has read."""
        row = await self._read(lambda connection: connection.fetchrow(_PLACE))
        if row is None:
            return None
        return JournalPlace(final=row["final_number"], read_through=row["read_through"])

    async def entries_between(self, first: int, last: int) -> list[StoredEntry]:
        """Return the entries of blocks."""
        rows = await self._read(lambda connection: connection.fetch(_BETWEEN, first, last))
        return [stored_entry(row) for row in rows]

    async def entries_of(self, tx_hashes: Sequence[str]) -> list[StoredEntry]:
        """Return the entries of transactions."""
        rows = await self._read(lambda connection: connection.fetch(_OF_TRANSACTIONS, list(tx_hashes)))
        return [stored_entry(row) for row in rows]

    async def sessions_of(self, hashes: Sequence[str]) -> dict[str, str]:
        """Return the sessions with these hashes."""
        rows = await self._read(lambda connection: connection.fetch(_SESSIONS, list(hashes)))
        return {row["session_id_hash"]: row["session_id"] for row in rows}

    async def paid(self, hashes: Sequence[str]) -> dict[str, PaidRow]:
        """Return the settlements with these hashes that say that they are on the chain."""
        rows = await self._read(lambda connection: connection.fetch(_PAID, list(hashes)))
        return {
            row["session_id_hash"]: PaidRow(
                session_id_hash=row["session_id_hash"],
                payer=row["payer"].lower(),
                payee=row["payee"].lower(),
                to_amount=int(row["to_amount"]),
                fee_amount=int(row["fee_amount"]),
                seconds=int(row["seconds"]),
                tx_hash=row["tx_hash"],
            )
            for row in rows
        }

    async def paid_between(self, first: int, last: int) -> list[str]:
        """Return the hashes of settlements that are confirmed in these blocks."""
        rows = await self._read(lambda connection: connection.fetch(_PAID_BETWEEN, first, last))
        return [row["session_id_hash"] for row in rows]

    async def opened_between(self, first: int, last: int) -> dict[str, int]:
        """Return the amounts of holds that are confirmed in these blocks."""
        rows = await self._read(lambda connection: connection.fetch(_OPENED_BETWEEN, first, last))
        return {row["session_id_hash"]: int(row["max_amount"]) for row in rows}

    async def owners(self, tx_hashes: Sequence[str]) -> dict[str, str | None]:
        """Return the transactions that our keys have signed, with the session if it is only one."""
        rows = await self._read(lambda connection: connection.fetch(OWN, list(tx_hashes)))
        return {row["tx_hash"]: row["session_id"] if row["sessions"] == 1 else None for row in rows}

    async def refunds(self, tx_hashes: Sequence[str]) -> dict[str, RefundRow]:
        """Return the refunds in these transactions."""
        rows = await self._read(lambda connection: connection.fetch(_REFUNDS, list(tx_hashes)))
        return {
            row["tx_hash"]: RefundRow(
                tx_hash=row["tx_hash"], session_id=row["session_id"], receiver=row["receiver"],
                amount=row["amount_micro"],
            )
            for row in rows
        }  # fmt: skip

    async def without_entry(self, *, after: str, limit: int) -> list[str]:
        """Return transactions that our keys have signed and that lack an entry of their gas or refund."""
        return await self._read(lambda connection: without_entry(connection, after, limit))

    async def balances(self, through: int) -> dict[str, int]:
        """Return the journal's balances."""
        row = await self._read(lambda connection: connection.fetchrow(_BALANCES, through))
        return {name: int(row[name]) for name in ("escrow", "stray", "held", "credit")}

    async def own_differences(self, through: int) -> list[Difference]:
        """Return what differs between the database's own tables."""

        async def unit(connection: Connection) -> list[Difference]:
            found = [
                Difference(
                    kind=DifferenceKind.HOLD, subject=f"session {row['session_id']}",
                    chain=f"{int(row['books'])} in escrow", books=f"{int(row['rows'])} in escrow",
                )
                for row in await connection.fetch(_HELD, through)
            ]  # fmt: skip
            found += [
                Difference(
                    kind=DifferenceKind.CHARGE, subject=f"session {row['session_id']}",
                    chain=f"settled {int(row['amount'])}", books=f"charged {row['charged']}",
                )
                for row in await connection.fetch(_CHARGES, through)
            ]  # fmt: skip
            found += [
                Difference(
                    kind=DifferenceKind.WRITE_OFF, subject=f"session {row['session_id']}",
                    chain=f"settlement: {row['amount']}", books=f"journal: {row['written']}",
                )
                for row in await connection.fetch(_WRITE_OFFS)
            ]  # fmt: skip
            found += [
                Difference(
                    kind=DifferenceKind.NOT_ON_CHAIN,
                    subject=f"{row['kind']} in block {row['block_number']}, transaction {row['tx_hash']}",
                    chain=f"the last block is {row['number']}", books=f"block {row['block_number']}",
                )
                for row in await connection.fetch(_NOT_FINAL)
            ]  # fmt: skip
            return found

        return await self._read(unit)

    async def record(self, check: BooksCheck) -> None:
        """Store the result as the last one."""
        values = check.at_ms, check.through_block, check.entries, check.differences
        await self._database.run(lambda connection: connection.execute(_RECORD, *values))

    async def last_check(self) -> BooksCheck | None:
        """Return the last result."""
        row = await self._read(lambda connection: connection.fetchrow(_LAST))
        return None if row is None else BooksCheck(**dict(row))
