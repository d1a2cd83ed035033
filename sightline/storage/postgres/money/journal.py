"""The journal of the books on Postgres.

The watcher brings the entries with the blocks that it applies. They wait in `journal_pending` until their block is
final, and move in the transaction that records its finality.
"""

from collections.abc import Sequence
from typing import Any, Final, final

from sightline.domain.books.journal import Currency, EntryKind, JournalEntry, Line, write_off_lines
from sightline.ports.ledger import BlockApplication, OwnTransaction, StoredEntry
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.money.outbox import CURSOR

READ_THROUGH: Final = "SELECT read_through FROM journal_cursor"
_COLUMNS: Final = (
    "tx_hash, log_index, kind, block_number, block_hash, block_at_ms, session_id, session_id_hash, accounts, "
    "currencies, amounts"
)
_SET_READ_THROUGH: Final = """
INSERT INTO journal_cursor AS c (read_through) VALUES ($2)
ON CONFLICT (id) DO UPDATE SET read_through = greatest(c.read_through, $2) WHERE c.read_through >= $1 - 1
RETURNING true
"""
# An event that a reorganisation has moved comes with its new block.
_ADD: Final = f"""
INSERT INTO journal_pending ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (tx_hash, log_index) DO UPDATE SET kind = excluded.kind, block_number = excluded.block_number,
  block_hash = excluded.block_hash, block_at_ms = excluded.block_at_ms, session_id = excluded.session_id,
  session_id_hash = excluded.session_id_hash, accounts = excluded.accounts, currencies = excluded.currencies,
  amounts = excluded.amounts
"""  # noqa: S608  constants
_TURN: Final = """
(SELECT count(*) FROM journal_entry r WHERE r.tx_hash = f.tx_hash AND r.log_index = f.log_index
  AND r.reverses IS NOT NULL)
"""
# An entry that was written and not reversed is not written again.
_MAKE_FINAL: Final = f"""
WITH final AS (DELETE FROM journal_pending WHERE block_number <= $1 RETURNING *)
INSERT INTO journal_entry ({_COLUMNS}, turn, recorded_at_ms)
SELECT f.tx_hash, f.log_index, f.kind, f.block_number, f.block_hash, f.block_at_ms,
  coalesce(f.session_id, (SELECT h.session_id FROM hold h WHERE h.session_id_hash = f.session_id_hash)),
  f.session_id_hash, f.accounts, f.currencies, f.amounts, {_TURN}, $2
FROM final f
ORDER BY f.block_number, f.log_index
ON CONFLICT (tx_hash, log_index, turn) WHERE reverses IS NULL DO NOTHING
"""  # noqa: S608  constants
_DROP_PENDING: Final = "DELETE FROM journal_pending WHERE block_number > $1"
_REVERSE: Final = f"""
INSERT INTO journal_entry ({_COLUMNS}, turn, reverses, recorded_at_ms)
SELECT tx_hash, log_index, kind, block_number, block_hash, block_at_ms, session_id, session_id_hash, accounts,
  currencies, ARRAY(SELECT -a FROM unnest(amounts) WITH ORDINALITY AS u(a, n) ORDER BY n), turn, id, $2
FROM journal_entry e
WHERE block_number > $1 AND reverses IS NULL AND kind <> '{EntryKind.WRITE_OFF}'
  AND NOT EXISTS (SELECT FROM journal_entry r WHERE r.reverses = e.id)
ORDER BY id
"""  # noqa: S608  constants
_LOWER_READ_THROUGH: Final = "UPDATE journal_cursor SET read_through = least(read_through, $1)"
OWN: Final = """
SELECT tx_hash, min(session_id::text) AS session_id, count(DISTINCT session_id) AS sessions,
  bool_or(is_refund) AS is_refund
FROM (
  SELECT tx_hash, session_id, false AS is_refund FROM settlement_attempt WHERE tx_hash = ANY($1::text[])
  UNION ALL SELECT tx_hash, session_id, false FROM opening_attempt WHERE tx_hash = ANY($1::text[])
  UNION ALL SELECT a.tx_hash, e.of_session, false FROM extension_attempt a JOIN hold_extension e USING (session_id)
    WHERE a.tx_hash = ANY($1::text[])
  UNION ALL SELECT tx_hash, NULL, false FROM permit_attempt WHERE tx_hash = ANY($1::text[])
  UNION ALL SELECT tx_hash, session_id, true FROM refund WHERE tx_hash = ANY($1::text[])) o
GROUP BY tx_hash
"""
_WITHOUT_ENTRY: Final = """
SELECT tx_hash FROM (
  SELECT tx_hash, 'GAS' AS kind FROM settlement_attempt UNION SELECT tx_hash, 'GAS' FROM opening_attempt
  UNION SELECT tx_hash, 'GAS' FROM extension_attempt UNION SELECT tx_hash, 'GAS' FROM permit_attempt
  UNION SELECT tx_hash, kind FROM refund CROSS JOIN (VALUES ('GAS'), ('REFUND')) k(kind)) o
WHERE tx_hash > $1 AND NOT EXISTS (SELECT FROM journal_entry e WHERE e.tx_hash = o.tx_hash AND e.kind = o.kind)
GROUP BY tx_hash ORDER BY tx_hash LIMIT $2
"""
_WRITTEN_OFF: Final = "SELECT session_id_hash, payer, amount FROM settlement WHERE session_id = $1"
_ADD_WRITE_OFF: Final = f"""
INSERT INTO journal_entry ({_COLUMNS}, recorded_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (tx_hash, log_index, turn) WHERE reverses IS NULL DO NOTHING
"""  # noqa: S608  constants
_ENTRIES: Final = f"""
SELECT id, {_COLUMNS}, turn, reverses, recorded_at_ms FROM journal_entry WHERE id > $1 ORDER BY id LIMIT $2
"""  # noqa: S608  constants


