"""The contract of payments that the database does not know, and of the journal that adopts them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from sightline.domain.session.model import SessionState
from sightline.domain.settlement import ChainPayment, PaymentSums, UnknownPayments
from sightline.domain.value import replace
from sightline.ports.ledger import (
    FundsPolicy,
    Inclusion,
    Ledger,
    PaymentJournal,
    SettlementState,
    WrittenOffMeanwhileError,
)
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.sqlstate import StatementRefusedError
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.payments import PostgresPayments
from sightline.storage.postgres.store import PostgresStore
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.chain.world import insert_session
from tests.contract.builders import a_session, an_operator, in_phase
from tests.contract.ledger.ledgers import (
    CONSUMER,
    OTHER_SESSION,
    PAYEE,
    PAYER,
    SESSION,
    a_block,
    a_payload,
    an_application,
    apply,
)
from tests.shards import take_every_shard


@dataclass
class Books:
    """A ledger and its journal of adopted payments."""

    ledger: Ledger
    journal: PaymentJournal
    database: Database | None = None

    async def find(self, *payments: ChainPayment, head: int = 1, confirmed: int | None = None) -> UnknownPayments:
        """Apply a block with unknown payments; returns those that count."""
        application = an_application(a_block(head), confirmed_block=confirmed)
        await apply(self.ledger, replace(application, unknown=payments), now_ms=1)
        return await self.journal.unknown()

    async def adopt(self, count: int, through_block: int = 1) -> UnknownPayments | None:
        return await self.journal.adopt(
            through_block=through_block, count=count, adopted_by="ann", reason="restored", now_ms=5
        )


@pytest.fixture
async def books(store_address: str | None) -> AsyncIterator[Books]:
    if store_address is None:
        ledger = MemoryLedger()
        yield Books(ledger, ledger.payments)
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield Books(PostgresLedger(database), PostgresPayments(database), database)


def a_payment(session_id: str = SESSION, *, amount: int = 100, block: int = 1, log_index: int = 3) -> ChainPayment:
    return ChainPayment(
        session_id_hash=session_id_hash(session_id), payer=PAYER.lower(), payee=PAYEE.lower(), to_amount=amount - 15,
        fee_amount=15, rate=10, seconds=10, fee_bps=1500, tx_hash="0xt", log_index=log_index, block_number=block,
        block_hash=a_block(block).block_hash,
    )  # fmt: skip


async def test_payments_are_read_back_as_they_were_found_in_the_order_of_the_chain(books: Books) -> None:
    later, first = a_payment(OTHER_SESSION, log_index=9), a_payment(log_index=3, amount=2**200)
    assert await books.find(later, first) == UnknownPayments(count=2, amount_micro=100 + 2**200)
    assert list(await books.journal.unknown_payments(limit=10)) == [first, later]
    assert list(await books.journal.unknown_payments(limit=1)) == [first]


async def test_payments_count_from_the_confirmed_block_on(books: Books) -> None:
    assert await books.find(a_payment(), confirmed=0) == UnknownPayments()
    assert list(await books.journal.unknown_payments(limit=10)) == []
    assert await books.find(head=2, confirmed=1) == UnknownPayments(count=1, amount_micro=100)


async def test_a_roll_back_takes_the_payments_of_its_blocks(books: Books) -> None:
    await books.find(a_payment())
    assert (await books.find(a_payment(OTHER_SESSION, block=2), head=2)).count == 2
    await books.ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=3)
    assert list(await books.journal.unknown_payments(limit=10)) == [a_payment()]


async def test_a_payment_that_is_found_again_has_its_new_place_and_is_final_anew(books: Books) -> None:
    await books.find(a_payment(), confirmed=0)
    moved = a_payment(block=2)
    assert await books.find(moved, head=2, confirmed=1) == UnknownPayments()
    await books.find(head=3, confirmed=2)
    assert list(await books.journal.unknown_payments(limit=10)) == [moved]


async def test_a_session_that_is_not_over_is_left_to_its_settlement(books: Books) -> None:
    """A session that was REQUESTED in the restored database, and paid on the chain, ends here without a settlement."""
    session = a_session(id=SESSION)
    await books.ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ADVISORY, now_ms=0)
    over = in_phase(session, SessionState.ENDED, an_operator(OTHER_SESSION))
    if isinstance(books.ledger, MemoryLedger):
        now = {SESSION: session}
        books.ledger.session_of = now.get
        assert await books.find(a_payment()) == UnknownPayments()
        now[SESSION] = over
    else:
        assert books.database is not None
        await insert_session(books.database, over)
        await books.database.run(lambda connection: connection.execute("UPDATE session SET state = 'REQUESTED'"))
        assert await books.find(a_payment()) == UnknownPayments()
        await books.database.run(lambda connection: connection.execute("UPDATE session SET state = 'EXPIRED'"))
    assert await books.journal.unknown() == UnknownPayments(count=1, amount_micro=100)


async def test_a_settlement_that_is_composed_later_makes_a_payment_known(books: Books) -> None:
    await books.find(a_payment(), a_payment(OTHER_SESSION))
    assert await books.ledger.without_settlement([session_id_hash(SESSION)]) == {session_id_hash(SESSION)}
    await books.ledger.compose(a_payload(SESSION), now_ms=2)
    assert await books.ledger.without_settlement([session_id_hash(SESSION)]) == frozenset()
    assert [each.session_id_hash for each in await books.journal.unknown_payments(limit=10)] == [
        session_id_hash(OTHER_SESSION)
    ]


async def test_adopted_payments_are_in_the_books_and_are_not_found_again(books: Books) -> None:
    await books.find(a_payment())
    await books.find(a_payment(OTHER_SESSION, block=2, amount=50), head=2)
    assert await books.adopt(1) == UnknownPayments(count=1, amount_micro=100)
    assert await books.journal.unknown() == UnknownPayments(count=1, amount_micro=50)
    assert await books.ledger.without_settlement([session_id_hash(SESSION)]) == frozenset()
    await books.find(a_payment(block=3), head=3)
    assert (await books.journal.unknown()).count == 1
    assert (await books.journal.sums()).adopted == UnknownPayments(count=1, amount_micro=100)


async def test_what_the_person_has_not_seen_is_not_adopted(books: Books) -> None:
    await books.find(a_payment(), a_payment(OTHER_SESSION))
    assert await books.adopt(1) is None
    assert await books.adopt(3) is None
    assert (await books.journal.unknown()).count == 2
    assert (await books.journal.sums()).adopted == UnknownPayments()


async def test_the_books_hold_settlements_on_the_chain_with_the_amounts_of_the_chain(books: Books) -> None:
    for session_id in (SESSION, OTHER_SESSION):
        await books.ledger.compose(a_payload(session_id), now_ms=1)
    place = Inclusion(tx_hash="0xt", block_number=1, block_hash="0xa1")
    await books.ledger.mark_confirmed(SESSION, place, now_ms=2)
    assert (await books.journal.sums()).settled == UnknownPayments(count=1, amount_micro=100)
    on_chain = replace(a_payload(OTHER_SESSION), to_amount=a_payload().fee_amount)
    await books.ledger.mark_mismatched(OTHER_SESSION, place, on_chain, now_ms=2)
    assert await books.journal.sums() == PaymentSums(
        settled=UnknownPayments(count=2, amount_micro=130), adopted=UnknownPayments()
    )


async def a_waiting_settlement(books: Books) -> None:
    await books.ledger.track(CONSUMER, PAYER, now_ms=0)
    await books.ledger.take_hold(SESSION, PAYER, 100, FundsPolicy.ADVISORY, now_ms=0)
    await books.ledger.charge_hold(SESSION, 100)
    await books.ledger.compose(a_payload(SESSION), now_ms=1)


async def written_off(books: Books) -> bool:
    record = await books.ledger.write_off(SESSION, reason="lost", now_ms=3)
    assert record is not None
    return record.state is SettlementState.WRITTEN_OFF


async def test_a_settlement_whose_payment_the_watcher_has_seen_is_not_written_off(books: Books) -> None:
    await a_waiting_settlement(books)
    await apply(books.ledger, an_application(a_block(1), settled=(SESSION,)), now_ms=2)
    assert not await written_off(books)
    await books.ledger.roll_back(a_block(0), cursor=a_block(1), now_ms=3)
    assert await written_off(books)


async def test_a_settlement_that_is_composed_after_its_payment_was_found_is_not_written_off(books: Books) -> None:
    await books.find(a_payment())
    await books.ledger.compose(a_payload(SESSION), now_ms=1)
    assert not await written_off(books)


async def test_the_payment_of_a_settlement_that_was_written_off_is_unknown(books: Books) -> None:
    await a_waiting_settlement(books)
    assert await written_off(books)
    hashed = session_id_hash(SESSION)
    assert await books.ledger.without_settlement([hashed]) == await books.ledger.written_off([hashed]) == {hashed}
    assert await books.find(a_payment()) == UnknownPayments(count=1, amount_micro=100)
    assert await books.adopt(1) == UnknownPayments(count=1, amount_micro=100)
    assert await books.ledger.without_settlement([hashed]) == await books.ledger.written_off([hashed]) == frozenset()


async def test_a_block_is_read_again_if_its_payment_was_written_off_meanwhile(books: Books) -> None:
    await a_waiting_settlement(books)
    assert await written_off(books)
    block = an_application(a_block(1), settled=(SESSION,))
    with pytest.raises(WrittenOffMeanwhileError):
        await apply(books.ledger, block, now_ms=2)
    assert await books.ledger.chain_head() is None
    await apply(books.ledger, replace(block, unknown=(a_payment(),)), now_ms=2)
    assert (await books.journal.unknown()).count == 1


async def test_the_chain_is_read_when_the_present_watcher_was_in_step(books: Books) -> None:
    if books.database is not None:
        await take_every_shard(PostgresStore(books.database), "host", "first")
    await apply(books.ledger, an_application(a_block(1)), now_ms=1)
    assert not await books.journal.is_chain_read(runs_watcher=True)
    await books.ledger.mark_checked(now_ms=2)
    assert await books.journal.is_chain_read(runs_watcher=True)
    assert await books.journal.is_chain_read(runs_watcher=False)


async def test_what_an_earlier_watcher_has_read_does_not_count(database_dsn: str) -> None:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as database:
        ledger, journal = PostgresLedger(database), PostgresPayments(database)
        await take_every_shard(PostgresStore(database), "host", "first")
        await apply(ledger, an_application(a_block(1)), now_ms=1)
        assert await journal.is_chain_read(runs_watcher=False)  # the watcher of an earlier version does not say it
        await ledger.mark_checked(now_ms=2)
        await take_every_shard(PostgresStore(database), "host", "second")
        assert not await journal.is_chain_read(runs_watcher=False)


@pytest.mark.parametrize(
    "statement", ["UPDATE adopted_payment SET reason = ''", "DELETE FROM adopted_payment", "TRUNCATE adopted_payment"]
)
async def test_the_journal_cannot_be_changed(database_dsn: str, statement: str) -> None:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as database:
        books = Books(PostgresLedger(database), PostgresPayments(database), database)
        await books.find(a_payment())
        await books.adopt(1)
        with pytest.raises(StatementRefusedError) as refused:
            await database.run(lambda connection: connection.execute(statement))
        assert refused.value.sqlstate == asyncpg.RestrictViolationError.sqlstate
        assert (await books.journal.sums()).adopted.count == 1
