"""The reconciliation finds each error that is planted in the books, and is silent on a history without one."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from sightline.chain.contracts.abi import call_data
from sightline.chain.service import ChainService
from sightline.domain.books.differences import BooksCheck, Difference
from sightline.domain.books.differences import DifferenceKind as Kind
from sightline.domain.session.model import Session
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from tests.chain.escrow.stage import HOLD, Stage
from tests.groups import rest_at_night

_HEAD = "(SELECT max(block_number) FROM journal_entry)"


@dataclass
class Books:
    """A history of three sessions: one is captured, one is cancelled after its open, one is open."""

    stage: Stage
    service: ChainService
    captured: Session
    cancelled: Session
    open: Session

    async def reconcile(self) -> tuple[BooksCheck, Sequence[Difference]]:
        return await self.service.reconciler(PostgresBooks(self.stage.database)).compare()

    async def found(self) -> set[Kind]:
        _, differences = await self.reconcile()
        return {difference.kind for difference in differences}

    async def plant(self, *statements: str) -> None:
        """Change tables as somebody with all rights on the database could."""
        values = {"captured": self.captured.id, "cancelled": self.cancelled.id, "open": self.open.id, "head": _HEAD}

        async def unit(connection: Connection) -> None:
            await connection.execute("SET LOCAL session_replication_role = replica")  # no trigger refuses it
            for statement in statements:
                await connection.execute(statement.format(**values))

        await self.stage.database.transact(unit)


@pytest.fixture
async def books(stage: Stage) -> AsyncIterator[Books]:
    async with stage.running(capture_window_ms=50) as service:
        assert service.escrow is not None
        captured, cancelled, still_open = [await stage.assigned(service) for _ in range(3)]
        for session in (captured, cancelled, still_open):
            await service.escrow.open_hold(session)
        await stage.ended(captured, 20)
        await stage.closed(cancelled)
        service.notify()
        await stage.until_done(captured.id)
        await stage.until_done(cancelled.id)
        await stage.world.send(
            stage.world.treasury_key, stage.world.token,
            call_data("mint(address,uint256)", [stage.world.settlement, 7]),
        )  # fmt: skip
        await stage.world.until_books_read()
        yield Books(stage, service, captured, cancelled, still_open)


async def test_a_history_without_errors_has_no_differences(books: Books) -> None:
    check, differences = await books.reconcile()
    assert differences == []
    head = await books.stage.ledger.chain_head()
    assert head is not None
    assert check.through_block == head.number
    assert check.entries >= 3 + 2 * 2 + 1 + 4, "three opens, two captures, money without a hold, and gas"
    assert await PostgresBooks(books.stage.database).last_check() == check
    sums = await PostgresBooks(books.stage.database).balances(head.number)
    assert sums["escrow"] == await books.stage.in_contract()
    assert -sums["held"] == await books.stage.held() >= HOLD


ERRORS = {
    "missing": ("DELETE FROM journal_entry WHERE kind = 'SETTLED' AND session_id = '{captured}'", Kind.MISSING),
    "missing return": (
        "DELETE FROM journal_entry WHERE kind = 'RETURNED' AND session_id = '{captured}'", Kind.MISSING,
    ),
    "missing gas": ("DELETE FROM journal_entry WHERE kind = 'GAS' AND session_id = '{captured}'", Kind.MISSING),
    "doubled": (
        ("INSERT INTO journal_entry (kind, tx_hash, log_index, turn, block_number, block_hash, block_at_ms, "
        "session_id, session_id_hash, accounts, currencies, amounts, recorded_at_ms) SELECT kind, tx_hash, log_index, "
        "1, block_number, block_hash, block_at_ms, session_id, session_id_hash, accounts, currencies, amounts, 0 "
        "FROM journal_entry WHERE kind = 'SETTLED' AND session_id = '{captured}'"),
        Kind.DOUBLED,
    ),
    "altered amount": (
        ("UPDATE journal_entry SET amounts = ARRAY(SELECT 2 * a FROM unnest(amounts) a) WHERE kind = 'OPENED' "
        "AND session_id = '{open}'"),
        Kind.AMOUNT,
    ),
    "altered gas": (
        "UPDATE journal_entry SET amounts = ARRAY[1, -1] WHERE kind = 'GAS' AND session_id = '{open}'", Kind.AMOUNT,
    ),
    "session of another": (
        "UPDATE journal_entry SET session_id = '{cancelled}' WHERE kind = 'SETTLED' AND session_id = '{captured}'",
        Kind.SESSION,
    ),
    "no session": (
        "UPDATE journal_entry SET session_id = NULL WHERE kind = 'OPENED' AND session_id = '{captured}'", Kind.SESSION,
    ),
    "wrong payee": (
        ("UPDATE journal_entry SET accounts = ARRAY(SELECT CASE WHEN a LIKE 'payee:%' THEN 'payee:0xbad' ELSE a END "
        "FROM unnest(accounts) WITH ORDINALITY AS u(a, n) ORDER BY n) WHERE kind = 'SETTLED' "
        "AND session_id = '{captured}'"),
        Kind.ACCOUNT,
    ),
    "wrong fee": (
        ("UPDATE journal_entry SET amounts = ARRAY(SELECT CASE WHEN a = 'fee' THEN m - 1 WHEN a LIKE 'payee:%' "
        "THEN m + 1 ELSE m END FROM unnest(accounts, amounts) WITH ORDINALITY AS u(a, m, n) ORDER BY n) "
        "WHERE kind = 'SETTLED' AND session_id = '{captured}'"),
        Kind.AMOUNT,
    ),
    "block that is not on the chain": (
        "UPDATE journal_entry SET block_hash = '0xbad' WHERE kind = 'OPENED' AND session_id = '{open}'",
        Kind.NOT_ON_CHAIN,
    ),
    "event in a block that is not on the chain": (
        ("INSERT INTO journal_entry (kind, tx_hash, log_index, block_number, block_hash, block_at_ms, accounts, "
        "currencies, amounts, recorded_at_ms) VALUES ('STRAY', '0xt', 0, {head}, '0xbad', 0, "
        "ARRAY['escrow', 'stray'], ARRAY['micro-USDC', 'micro-USDC'], ARRAY[1, -1], 0)"),
        Kind.NOT_ON_CHAIN,
    ),
    "event that never was": (
        ("INSERT INTO journal_entry (kind, tx_hash, log_index, block_number, block_hash, block_at_ms, accounts, "
        "currencies, amounts, recorded_at_ms) SELECT 'STRAY', '0xt', 0, block_number, block_hash, 0, "
        "ARRAY['escrow', 'stray'], ARRAY['micro-USDC', 'micro-USDC'], ARRAY[1, -1], 0 FROM journal_entry "
        "WHERE session_id = '{open}' AND kind = 'OPENED'"),
        Kind.NO_SUCH_EVENT,
    ),
    "block of the future": (
        ("INSERT INTO journal_entry (kind, tx_hash, log_index, block_number, block_hash, block_at_ms, accounts, "
        "currencies, amounts, recorded_at_ms) VALUES ('STRAY', '0xt', 0, 1000000000, '0xbad', 0, "
        "ARRAY['escrow', 'stray'], ARRAY['micro-USDC', 'micro-USDC'], ARRAY[1, -1], 0)"),
        Kind.NOT_ON_CHAIN,
    ),
    "wrong account": (
        "UPDATE journal_entry SET accounts = ARRAY['escrow', 'fee'] WHERE kind = 'OPENED' AND session_id = '{open}'",
        Kind.ACCOUNT,
    ),
    "charge of the session": (
        "UPDATE session SET doc = jsonb_set(doc::jsonb, '{{phase,charged}}', '1')::json WHERE id = '{captured}'",
        Kind.CHARGE,
    ),
    "settlement of another amount": (
        ("UPDATE settlement SET payload = jsonb_set(payload::jsonb, '{{toAmount}}', '\"1\"')::json "
        "WHERE session_id = '{captured}'"),
        Kind.SETTLEMENT,
    ),
    "settlement that never was": (
        "UPDATE settlement SET session_id_hash = '0xbad' WHERE session_id = '{captured}'", Kind.SETTLEMENT,
    ),
    "hold that is closed in the database only": (
        "UPDATE hold SET released_block = {head} WHERE session_id = '{open}'", Kind.HOLD,
    ),
    "write-off without an entry": (
        "UPDATE settlement SET state = 'WRITTEN_OFF' WHERE session_id = '{captured}'", Kind.WRITE_OFF,
    ),
}  # fmt: skip


@pytest.mark.parametrize("error", rest_at_night(ERRORS, gate=10))
async def test_an_error_in_the_books_is_found(books: Books, error: str) -> None:
    statement, kind = ERRORS[error]
    assert await books.found() == set()
    await books.plant(statement)
    check, differences = await books.reconcile()
    assert kind in {difference.kind for difference in differences}
    assert check.differences == len(differences)
    assert all(difference.advice and difference.subject for difference in differences)


async def test_an_entry_that_was_unbalanced_by_hand_is_found(books: Books) -> None:
    await books.plant(
        "ALTER TABLE journal_entry DROP CONSTRAINT journal_entry_balances",
        "UPDATE journal_entry SET amounts[1] = amounts[1] + 1 WHERE kind = 'OPENED' AND session_id = '{open}'",
    )
    assert Kind.UNBALANCED in await books.found()