@final
class PostgresJournal:
    """Implements `Journal`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def entries(self, *, after: int = 0, limit: int) -> list[StoredEntry]:
        """Return entries in the order in which they were written."""
        rows = await self._database.read(lambda connection: connection.fetch(_ENTRIES, after, limit))
        return [stored_entry(row) for row in rows]


async def apply(connection: Connection, application: BlockApplication, final: int, now_ms: int) -> None:
    """Add the entries of a reading to those that wait, and write those whose block is final."""
    books = application.books
    if books is not None and await connection.fetchval(_SET_READ_THROUGH, books.first, books.through):
        await connection.executemany(_ADD, [_columns(entry) for entry in books.entries])
    await connection.execute(_MAKE_FINAL, final, now_ms)


async def roll_back(connection: Connection, ancestor: int, now_ms: int) -> None:
    """Drop what waits above a block, and take back what was written above it."""
    await connection.execute(_DROP_PENDING, ancestor)
    await connection.execute(_REVERSE, ancestor, now_ms)
    await connection.execute(_LOWER_READ_THROUGH, ancestor)


async def own_transactions(connection: Connection, tx_hashes: Sequence[str]) -> dict[str, OwnTransaction]:
    """Return which of these transactions our keys have signed."""
    return {
        row["tx_hash"]: OwnTransaction(
            tx_hash=row["tx_hash"],
            session_id=row["session_id"] if row["sessions"] == 1 else None,
            is_refund=row["is_refund"],
        )
        for row in await connection.fetch(OWN, list(tx_hashes))
    }


async def without_entry(connection: Connection, after: str, limit: int) -> list[str]:
    """Return transactions that our keys have signed and whose gas or refund is not in the journal."""
    return [row["tx_hash"] for row in await connection.fetch(_WITHOUT_ENTRY, after, limit)]


async def write_off_in_journal(connection: Connection, session_id: str, now_ms: int) -> None:
    """Write the entry of a settlement that was written off, in the transaction that does it."""
    row = await connection.fetchrow(_WRITTEN_OFF, session_id)
    head = await connection.fetchrow(CURSOR)
    entry = JournalEntry(
        kind=EntryKind.WRITE_OFF,
        tx_hash=f"write-off:{session_id}",
        log_index=0,
        block_number=0 if head is None else head["number"],
        block_hash="" if head is None else head["block_hash"],
        block_at_ms=now_ms,
        lines=write_off_lines(row["payer"], int(row["amount"])),
        session_id=session_id,
        session_id_hash=row["session_id_hash"],
    )
    await connection.execute(_ADD_WRITE_OFF, *_columns(entry), now_ms)


def _columns(entry: JournalEntry) -> Sequence[Any]:
    return (
        entry.tx_hash,
        entry.log_index,
        entry.kind.value,
        entry.block_number,
        entry.block_hash,
        entry.block_at_ms,
        entry.session_id,
        entry.session_id_hash,
        [line.account for line in entry.lines],
        [line.currency.value for line in entry.lines],
        [line.amount for line in entry.lines],
    )


def stored_entry(row: Any) -> StoredEntry:
    """The entry in a stored row.

    Raises:
        ValueError: Its lines do not sum to 0, which the table's constraint refuses.
    """
    lines = zip(row["accounts"], row["currencies"], row["amounts"], strict=True)
    return StoredEntry(
        id=row["id"],
        entry=JournalEntry(
            kind=EntryKind(row["kind"]),
            tx_hash=row["tx_hash"],
            log_index=row["log_index"],
            block_number=row["block_number"],
            block_hash=row["block_hash"],
            block_at_ms=row["block_at_ms"],
            session_id=None if row["session_id"] is None else str(row["session_id"]),
            session_id_hash=row["session_id_hash"],
            lines=tuple(Line(account, int(amount), Currency(currency)) for account, currency, amount in lines),
        ),
        turn=row["turn"],
        reverses=row["reverses"],
        recorded_at_ms=row["recorded_at_ms"],
    )
