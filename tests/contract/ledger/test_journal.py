"""The contract of the journal: each final event has one entry, an entry balances, and nothing changes it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sightline.domain.books.journal import (
    ESCROW,
    EntryKind,
    JournalEntry,
    Line,
    gas_lines,
    held_by,
    moved,
    settled_lines,
)
from sightline.domain.value import replace
from sightline.ports.ledger import BooksReading, FundsPolicy, Journal, Ledger, OwnTransaction, StoredEntry
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.sqlstate import StatementRefusedError
from sightline.storage.postgres.money.journal import PostgresJournal
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.contract.ledger.ledgers import (
    OTHER_SESSION,
    PAYEE,
    PAYER,
    RELAYER,
    SESSION,
    a_block,
    a_payload,
    an_application,
    an_attempt,
    apply,
)


@dataclass
class Book:
    """A ledger and its journal."""

    ledger: Ledger
    journal: Journal
    database: Database | None = None

    async def read(
        self, *entries: JournalEntry, first: int = 1, head: int = 1, confirmed: int | None = None, fork: str = "a",
        final: int | None = None,
    ) -> list[StoredEntry]:  # fmt: skip
        """Apply blocks with these entries; returns the journal."""
        application = replace(an_application(a_block(head, fork), confirmed_block=confirmed), final_block=final)
        books = BooksReading(first=first, through=head, entries=entries)
        await apply(self.ledger, replace(application, books=books), now_ms=7)
        return await self.all()

    async def all(self) -> list[StoredEntry]:
        return await self.journal.entries(limit=100)


@pytest.fixture
async def book(store_address: str | None) -> AsyncIterator[Book]:
    if store_address is None:
        ledger = MemoryLedger()
        yield Book(ledger, ledger.journal)
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield Book(PostgresLedger(database), PostgresJournal(database), database)


def settled_entry(
    session_id: str = SESSION, *, amount: int = 100, block: int = 1, log_index: int = 3, fork: str = "a"
) -> JournalEntry:
    lines = settled_lines(
        payer=PAYER.lower(), payee=PAYEE.lower(), to_amount=amount - 15, fee_amount=15, is_escrow=True
    )
    return JournalEntry(
        kind=EntryKind.SETTLED, tx_hash="0xt", log_index=log_index, block_number=block,
        block_hash=a_block(block, fork).block_hash, block_at_ms=1_000 * block, lines=lines,
        session_id_hash=session_id_hash(session_id),
    )  # fmt: skip


async def test_an_entry_is_read_back_as_it_was_with_its_session_and_block(book: Book) -> None:
    await book.ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ADVISORY, now_ms=0)  # type: ignore[attr-defined]  # both have it
    entry = settled_entry(amount=2**200)
    [stored] = await book.read(entry)
    assert stored.entry == replace(entry, session_id=SESSION)
    assert (stored.reverses, stored.recorded_at_ms) == (None, 7)


async def test_an_entry_of_a_session_that_this_database_does_not_know_names_only_its_hash(book: Book) -> None:
    [stored] = await book.read(settled_entry())
    assert (stored.entry.session_id, stored.entry.session_id_hash) == (None, session_id_hash(SESSION))


async def test_an_event_is_written_when_its_block_is_final_and_not_before(book: Book) -> None:
    assert await book.read(settled_entry(), confirmed=0) == []
    [stored] = await book.read(first=2, head=2, confirmed=1)
    assert stored.entry == settled_entry()


async def test_an_event_that_is_read_twice_is_written_once(book: Book) -> None:
    await book.read(settled_entry())
    assert [each.entry for each in await book.read(settled_entry(), head=2)] == [settled_entry()]


async def test_entries_are_written_in_the_order_of_the_chain(book: Book) -> None:
    later, first = settled_entry(OTHER_SESSION, log_index=9), settled_entry()
    assert [each.entry for each in await book.read(later, first)] == [first, later]


async def test_entries_after_a_block_that_was_not_read_wait_until_it_is_read(book: Book) -> None:
    await book.read(first=0)
    late = settled_entry(block=4)
    assert await book.read(late, first=4, head=4) == []
    assert await book.ledger.books_read_through() == 1
    assert [each.entry for each in await book.read(late, first=2, head=4)] == [late]
    assert await book.ledger.books_read_through() == 4


async def test_a_roll_back_drops_what_was_not_final(book: Book) -> None:
    await book.read()
    await book.read(settled_entry(block=2), first=2, head=2, confirmed=1)
    await book.ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=3)
    assert await book.read(first=2, head=2, fork="b") == []


async def test_a_roll_back_below_a_final_block_writes_an_entry_that_takes_the_other_back(book: Book) -> None:
    """The event is in another block then, at another place in it, and its entry counts again."""
    await book.read()
    await book.read(settled_entry(block=2), first=2, head=2)
    await book.ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=3)
    was, back = await book.all()
    assert back.reverses == was.id
    assert back.entry.lines == tuple(Line(line.account, -line.amount) for line in was.entry.lines)
    moved_to = settled_entry(block=3, fork="b")
    *_, again = await book.read(moved_to, first=2, head=3, fork="b")
    assert (again.entry, again.turn, again.reverses) == (moved_to, 1, None)
    assert await balance(book, "fee") == -15
    await book.ledger.roll_back(a_block(1), cursor=a_block(3, "b"), now_ms=4)
    assert len(await book.all()) == 4, "an entry is taken back once"
    assert await balance(book, "fee") == 0


async def balance(book: Book, account: str) -> int:
    lines = [line for each in await book.all() for line in each.entry.lines]
    return sum(line.amount for line in lines if line.account == account)


async def test_a_write_off_is_in_the_journal_once_and_a_roll_back_leaves_it(book: Book) -> None:
    await book.read(head=2)
    await book.ledger.compose(a_payload(), now_ms=0)  # type: ignore[attr-defined]  # both have it
    for _ in range(2):
        await book.ledger.write_off(SESSION, reason="lost", now_ms=9)
    [stored] = await book.all()
    assert (stored.entry.kind, stored.entry.session_id, stored.entry.block_number) == (EntryKind.WRITE_OFF, SESSION, 2)
    assert await balance(book, "write-offs") == 100
    await book.ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=10)
    assert len(await book.all()) == 1


async def test_transactions_of_our_keys_are_known_with_the_session_if_it_is_one(book: Book) -> None:
    for session_id in (SESSION, OTHER_SESSION):
        await book.ledger.compose(a_payload(session_id), now_ms=0)  # type: ignore[attr-defined]  # both have it
    await book.ledger.store_signed(RELAYER, [an_attempt(SESSION, tx_hash="0xone")], now_ms=0)
    batch = [an_attempt(each, nonce=1, tx_hash="0xtwo") for each in (OTHER_SESSION,)]
    await book.ledger.store_signed(RELAYER, batch, now_ms=0)
    assert await book.ledger.own_transactions(["0xone", "0xtwo", "0xother"]) == {
        "0xone": OwnTransaction(tx_hash="0xone", session_id=SESSION),
        "0xtwo": OwnTransaction(tx_hash="0xtwo", session_id=OTHER_SESSION),
    }


async def test_a_transaction_of_ours_lacks_an_entry_until_its_gas_is_in_the_journal(book: Book) -> None:
    for nonce, session_id in enumerate((SESSION, OTHER_SESSION)):
        await book.ledger.compose(a_payload(session_id), now_ms=0)  # type: ignore[attr-defined]  # both have it
        attempt = an_attempt(session_id, nonce=nonce, tx_hash=f"0xt{nonce}")
        await book.ledger.store_signed(RELAYER, [attempt], now_ms=0)
    assert await book.ledger.without_entry(limit=10) == ["0xt0", "0xt1"]
    assert await book.ledger.without_entry(limit=1) == ["0xt0"]
    assert await book.ledger.without_entry(after="0xt0", limit=10) == ["0xt1"]
    gas = replace(settled_entry(), kind=EntryKind.GAS, tx_hash="0xt0", log_index=-1, lines=gas_lines(RELAYER, 5))
    await book.read(gas)
    assert await book.ledger.without_entry(limit=10) == ["0xt1"]


async def test_gas_is_counted_in_wei_beside_the_events_of_its_transaction(book: Book) -> None:
    gas = replace(settled_entry(), kind=EntryKind.GAS, log_index=-1, lines=gas_lines(RELAYER, 10**30))
    assert [each.entry for each in await book.read(settled_entry(), gas)] == [gas, settled_entry()]


@pytest.mark.parametrize(
    "lines", [(*moved(ESCROW, held_by(PAYER), 5), Line(ESCROW, 1)), (Line(ESCROW, 5), *gas_lines(RELAYER, -5)[:1])]
)
async def test_an_entry_that_does_not_balance_in_each_currency_is_not_written(
    book: Book, lines: tuple[Line, ...]
) -> None:
    with pytest.raises((AssertionError, StatementRefusedError)):
        await book.read(replace(settled_entry(), lines=lines))
    assert await book.all() == []


@pytest.mark.parametrize("store_address", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal_entry SET amounts = '{}', accounts = '{}', currencies = '{}'",
        "UPDATE journal_entry SET session_id = NULL",
        "DELETE FROM journal_entry",
        "TRUNCATE journal_entry",
    ],
)
async def test_the_table_refuses_every_change_of_an_entry(book: Book, statement: str) -> None:
    written = await book.read(settled_entry())
    assert book.database is not None
    with pytest.raises(StatementRefusedError, match="23001"):
        await book.database.run(lambda connection: connection.execute(statement))
    assert await book.all() == written


@pytest.mark.parametrize("store_address", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("accounts", "currencies", "amounts"),
    [
        (["escrow", "fee"], ["micro-USDC", "micro-USDC"], [5, -4]),
        (["escrow", "fee"], ["micro-USDC", "wei"], [5, -5]),
        (["escrow"], ["micro-USDC"], [None]),
        (["escrow", "fee"], ["micro-USDC", None], [0, 0]),
        (["escrow"], ["micro-USDC", "micro-USDC"], [5, -5]),
        (["escrow", None], ["micro-USDC", "micro-USDC"], [5, -5]),
    ],
)
async def test_the_table_refuses_an_entry_that_does_not_balance(
    book: Book, accounts: list[str | None], currencies: list[str | None], amounts: list[int | None]
) -> None:
    insert = """
    INSERT INTO journal_entry (kind, tx_hash, log_index, block_number, block_hash, block_at_ms, accounts, currencies,
      amounts, recorded_at_ms) VALUES ('SETTLED', '0xt', 1, 1, '0xb', 1, $1, $2, $3, 1)
    """
    assert book.database is not None
    with pytest.raises(StatementRefusedError, match="23514"):
        await book.database.run(lambda connection: connection.execute(insert, accounts, currencies, amounts))
    assert await book.all() == []


async def test_an_entry_is_written_when_its_block_is_final_and_at_the_depth(book: Book) -> None:
    assert await book.read(settled_entry(), confirmed=1, final=0) == []
    assert await book.read(first=2, head=2, confirmed=1, final=0) == []
    (entry,) = await book.read(first=3, head=3, confirmed=2, final=1)
    assert entry.entry == settled_entry()


async def test_a_final_block_above_the_depth_makes_no_entry_final(book: Book) -> None:
    assert await book.read(settled_entry(), confirmed=0, final=1) == []


async def test_an_endpoint_that_calls_an_earlier_block_final_takes_no_finality_back(book: Book) -> None:
    await book.read(head=3, final=2)
    (entry,) = await book.read(settled_entry(block=2), first=4, head=4, final=1)
    assert entry.entry == settled_entry(block=2)


async def test_after_a_reorganisation_below_the_final_block_entries_wait_again(book: Book) -> None:
    await book.read(settled_entry(block=2), head=3, final=3)
    await book.ledger.roll_back(a_block(1), cursor=a_block(3), now_ms=8)
    written = await book.read(settled_entry(block=2, fork="b"), first=2, head=2, fork="b", final=1)
    assert [each.reverses is None for each in written] == [True, False]
    written = await book.read(first=3, head=3, fork="b", final=2)
    assert [each.entry.block_hash for each in written] == ["0xa2", "0xa2", "0xb2"]
