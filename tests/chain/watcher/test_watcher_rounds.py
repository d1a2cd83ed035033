"""Single rounds of the watcher against a node in the test process: steps, intervals, sweeps, on a virtual clock."""

import dataclasses
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import LedgerQuery
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.desk import FixedIds, TrioClock
from tests.chain.watcher.scripted_node import RELAYER, SETTLEMENT, TOKEN, ScriptedNode, approval, mint, open_scripted

ALICE, BOB, CAROL = "0x" + "a1" * 20, "0x" + "b2" * 20, "0x" + "c3" * 20


@dataclass
class Post:
    """A watcher with a ledger in memory; the test runs single steps or the loop."""

    node: ScriptedNode
    rpc: JsonRpc
    ledger: MemoryLedger

    def watcher(self, *, jitter: int = 255, **options: Any) -> Watcher:
        reader = RpcReader(self.rpc, token=TOKEN, settlement=SETTLEMENT)
        return Watcher(
            self.rpc, reader, self.ledger, self.node.identity, WatcherOptions(**options), relayer=RELAYER,
            clock=TrioClock(), ids=FixedIds(jitter),  # type: ignore[arg-type]  # of Ids the watcher needs random bytes
        )  # fmt: skip

    async def track(self, *wallets: str) -> None:
        for number, wallet in enumerate(wallets):
            await self.ledger.track(f"{number:08d}-3333-4333-8333-333333333333", wallet, now_ms=0)

    async def read_at_ms(self, *wallets: str) -> list[int]:
        """When each wallet was read last."""
        views = [
            await self.ledger.wallet(f"{number:08d}-3333-4333-8333-333333333333") for number in range(len(wallets))
        ]
        return [view.updated_at_ms for view in views if view is not None]

    async def head(self) -> int:
        head = await self.ledger.chain_head()
        assert head is not None
        return head.number


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    node = ScriptedNode()
    async with open_scripted(node) as rpc:
        yield Post(node, rpc, MemoryLedger(TrioClock().now_ms))


async def catch_up(watcher: Watcher) -> None:
    while await watcher.watch_once():
        pass


async def instants(watcher: Watcher, name: str, seconds: float) -> list[int]:
    """Run the watcher; returns when one of its numbers changed, in ms."""
    found, before = list[int](), getattr(watcher, name)
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        with trio.move_on_after(seconds):
            while True:
                await trio.sleep(0.0005)
                if (value := getattr(watcher, name)) != before:
                    found.append(round(trio.current_time() * 1_000 - 0.25))
                    before = value
        nursery.cancel_scope.cancel()
    return found


async def test_blocks_are_applied_in_transactions_of_a_bounded_size(post: Post, autojump_clock: Any) -> None:
    watcher = post.watcher(blocks_max=3)
    await catch_up(watcher)
    for _ in range(7):
        post.node.mine()
    steps = []
    for _ in range(3):
        assert await watcher.watch_once()
        steps.append((await post.head(), watcher.lag_blocks, watcher.head_number))
    assert steps == [(3, 7, 7), (6, 4, 7), (7, 1, 7)]
    assert not await watcher.watch_once()
    assert watcher.lag_blocks == 0
    post.node.shown = 5
    assert not await watcher.watch_once()
    assert (watcher.lag_blocks, watcher.head_number) == (0, 5)


@pytest.mark.parametrize(("blocks", "first"), [(127, 0), (128, 1), (200, 73), (201, 74)])
async def test_the_start_keeps_the_last_headers_for_a_reorganisation(
    post: Post, autojump_clock: Any, blocks: int, first: int
) -> None:
    for _ in range(blocks):
        post.node.mine()
    watcher = post.watcher()
    assert await watcher.watch_once()
    assert [header.number for header in await post.ledger.recent_headers()] == list(range(blocks, first - 1, -1))


async def test_a_row_is_confirmed_at_the_configured_depth(post: Post, autojump_clock: Any) -> None:
    await post.track(ALICE)
    watcher = post.watcher(depth=2)
    await catch_up(watcher)
    post.node.mine(mint(ALICE, 100, "a"))
    confirmed = []
    for _ in range(3):
        await catch_up(watcher)
        (row,) = await post.ledger.ledger("00000000-3333-4333-8333-333333333333", LedgerQuery(limit=9))
        confirmed.append(row.confirmed_at_ms is not None)
        post.node.mine()
    assert confirmed == [False, False, True]


