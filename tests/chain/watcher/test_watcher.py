"""Wallets and ledger rows equal the chain, also when it forks and when its endpoint lags or gives wrong answers."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from sightline.chain.rpc.client import RpcOptions, open_rpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import replace
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import FundsPolicy, LedgerEventKind, LedgerQuery, LedgerRow, WalletView
from simulation.memory.ledger import MemoryLedger
from tests.chain.endpoint import Endpoint, open_endpoint
from tests.chain.watcher.scripted_node import (
    RELAYER,
    SETTLEMENT,
    TOKEN,
    ScriptedNode,
    approval,
    balance,
    limits_set,
    mint,
    settled,
    transfer,
)
from tests.chain.world import ENDLESS, Wallet, clock, ids, until

OPTIONS = RpcOptions(timeout_ms=2_000, tries=1)


@dataclass
class Watch:
    """A watcher over a scripted node; the test runs single steps."""

    node: ScriptedNode
    endpoint: Endpoint
    ledger: MemoryLedger
    watcher: Watcher
    reorganisations: list[str]
    alice: Wallet
    bob: Wallet

    async def catch_up(self) -> None:
        while await self.watcher.watch_once():
            pass

    async def view(self, wallet: Wallet) -> WalletView:
        view = await self.ledger.wallet(wallet.workspace_id)
        assert view is not None
        return view

    async def rows(self, wallet: Wallet) -> list[LedgerRow]:
        return await self.ledger.ledger(wallet.workspace_id, LedgerQuery(limit=1_000))

    async def kinds(self, wallet: Wallet) -> list[LedgerEventKind]:
        return [row.kind for row in reversed(await self.rows(wallet)) if not row.removed]

    async def assert_equal_to_chain(self) -> None:
        logs = [log for block in self.node.blocks for log in block.logs]
        head = await self.ledger.chain_head()
        assert head is not None
        assert head.block_hash == self.node.blocks[-1].block_hash
        for wallet in (self.alice, self.bob):
            mine = wallet.address.lower()
            rows = [row for row in await self.rows(wallet) if not row.removed and row.kind != LedgerEventKind.APPROVAL]
            total = sum(row.amount_micro * ((row.to_address == mine) - (row.from_address == mine)) for row in rows)
            assert (await self.view(wallet)).balance_micro == balance(mine, logs) == total


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    node, ledger, reorganisations = ScriptedNode(), MemoryLedger(), list[str]()
    async with open_endpoint("http://127.0.0.1:1") as endpoint, open_rpc(endpoint.url, OPTIONS, ids) as rpc:
        endpoint.fault = node.answer
        watcher = Watcher(
            rpc, RpcReader(rpc, token=TOKEN, settlement=SETTLEMENT), ledger, node.identity,
            WatcherOptions(poll_ms=10), relayer=RELAYER, clock=clock, ids=ids,
        )  # fmt: skip
        watcher.on_reorganised = lambda: reorganisations.append("told")
        watch = Watch(node, endpoint, ledger, watcher, reorganisations, Wallet(), Wallet())
        for wallet in (watch.alice, watch.bob):
            await ledger.track(wallet.workspace_id, wallet.address, now_ms=0)
        yield watch


def addresses(watch: Watch) -> tuple[str, str]:
    return watch.alice.address.lower(), watch.bob.address.lower()


async def test_a_wallet_that_is_tracked_late_gets_its_whole_history(watch: Watch) -> None:
    alice, bob = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"))
    watch.node.mine(approval(alice, ENDLESS, "b"))
    watch.node.mine(transfer(alice, bob, 30, "c"), transfer(bob, alice, 1, "d"))
    await watch.catch_up()
    assert await watch.kinds(watch.alice) == [
        LedgerEventKind.DEPOSIT, LedgerEventKind.APPROVAL, LedgerEventKind.TRANSFER_OUT, LedgerEventKind.TRANSFER_IN,
    ]  # fmt: skip
    view = await watch.view(watch.alice)
    assert (view.balance_micro, view.allowance_micro, view.last_sync_block) == (71, ENDLESS, 3)
    await watch.assert_equal_to_chain()


async def test_a_long_history_read_from_a_lying_index_is_not_believed(watch: Watch) -> None:
    alice, bob = addresses(watch)
    blocks = [watch.node.mine(mint(alice, 100, "a")), watch.node.mine(transfer(alice, bob, 30, "c"))]
    for _ in range(150):
        watch.node.mine()
    watch.node.lost_logs = {blocks[1].block_hash}
    with pytest.raises(ChainUnavailableError, match="do not sum up"):
        await watch.catch_up()
    assert (await watch.view(watch.alice)).balance_micro == 0
    watch.node.lost_logs = set()
    await watch.catch_up()
    assert await watch.kinds(watch.alice) == [LedgerEventKind.DEPOSIT, LedgerEventKind.TRANSFER_OUT]
    await watch.assert_equal_to_chain()


async def test_new_blocks_are_followed_and_quiet_ones_move_the_cursor(watch: Watch) -> None:
    alice, bob = addresses(watch)
    await watch.catch_up()
    watch.node.mine(mint(alice, 100, "a"))
    for _ in range(200):
        watch.node.mine()
    watch.node.mine(transfer(alice, bob, 40, "b"))
    await watch.catch_up()
    assert (await watch.view(watch.bob)).last_sync_block == 202
    await watch.assert_equal_to_chain()


async def test_a_settlement_frees_its_hold_with_the_block_that_shows_it(watch: Watch) -> None:
    alice, bob = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"), approval(alice, ENDLESS, "b"))
    await watch.catch_up()
    session_id = ids.uuid()
    await watch.ledger.take_hold(session_id, alice, 80, FundsPolicy.ENFORCED, now_ms=clock.now_ms())
    await watch.ledger.charge_hold(session_id, 60)
    assert (await watch.view(watch.alice)).available_micro == 40
    watch.node.mine(*settled(session_id, alice, bob, 60, "c"))
    await watch.catch_up()
    view = await watch.view(watch.alice)
    assert (view.held_micro, view.available_micro) == (0, 40)
    assert [row.session_id for row in await watch.rows(watch.bob)] == [session_id]
    assert await watch.kinds(watch.bob) == [LedgerEventKind.SETTLEMENT]


async def test_a_reorganisation_voids_rows_and_reads_the_other_branch(watch: Watch) -> None:
    alice, bob = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"))
    await watch.catch_up()
    session_id = ids.uuid()
    await watch.ledger.take_hold(session_id, alice, 60, FundsPolicy.ADVISORY, now_ms=clock.now_ms())
    await watch.ledger.charge_hold(session_id, 60)
    watch.node.mine(*settled(session_id, alice, bob, 60, "c"))
    watch.node.mine(mint(bob, 7, "d"))
    await watch.catch_up()
    await watch.assert_equal_to_chain()
    watch.node.fork(2)
    watch.node.mine(mint(bob, 9, "e"))
    watch.node.mine()
    watch.node.mine()
    await watch.catch_up()
    assert watch.reorganisations == ["told"]
    assert {row.amount_micro for row in await watch.rows(watch.bob) if row.removed} == {60, 7}
    assert (await watch.view(watch.alice)).held_micro == 60
    await watch.assert_equal_to_chain()
    watch.node.mine(*settled(session_id, alice, bob, 60, "c"))
    await watch.catch_up()
    assert (await watch.view(watch.alice)).held_micro == 0
    assert [row.removed for row in await watch.rows(watch.alice) if row.session_id == session_id] == [False]
    await watch.assert_equal_to_chain()


@pytest.mark.parametrize("regrown", [0, 1, 2])
async def test_a_branch_of_any_length_is_noticed(watch: Watch, regrown: int) -> None:
    alice, _ = addresses(watch)
    for number in range(4):
        watch.node.mine(mint(alice, 1, f"a{number}"))
    await watch.catch_up()
    watch.node.fork(2)
    for number in range(1 + regrown):
        watch.node.mine(mint(alice, 10, f"b{number}"), salt="other")
    await watch.catch_up()
    await watch.assert_equal_to_chain()


async def test_a_chain_with_another_beginning_stops_the_watcher(watch: Watch) -> None:
    alice, _ = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"))
    await watch.catch_up()
    before = await watch.ledger.chain_head()
    watch.node.blocks[0].block_hash = "0x" + "99" * 32
    watch.node.fork(1)
    watch.node.mine(mint(alice, 5, "z"))
    with pytest.raises(ChainChangedError):
        await watch.catch_up()
    assert await watch.ledger.chain_head() == before
    assert (await watch.view(watch.alice)).balance_micro == 100


async def test_an_endpoint_that_falls_behind_changes_nothing(watch: Watch) -> None:
    alice, _ = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"))
    watch.node.mine(mint(alice, 100, "b"))
    await watch.catch_up()
    watch.node.shown = 1
    await watch.catch_up()
    assert (await watch.view(watch.alice)).last_sync_block == 2
    assert watch.reorganisations == []


async def test_empty_logs_that_the_header_belies_are_read_from_receipts(watch: Watch) -> None:
    alice, _ = addresses(watch)
    await watch.catch_up()
    block = watch.node.mine(mint(alice, 100, "a"))
    watch.node.lost_logs = {block.block_hash}
    await watch.catch_up()
    await watch.assert_equal_to_chain()


async def test_a_block_whose_logs_and_receipts_are_missing_is_not_passed(watch: Watch) -> None:
    alice, _ = addresses(watch)
    await watch.catch_up()
    block = watch.node.mine(mint(alice, 100, "a"))
    watch.node.lost_logs = {block.block_hash}
    watch.node.lost_receipts = {log["transactionHash"] for log in block.logs}
    with pytest.raises(ChainUnavailableError, match="receipts"):
        await watch.catch_up()
    head = await watch.ledger.chain_head()
    assert head is not None
    assert head.number == 0
    watch.node.lost_receipts = set()
    await watch.catch_up()
    await watch.assert_equal_to_chain()


async def test_a_head_without_its_blocks_is_not_believed(watch: Watch) -> None:
    alice, _ = addresses(watch)
    await watch.catch_up()
    watch.node.mine(mint(alice, 100, "a"))
    watch.node.mine(mint(alice, 100, "b"))
    honest = watch.endpoint.fault

    async def boasting(request: Any, forward: Any) -> Any:
        if request["method"] == "eth_getBlockByNumber" and request["params"][0] == "0x2":
            return {"jsonrpc": "2.0", "id": request["id"], "result": None}
        return await honest(request, forward)

    watch.endpoint.fault = boasting
    await watch.watcher.watch_once()
    head = await watch.ledger.chain_head()
    assert head is not None
    assert head.number == 1
    with pytest.raises(ChainUnavailableError, match="block 2 is missing, and the head is 2"):
        await watch.watcher.watch_once()
    watch.endpoint.fault = honest
    await watch.catch_up()
    await watch.assert_equal_to_chain()


async def test_logs_of_another_block_are_refused(watch: Watch) -> None:
    alice, _ = addresses(watch)
    await watch.catch_up()
    watch.node.mine(mint(alice, 100, "a"))
    block = watch.node.mine(mint(alice, 5, "b"))
    block.logs[0]["blockHash"] = watch.node.blocks[1].block_hash
    with pytest.raises(ChainUnavailableError, match="another block"):
        await watch.catch_up()


async def test_an_outage_is_a_metric_stops_enforced_holds_and_ends_by_itself(watch: Watch) -> None:
    alice, _ = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"), approval(alice, 100, "b"))

    async def holds(predicate: Callable[[], bool]) -> None:
        async def reached() -> bool:
            return predicate()

        await until("the watcher's state", reached)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch.watcher.run)
        await holds(lambda: watch.watcher.seen_at_ms > 0)
        watch.endpoint.is_down = True
        await holds(lambda: watch.watcher.failures >= 2)
        later = clock.now_ms() + 60_001
        assert not await watch.ledger.take_hold(ids.uuid(), alice, 1, FundsPolicy.ENFORCED, now_ms=later)
        watch.endpoint.is_down = False
        watch.node.mine(mint(alice, 1, "c"))
        await holds(lambda: watch.watcher.failures == 0 and watch.watcher.head_number == 2)
        nursery.cancel_scope.cancel()
    await watch.catch_up()
    await watch.assert_equal_to_chain()


async def test_a_slow_sweep_notices_what_no_log_told(watch: Watch) -> None:
    alice, _ = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"), approval(alice, 100, "b"))
    await watch.catch_up()
    # A rebasing token changes a balance without a log.
    watch.node.blocks[1].logs[1]["data"] = "0x" + (7).to_bytes(32, "big").hex()
    old = await watch.view(watch.alice)
    assert old.allowance_micro == 100
    watch.watcher._options = replace(watch.watcher._options, sweep_ms=-10_000, sweep_every_ms=0)
    await watch.watcher.watch_once()
    assert (await watch.view(watch.alice)).allowance_micro == 7


async def test_transfers_of_one_transaction_belong_to_the_session_whose_event_follows(watch: Watch) -> None:
    alice, bob = addresses(watch)
    watch.node.mine(mint(alice, 1_000, "a"), mint(bob, 1_000, "b"))
    await watch.catch_up()
    first, second = ids.uuid(), ids.uuid()
    for session_id, payer in ((first, alice), (second, bob)):
        await watch.ledger.take_hold(session_id, payer, 60, FundsPolicy.ADVISORY, now_ms=clock.now_ms())
    watch.node.mine(
        transfer(alice, bob, 7, "batch"),
        *settled(first, alice, bob, 60, "batch"),
        *settled(second, bob, alice, 40, "batch"),
    )
    await watch.catch_up()
    rows = {row.amount_micro: (row.kind, row.session_id) for row in await watch.rows(watch.bob)}
    assert rows[60] == (LedgerEventKind.SETTLEMENT, first)
    assert rows[40] == (LedgerEventKind.SETTLEMENT, second)
    assert rows[7] == (LedgerEventKind.TRANSFER_IN, None)
    await watch.assert_equal_to_chain()


async def test_limits_that_a_payer_sets_are_read_with_the_block_that_shows_them(watch: Watch) -> None:
    alice, _ = addresses(watch)
    watch.node.mine(mint(alice, 100, "a"), approval(alice, ENDLESS, "b"))
    await watch.catch_up()
    seen: list[int] = []
    watch.watcher.on_readings = lambda readings: seen.extend(each.spendable(clock.now_ms()) for each in readings)
    watch.node.limits[alice] = (30, 50, 1)
    watch.node.spent[alice] = 10
    watch.node.mine(limits_set(alice, "c"))
    await watch.catch_up()
    assert seen == [40]
    now_ms = clock.now_ms()
    assert not await watch.ledger.take_hold(ids.uuid(), alice, 31, FundsPolicy.ENFORCED, now_ms=now_ms)
    assert await watch.ledger.take_hold(ids.uuid(), alice, 30, FundsPolicy.ENFORCED, now_ms=now_ms)
