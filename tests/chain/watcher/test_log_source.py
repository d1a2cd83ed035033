"""Which queries read the history of new wallets, and when their answers are believed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.events import Watched
from sightline.chain.watcher.logs import NEAR_BLOCKS, WALLETS_PER_QUERY, LogSource
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import BlockRef
from tests.chain.watcher.scripted_node import SETTLEMENT, TOKEN, ScriptedNode, mint, open_scripted, transfer

ALICE, BOB = "0x" + "a1" * 20, "0x" + "b2" * 20


@pytest.fixture
def node() -> ScriptedNode:
    return ScriptedNode()


@pytest.fixture
async def rpc(node: ScriptedNode) -> AsyncIterator[JsonRpc]:
    async with open_scripted(node) as client:
        yield client


def source(rpc: JsonRpc, *, start_block: int = 0, span_max: int = 2_000) -> LogSource:
    reader = RpcReader(rpc, token=TOKEN, settlement=SETTLEMENT)
    return LogSource(rpc, reader, start_block=start_block, span_max=span_max)


def watched(*wallets: str) -> Watched:
    return Watched(token=TOKEN, settlement=SETTLEMENT, wallets=frozenset(wallets or (ALICE, BOB)))


def head_of(node: ScriptedNode) -> BlockRef:
    last = node.blocks[-1]
    return BlockRef(number=last.number, block_hash=last.block_hash, parent_hash=last.parent_hash)


def mined(node: ScriptedNode, count: int) -> None:
    """Mine blocks, each with one transfer."""
    node.mine(mint(ALICE, 10_000, "mint"))
    for number in range(2, count + 1):
        node.mine(transfer(ALICE, BOB, 1, f"t{number}"))


def spans(node: ScriptedNode) -> list[tuple[int, int]]:
    found = [(int(query["fromBlock"], 16), int(query["toBlock"], 16)) for query in node.queries]
    return sorted(set(found))


async def test_the_limits_of_queries() -> None:
    assert (NEAR_BLOCKS, WALLETS_PER_QUERY) == (128, 200)


@pytest.mark.parametrize(
    ("start", "head", "expected"), [(3, 130, []), (3, 131, [(3, 3)]), (0, 127, []), (0, 128, [(0, 0)])]
)
async def test_the_last_blocks_are_read_by_header_and_only_older_ones_by_range(
    node: ScriptedNode, rpc: JsonRpc, start: int, head: int, expected: list[tuple[int, int]]
) -> None:
    mined(node, head)
    logs = await source(rpc, start_block=start).history(watched(), head_of(node))
    assert spans(node) == expected
    assert sorted({log.block_number for log in logs}) == list(range(max(start, 1), head + 1))


async def test_older_blocks_are_read_in_spans_that_meet_and_do_not_overlap(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 160)
    logs = await source(rpc, span_max=10).history(watched(), head_of(node))
    assert spans(node) == [(0, 9), (10, 19), (20, 29), (30, 32)]
    assert len(logs) == 160
    assert len({(log.block_hash, log.log_index) for log in logs}) == 160


async def test_a_refused_span_is_halved_until_it_is_taken(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 140)
    node.span_max = 3
    logs = await source(rpc, span_max=10).history(watched(), head_of(node))
    assert spans(node) == [(0, 1), (0, 4), (0, 9), *((first, first + 1) for first in range(2, 12, 2)), (12, 12)]
    assert len(logs) == 140


async def test_an_endpoint_that_refuses_single_blocks_is_not_asked_for_ever(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 140)
    node.span_max = 0
    with pytest.raises(ChainUnavailableError, match="too large"):
        await source(rpc, span_max=4).history(watched(), head_of(node))
    assert spans(node) == [(0, 0), (0, 1), (0, 3)]


@pytest.mark.parametrize(
    ("first", "last", "span_max", "taken", "through"),
    [(10, 100, 10, 99, 19), (11, 100, 10, 99, 20), (10, 19, 10, 99, 19), (10, 15, 10, 99, 15), (10, 100, 10, 3, 11)],
)
async def test_the_logs_of_the_contract_are_read_for_as_many_blocks_as_the_endpoint_takes(
    node: ScriptedNode, rpc: JsonRpc, first: int, last: int, span_max: int, taken: int, through: int
) -> None:
    for number in range(1, 101):
        node.mine(transfer(ALICE, SETTLEMENT, 1, f"t{number}"))
    node.span_max = taken
    read_through, logs = await source(rpc, span_max=span_max).contract_logs(watched(), first, last)
    assert (read_through, spans(node)[0]) == (through, (first, through))
    assert sorted(log.block_number for log in logs) == list(range(first, through + 1))


async def test_many_wallets_are_asked_for_in_groups(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 129)
    wallets = [ALICE, BOB, *(f"0x{number:040x}" for number in range(1, WALLETS_PER_QUERY))]
    await source(rpc).history(watched(*wallets), head_of(node))
    sizes: dict[tuple[str, int], list[int]] = {}
    for query in node.queries:
        group = next(place for place, topic in enumerate(query["topics"]) if isinstance(topic, list))
        sizes.setdefault((query["topics"][0], group), []).append(len(query["topics"][group]))
    assert len(sizes) == 5
    assert set(map(tuple, sizes.values())) == {(WALLETS_PER_QUERY, 1)}


async def test_old_logs_must_add_up_to_the_balance_of_every_wallet(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 140)
    node.lost_logs = {node.blocks[5].block_hash}
    with pytest.raises(ChainUnavailableError, match="do not sum up"):
        await source(rpc).history(watched(), head_of(node))
    assert len(await source(rpc, start_block=6).history(watched(), head_of(node))) == 135


async def test_the_history_of_a_token_that_is_younger_than_the_older_blocks_is_read(
    node: ScriptedNode, rpc: JsonRpc
) -> None:
    for _ in range(100):
        node.mine()
    node.deployed_at = node.blocks[-1].number + 1
    mined(node, 100)
    logs = await source(rpc).history(watched(), head_of(node))
    assert len(logs) == 100


async def test_old_logs_of_a_node_without_old_states_are_believed(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 140)
    node.lost_logs = {node.blocks[5].block_hash}
    node.pruned_below = 100
    assert len(await source(rpc).history(watched(), head_of(node))) == 139


async def test_old_logs_are_not_believed_when_the_balance_cannot_be_asked(node: ScriptedNode, rpc: JsonRpc) -> None:
    mined(node, 140)
    honest = node._eth_call

    def garbled(call: dict[str, Any], pin: dict[str, str]) -> str:
        honest(call, pin)
        return "not a number"

    node._eth_call = garbled  # type: ignore[method-assign]  # this node answers nonsense
    with pytest.raises(ChainUnavailableError, match="not hex"):
        await source(rpc).history(watched(), head_of(node))


@pytest.mark.parametrize("fault", ["a missing block", "a broken link", "another last block"])
async def test_blocks_must_be_all_there_and_link_to_each_other(node: ScriptedNode, rpc: JsonRpc, fault: str) -> None:
    mined(node, 5)
    last = head_of(node)
    assert [int(block["number"], 16) for block in await source(rpc).blocks(2, last)] == [2, 3, 4, 5]
    assert len(await source(rpc).blocks(5, last)) == 1
    if fault == "a missing block":
        node.shown = 4
    elif fault == "a broken link":
        node.blocks[3].parent_hash = "0x" + "99" * 32
    else:
        node.blocks[5].block_hash = "0x" + "99" * 32
    with pytest.raises(ChainUnavailableError, match="do not link"):
        await source(rpc).blocks(2, last)


@pytest.mark.parametrize("block_hash", ["0x" + "00" * 32, "0x" + "ff" * 32])
async def test_receipts_of_another_block_are_refused(node: ScriptedNode, rpc: JsonRpc, block_hash: str) -> None:
    mined(node, 2)
    node.lost_logs = {node.blocks[2].block_hash}
    node.receipts_from = block_hash
    with pytest.raises(ChainUnavailableError, match="receipts of block"):
        await source(rpc).history(watched(), head_of(node))