async def test_new_wallets_are_read_in_groups(post: Post, autojump_clock: Any) -> None:
    post.node.mine(mint(ALICE, 1, "a"), mint(BOB, 2, "b"), mint(CAROL, 3, "c"))
    await post.track(ALICE, BOB, CAROL)
    watcher, groups = post.watcher(read_max=2), list[int]()
    watcher.on_readings = lambda readings: groups.append(len(readings))
    await catch_up(watcher)
    assert groups == [2, 1]


async def test_the_chain_is_looked_at_once_in_each_interval(post: Post, autojump_clock: Any) -> None:
    found = await instants(post.watcher(poll_ms=200), "seen_at_ms", 1.1)
    assert found == [200, 400, 600, 800, 1_000]


async def test_a_chain_that_stands_still_for_five_seconds_is_looked_at_once_a_second_until_a_block_comes(
    post: Post, autojump_clock: Any
) -> None:
    watcher, seen = post.watcher(poll_ms=200, idle_ms=1_000), list[int]()
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        for step in range(1, 900):
            await trio.sleep_until(step / 100)
            if watcher.seen_at_ms not in seen:
                seen.append(watcher.seen_at_ms)
            if step == 750:
                post.node.mine()
        nursery.cancel_scope.cancel()
    steps = [later - earlier for earlier, later in itertools.pairwise(seen)]
    assert steps[:24] == [200] * 24
    assert [at for at in seen if 5_000 <= at <= 8_000] == [5_000, 6_000, 7_000, 8_000]
    assert [at for at in seen if at > 8_000] == [8_200, 8_400, 8_600, 8_800]


async def test_old_readings_do_not_make_a_chain_that_stands_still_be_looked_at_more_often(
    post: Post, autojump_clock: Any
) -> None:
    await post.track(ALICE)
    watcher, seen = post.watcher(poll_ms=200, idle_ms=1_000, sweep_ms=1_000, sweep_every_ms=3_000), set[int]()
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        for step in range(1_200):
            await trio.sleep_until(step / 100)
            seen.add(watcher.seen_at_ms)
        nursery.cancel_scope.cancel()
    assert sorted(at for at in seen if at > 5_000) == [6_000, 7_000, 8_000, 9_000, 10_000, 11_000]
    assert await post.read_at_ms(ALICE) == [9_000]


async def test_an_endpoint_that_fails_is_asked_less_and_less_often(post: Post, autojump_clock: Any) -> None:
    post.node.is_down = True
    watcher = post.watcher(poll_ms=200)
    assert await instants(watcher, "failures", 5) == [0, 599, 1_598, 3_397]
    post.node.is_down = False
    await instants(watcher, "failures", 20)
    assert watcher.failures == 0


async def test_the_shortest_wait_after_a_failure_is_that_between_rounds(post: Post, autojump_clock: Any) -> None:
    post.node.is_down = True
    assert await instants(post.watcher(poll_ms=50, jitter=0), "failures", 0.18) == [0, 50, 100, 150]
    assert await instants(post.watcher(poll_ms=50), "failures", 0.9) == [180, 429, 878]


async def test_the_ledger_is_told_every_five_seconds_that_the_head_is_the_same(post: Post, autojump_clock: Any) -> None:
    watcher, told = post.watcher(poll_ms=300, idle_ms=300), set[int]()
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        for _ in range(45):
            await trio.sleep(0.25)
            told.add(post.ledger._checked_at_ms)
        nursery.cancel_scope.cancel()
    assert told == {0, 5_100, 10_200}


async def test_old_readings_are_refreshed_a_few_at_a_time(post: Post, autojump_clock: Any) -> None:
    post.node.mine(mint(ALICE, 1, "a"), approval(ALICE, 5, "b"))
    await post.track(ALICE, BOB)
    watcher = post.watcher(sweep_ms=10_000, sweep_every_ms=3_000, sweep_max=1)
    await catch_up(watcher)
    seen = []
    for at_s in (3, 6, 9, 10.001, 12, 14.999, 15, 18):
        await trio.sleep_until(at_s)
        await catch_up(watcher)
        seen.append(sorted(await post.read_at_ms(ALICE, BOB)))
    assert seen == [[0, 0]] * 4 + [[0, 12_000]] * 2 + [[12_000, 15_000]] * 2


