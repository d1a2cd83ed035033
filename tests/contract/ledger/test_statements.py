"""The contract of statements: what the journal says of a month, and one invoice for each closed month with a charge."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import trio

from sightline.domain.books.journal import EntryKind, JournalEntry, Line, credit_of, held_by, moved, settled_lines
from sightline.domain.books.statement import Invoice, Month, SessionAmounts, WorkspaceStatement, invoice_due
from sightline.domain.units import DAY_MS, HOUR_MS
from sightline.domain.value import replace
from sightline.ports.ledger import BooksReading, FundsPolicy, Ledger
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.sqlstate import StatementRefusedError
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.contract.ledger.ledgers import (
    CONSUMER,
    OPERATOR,
    OTHER_SESSION,
    PAYEE,
    PAYER,
    SESSION,
    a_block,
    a_payload,
    an_application,
    apply,
)

NOVEMBER, DECEMBER = Month(2026, 11), Month(2026, 12)
IN_NOVEMBER = NOVEMBER.first_ms + DAY_MS
AFTER_NOVEMBER = NOVEMBER.end_ms + HOUR_MS


@dataclass
class Year:
    """A ledger whose blocks are written by the test."""

    ledger: Ledger
    database: Database | None = None
    head: int = 0

    async def settle(
        self, session_id: str = SESSION, *, at_ms: int = IN_NOVEMBER, more: tuple[JournalEntry, ...] = (),
        confirmed: int | None = None, read_ms: int | None = None,
    ) -> None:  # fmt: skip
        """End a session, and apply a block with its settlement of 85 + 15."""
        await self.ledger.take_hold(session_id, PAYER, 100, FundsPolicy.ADVISORY, now_ms=0)  # type: ignore[attr-defined]  # both have it
        await self.ledger.compose(a_payload(session_id), now_ms=at_ms - 1)  # type: ignore[attr-defined]  # both have it
        lines = settled_lines(
            payer=PAYER.lower(), payee=PAYEE.lower(), to_amount=85, fee_amount=15, is_escrow=True
        )  # fmt: skip
        await self.block(self.entry(EntryKind.SETTLED, lines, session_id, at_ms), *more, at_ms=read_ms or at_ms,
                         confirmed=confirmed)  # fmt: skip

    def entry(
        self, kind: EntryKind, lines: tuple[Line, ...], session_id: str = SESSION, at_ms: int = IN_NOVEMBER,
        log_index: int = 1,
    ) -> JournalEntry:  # fmt: skip
        number = self.head + 1
        return JournalEntry(
            kind=kind, tx_hash=f"0xt{number}", log_index=log_index, block_number=number,
            block_hash=a_block(number).block_hash, block_at_ms=at_ms, lines=lines,
            session_id_hash=session_id_hash(session_id),
        )  # fmt: skip

    async def block(self, *entries: JournalEntry, at_ms: int, confirmed: int | None = None) -> None:
        """Apply the next block at an instant."""
        self.head += 1
        books = BooksReading(first=self.head, through=self.head, entries=entries)
        application = an_application(a_block(self.head), confirmed_block=confirmed)
        await apply(self.ledger, replace(application, books=books), now_ms=at_ms)

    async def statement(self, workspace_id: str = CONSUMER, month: Month = NOVEMBER) -> WorkspaceStatement:
        return await self.ledger.statement(workspace_id, month)


@pytest.fixture
async def year(store_address: str | None) -> AsyncIterator[Year]:
    if store_address is None:
        yield Year(MemoryLedger())
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield Year(PostgresLedger(database), database)


async def test_a_month_has_the_sessions_that_were_settled_in_it(year: Year) -> None:
    returned = moved(held_by(PAYER.lower()), "escrow", 40)
    await year.settle(more=(year.entry(EntryKind.RETURNED, returned, log_index=2),))
    await year.settle(OTHER_SESSION, at_ms=DECEMBER.first_ms)
    [session] = (await year.statement()).sessions
    assert session == SessionAmounts(
        session_id=SESSION, is_consumer=True, is_operator=False, settled_at_ms=IN_NOVEMBER, tx_hash="0xt1",
        charged=100, returned=40, earned=85, fee=15,
    )  # fmt: skip
    [filmed] = (await year.statement(OPERATOR)).sessions
    assert (filmed.is_consumer, filmed.is_operator, filmed.earned) == (False, True, 85)
    assert [each.session_id for each in (await year.statement(month=DECEMBER)).sessions] == [OTHER_SESSION]
    assert (await year.statement(month=Month(2026, 10))).sessions == ()


async def test_a_session_that_cost_nothing_is_in_the_statement_of_its_month(year: Year) -> None:
    await year.ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ADVISORY, now_ms=0)  # type: ignore[attr-defined]  # both have it
    await year.ledger.compose(a_payload(to_amount=0, fee_amount=0), now_ms=0)  # type: ignore[attr-defined]  # both have it
    await year.block(year.entry(EntryKind.SETTLED, ()), at_ms=IN_NOVEMBER)
    [session] = (await year.statement()).sessions
    assert (session.session_id, session.charged, session.tx_hash) == (SESSION, 0, "0xt1")


async def test_what_the_payee_refused_is_credited_and_what_the_platform_refused_is_not(year: Year) -> None:
    refused = (
        year.entry(EntryKind.CREDITED, moved("escrow", credit_of(PAYEE.lower()), 85), log_index=2),
        year.entry(EntryKind.CREDITED, moved("escrow", credit_of("0xfee"), 15), log_index=3),
    )
    await year.settle(more=refused)
    [session] = (await year.statement(OPERATOR)).sessions
    assert (session.earned, session.credited) == (85, 85)


async def test_a_refund_counts_in_the_month_in_which_it_was_paid(year: Year) -> None:
    await year.settle()
    lines = moved(f"refunds:{PAYER.lower()}", "refund-account:0xr", 30)
    await year.block(
        year.entry(EntryKind.REFUND, lines, at_ms=DECEMBER.first_ms), at_ms=DECEMBER.first_ms
    )  # fmt: skip
    [november], [december] = (await year.statement()).sessions, (await year.statement(month=DECEMBER)).sessions
    assert (november.charged, november.refunded, december.charged, december.refunded) == (100, 0, 0, 30)


async def test_a_refund_leaves_the_time_and_transaction_of_the_settlement(year: Year) -> None:
    await year.settle()
    for number, at_ms in enumerate((IN_NOVEMBER + 1, DECEMBER.first_ms)):
        lines = moved(f"refunds:{PAYER.lower()}", "refund-account:0xr", 10)
        await year.block(year.entry(EntryKind.REFUND, lines, at_ms=at_ms, log_index=number + 5), at_ms=at_ms)
    for month, refunded in ((NOVEMBER, 10), (DECEMBER, 10)):
        [session] = (await year.statement(month=month)).sessions
        assert (session.refunded, session.settled_at_ms, session.tx_hash) == (refunded, IN_NOVEMBER, "0xt1")


async def test_what_has_ended_and_is_settled_later_waits(year: Year) -> None:
    await year.settle(at_ms=NOVEMBER.end_ms - 10)
    await year.ledger.compose(a_payload(OTHER_SESSION), now_ms=NOVEMBER.end_ms - 5)  # type: ignore[attr-defined]  # both have it
    assert (await year.statement(OPERATOR)).waiting == 85
    assert (await year.statement(CONSUMER)).waiting == 0
    await year.settle(OTHER_SESSION, at_ms=DECEMBER.first_ms + 1)
    assert (await year.statement(OPERATOR)).waiting == 85, "it waited at the end of November"
    assert (await year.statement(OPERATOR, DECEMBER)).waiting == 0


async def test_a_month_is_closed_an_hour_after_its_end_when_all_its_blocks_are_final(year: Year) -> None:
    await year.settle(confirmed=0)
    assert not (await year.statement()).is_closed
    await year.block(at_ms=AFTER_NOVEMBER - 1, confirmed=1)
    assert not (await year.statement()).is_closed
    await year.block(at_ms=AFTER_NOVEMBER, confirmed=1)
    assert (await year.statement()).is_closed


async def test_a_month_whose_last_block_is_not_final_is_not_closed(year: Year) -> None:
    await year.settle(confirmed=0, read_ms=AFTER_NOVEMBER)
    assert not (await year.statement()).is_closed


async def test_an_invoice_is_written_once_and_the_numbers_of_a_year_have_no_gaps(year: Year) -> None:
    await year.settle()
    await year.settle(OTHER_SESSION, at_ms=DECEMBER.first_ms, read_ms=DECEMBER.end_ms + HOUR_MS)
    november, december = await year.statement(), await year.statement(month=DECEMBER)
    assert invoice_due(november)
    first = await year.ledger.invoice(november, now_ms=5)
    assert first == Invoice(
        year=2026, number=1, workspace_id=CONSUMER, month="2026-11", issued_at_ms=5, sessions=1, charged=100, refunded=0
    )  # fmt: skip
    assert first.name == "TEST-2026-000001"
    assert (await year.ledger.invoice(december, now_ms=6)).number == 2
    assert await year.ledger.invoice(november, now_ms=9) == first
    assert (await year.ledger.invoice(replace(november, month=Month(2027, 1)), now_ms=9)).number == 1


async def test_calls_at_once_for_different_workspaces_get_numbers_without_a_gap(year: Year) -> None:
    await year.settle(read_ms=AFTER_NOVEMBER)
    statement, numbers = await year.statement(), list[int]()

    async def ask(workspace: int) -> None:
        other = replace(statement, workspace_id=CONSUMER[:-2] + f"{workspace:02}")
        numbers.append((await year.ledger.invoice(other, now_ms=1)).number)

    async with trio.open_nursery() as nursery:
        for workspace in range(10):
            nursery.start_soon(ask, workspace % 5)
    assert sorted(set(numbers)) == [1, 2, 3, 4, 5]


async def test_no_invoice_is_due_for_an_open_month_or_without_a_charge(year: Year) -> None:
    await year.settle()
    assert not invoice_due(await year.statement())
    await year.block(at_ms=AFTER_NOVEMBER)
    assert not invoice_due(await year.statement(OPERATOR))
    assert invoice_due(await year.statement())


@pytest.mark.parametrize("store_address", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE invoice SET charged = 1",
        "DELETE FROM invoice",
        "TRUNCATE invoice",
        "INSERT INTO invoice SELECT year, 7, gen_random_uuid(), month, 1, 1, 1, 0 FROM invoice",
    ],
)
async def test_the_table_refuses_to_change_an_invoice_or_to_leave_a_gap(year: Year, statement: str) -> None:
    await year.settle(read_ms=AFTER_NOVEMBER)
    first = await year.ledger.invoice(await year.statement(), now_ms=1)
    assert year.database is not None
    with pytest.raises(StatementRefusedError, match="23001"):
        await year.database.run(lambda connection: connection.execute(statement))
    assert await year.ledger.invoice(await year.statement(), now_ms=2) == first
