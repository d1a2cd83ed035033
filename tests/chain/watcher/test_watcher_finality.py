"""Finality: how far back the watcher keeps headers, and when the journal is written."""

from typing import Any

import pytest

from sightline.chain.profile import profile_of
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import HEADERS_MAX, LedgerQuery
from tests.chain.watcher.scripted_node import mint, settled
from tests.chain.watcher.test_watcher_rounds import ALICE, BOB, Post, catch_up, post

__all__ = ["post"]  # the fixture

SESSION = "2f1d6a3c-8b6e-4c0a-9f59-0d5d6a0f7a11"
FINALIZED = "finalized"


async def mined(post: Post, count: int, salt: str = "") -> None:
    for _ in range(count):
        post.node.mine(salt=salt)


async def kinds(post: Post) -> list[str]:
    return [stored.entry.kind.value for stored in await post.ledger.journal.entries(limit=99)]


@pytest.mark.parametrize("depth", [150, 300, 700])
async def test_a_reorganisation_far_below_the_depth_is_seen_up_to_the_final_block(
    post: Post, autojump_clock: Any, depth: int
) -> None:
    await post.track(ALICE)
    post.node.final = 0
    watcher = post.watcher(depth=5, finality_tag=FINALIZED)
    await catch_up(watcher)
    post.node.mine(mint(ALICE, 100, "a"))
    await mined(post, depth + 10)
    await catch_up(watcher)
    post.node.fork(depth)
    post.node.mine(mint(ALICE, 50, "b"), salt="other")
    await mined(post, depth + 5, salt="other")
    await catch_up(watcher)
    rows = await post.ledger.ledger("00000000-3333-4333-8333-333333333333", LedgerQuery(limit=9))
    assert [(row.amount_micro, row.removed) for row in rows] == [(50, False), (100, False)]
    assert watcher.halted_because is None
    view = await post.ledger.wallet("00000000-3333-4333-8333-333333333333")
    assert view is not None
    assert view.balance_micro == 150


async def test_a_reorganisation_of_more_than_the_kept_headers_halts_the_watcher(
    post: Post, autojump_clock: Any
) -> None:
    post.node.final = 0
    watcher = post.watcher(finality_tag=FINALIZED)
    await catch_up(watcher)
    await mined(post, HEADERS_MAX + 10)
    await catch_up(watcher)
    post.node.fork(HEADERS_MAX + 5)
    await mined(post, HEADERS_MAX + 10, salt="other")
    with pytest.raises(ChainChangedError, match="no block of the last 1000"):
        await catch_up(watcher)


@pytest.mark.parametrize(("final", "first"), [(1_050, 973), (500, 500), (101, 101), (20, 101), (None, 973)])
async def test_the_start_keeps_the_headers_back_to_the_final_block(
    post: Post, autojump_clock: Any, final: int | None, first: int
) -> None:
    await mined(post, 1_100)
    post.node.final = final
    await catch_up(post.watcher(finality_tag=FINALIZED))
    assert [header.number for header in await post.ledger.recent_headers()] == list(range(1_100, first - 1, -1))


async def test_the_journal_is_written_when_the_chain_calls_a_block_final(post: Post, autojump_clock: Any) -> None:
    await post.track(BOB)
    post.node.final = 0
    watcher = post.watcher(depth=2, finality_tag=FINALIZED)
    await catch_up(watcher)
    post.node.mine(*settled(SESSION, ALICE, BOB, 100, "s"))
    await mined(post, 20)
    await catch_up(watcher)
    (row,) = await post.ledger.ledger("00000000-3333-4333-8333-333333333333", LedgerQuery(limit=9))
    assert row.confirmed_at_ms is not None, "confirmed at the depth"
    assert await kinds(post) == []
    post.node.final = 1
    await mined(post, 1)
    await catch_up(watcher)
    assert await kinds(post) == ["SETTLED"]


async def test_no_block_above_the_depth_is_final_whatever_the_endpoint_says(post: Post, autojump_clock: Any) -> None:
    watcher = post.watcher(depth=2, finality_tag=FINALIZED)
    post.node.final = 0
    await catch_up(watcher)
    post.node.mine(*settled(SESSION, ALICE, BOB, 100, "s"))
    await mined(post, 1)
    post.node.final = 2
    await catch_up(watcher)
    assert await kinds(post) == []
    await mined(post, 1)
    await catch_up(watcher)
    assert await kinds(post) == ["SETTLED"]


@pytest.mark.parametrize("tag", [FINALIZED, None])
async def test_without_a_final_block_the_depth_decides(post: Post, autojump_clock: Any, tag: str | None) -> None:
    watcher = post.watcher(depth=2, finality_tag=tag)
    await catch_up(watcher)
    post.node.mine(*settled(SESSION, ALICE, BOB, 100, "s"))
    await mined(post, 2)
    await catch_up(watcher)
    assert await kinds(post) == ["SETTLED"]


@pytest.mark.parametrize(("chain_id", "tag"), [(84_532, FINALIZED), (11_155_420, FINALIZED), (11_155_111, FINALIZED)])
def test_the_known_test_networks_say_which_block_is_final(chain_id: int, tag: str) -> None:
    assert profile_of(chain_id).finality_tag == tag
    assert profile_of(31_337).finality_tag is None