async def test_a_wake_starts_the_next_round_at_once(post: Post, autojump_clock: Any) -> None:
    watcher = post.watcher(poll_ms=60_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(watcher.run)
        await trio.sleep(1)
        post.node.mine()
        watcher.wake()
        await trio.sleep(0.1)
        assert await post.head() == 1
        nursery.cancel_scope.cancel()


async def test_an_endpoint_without_a_head_is_an_outage(post: Post, autojump_clock: Any) -> None:
    post.node._eth_getBlockByNumber = lambda _tag, _full: None  # type: ignore[method-assign]  # a node without blocks
    with pytest.raises(ChainUnavailableError, match="no latest block"):
        await post.watcher().watch_once()


@pytest.mark.parametrize(("at_s", "day"), [(86_399.9, 0), (86_400, 1), (3 * 86_400 + 50_000, 3)])
async def test_what_a_wallet_has_spent_is_read_for_the_utc_day_of_the_clock(
    post: Post, autojump_clock: Any, at_s: float, day: int
) -> None:
    await trio.sleep_until(at_s)
    post.node.limits[ALICE] = (10, 100, 1)
    await post.track(ALICE)
    await catch_up(post.watcher())
    assert post.node.days == {day}


async def test_a_block_that_the_endpoint_does_not_have_yet_is_named(post: Post, autojump_clock: Any) -> None:
    post.node.mine()
    watcher = post.watcher()
    await catch_up(watcher)
    for _ in range(3):
        post.node.mine()
    answer = post.node._eth_getBlockByNumber
    post.node._eth_getBlockByNumber = lambda tag, full: answer(tag, full) if tag == "latest" else None  # type: ignore[method-assign]  # a node behind a balancer
    with pytest.raises(ChainUnavailableError, match="block 2 is missing, and the head is 4"):
        await watcher.watch_once()


@pytest.mark.parametrize("is_same_chain", [True, False])
async def test_an_endpoint_far_behind_must_still_serve_the_same_chain(
    post: Post, autojump_clock: Any, is_same_chain: bool
) -> None:
    for _ in range(200):
        post.node.mine()
    watcher = post.watcher()
    await catch_up(watcher)
    post.node.shown = 10
    if is_same_chain:
        assert not await watcher.watch_once()
        return
    post.node.blocks[0].block_hash = "0x" + "99" * 32
    with pytest.raises(ChainChangedError):
        await watcher.watch_once()


async def test_another_chain_halts_the_watcher_until_the_endpoint_serves_the_right_one(
    post: Post, autojump_clock: Any
) -> None:
    post.node.mine()
    watcher = post.watcher(poll_ms=200)
    await catch_up(watcher)
    right = post.node.blocks
    post.node.blocks = [
        dataclasses.replace(right[0], block_hash="0x" + "99" * 32),
        dataclasses.replace(right[1], block_hash="0x" + "98" * 32),
    ]
    assert await instants(watcher, "failures", 0.1) == [0]
    assert (watcher.failures, watcher.halted_because is not None) == (1, True)
    post.node.blocks = right
    await instants(watcher, "failures", 20)
    assert (watcher.failures, watcher.halted_because) == (0, None)


async def test_a_watcher_that_has_not_run_has_seen_nothing(post: Post, autojump_clock: Any) -> None:
    watcher = post.watcher()
    assert (watcher.failures, watcher.seen_at_ms, watcher.head_number, watcher.lag_blocks) == (0, 0, 0, 0)
    assert watcher.halted_because is None


async def test_a_wallet_that_was_read_before_a_reorganisation_keeps_its_history(
    post: Post, autojump_clock: Any
) -> None:
    for _ in range(140):
        post.node.mine()
    await post.track(ALICE)
    watcher = post.watcher()
    await catch_up(watcher)
    post.node.mine(mint(ALICE, 5, "a"))
    await catch_up(watcher)
    asked = len(post.node.queries)
    assert asked > 0
    post.node.fork(1)
    post.node.mine(salt="other")
    await catch_up(watcher)
    view = await post.ledger.wallet("00000000-3333-4333-8333-333333333333")
    assert view is not None
    assert (view.balance_micro, view.last_sync_block) == (0, 141)
    assert len(post.node.queries) == asked
