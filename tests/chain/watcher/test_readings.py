"""How many requests it takes to read wallets, with Multicall3 and without it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog.testing

from sightline.chain.rpc.multicall import MULTICALL3
from sightline.chain.rpc.reader import CALLS_MAX, RpcReader
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import SpendingLimits
from tests.chain.watcher.scripted_node import SETTLEMENT, TOKEN, ScriptedNode, approval, mint, open_scripted, word

WALLETS = [f"0x{number:040x}" for number in range(1, 401)]


@pytest.fixture
def node() -> ScriptedNode:
    node = ScriptedNode()
    node.has_multicall = True
    node.mine(*(mint(wallet, number, f"m{number}") for number, wallet in enumerate(WALLETS)))
    node.mine(approval(WALLETS[7], 70, "a"))
    node.limits[WALLETS[3]] = (10, 100, 1)
    node.spent[WALLETS[3]] = 5
    return node


@pytest.fixture
async def reader(node: ScriptedNode) -> AsyncIterator[RpcReader]:
    async with open_scripted(node) as rpc:
        yield RpcReader(rpc, token=TOKEN, settlement=SETTLEMENT)


async def read(reader: RpcReader, node: ScriptedNode, count: int) -> int:
    """Read the first wallets and check their numbers; returns the number of `eth_call` requests."""
    node.asked.clear()
    wallets, head = WALLETS[:count], node.blocks[-1].block_hash
    numbers = await reader.balances_and_allowances(wallets, head)
    limits = await reader.spending_limits(wallets, head, day=0)
    assert numbers == [(number, 70 * (number == 7)) for number in range(count)]
    assert limits.pop(WALLETS[3]) == SpendingLimits(per_session=10, per_day=100, spent=5, day=0)
    assert set(limits.values()) == {None}
    return node.asked.count("eth_call")


@pytest.mark.parametrize(("has_multicall", "calls"), [(True, 3), (False, 151)])
async def test_fifty_wallets_take_three_calls_where_the_chain_has_multicall3(
    node: ScriptedNode, reader: RpcReader, has_multicall: bool, calls: int
) -> None:
    node.has_multicall = has_multicall
    assert [await read(reader, node, 50) for _ in range(2)] == [calls, calls]


async def test_the_chain_is_asked_once_whether_it_has_multicall3(node: ScriptedNode, reader: RpcReader) -> None:
    await reader.balances_and_allowances(WALLETS[:2], node.blocks[-1].block_hash)
    assert node.asked.count("eth_getCode") == 1
    await read(reader, node, 50)
    assert node.asked.count("eth_getCode") == 0


async def test_many_wallets_are_read_in_several_calls(node: ScriptedNode, reader: RpcReader) -> None:
    assert CALLS_MAX == 300
    assert await read(reader, node, 400) == 3 + 2 + 1


async def test_a_node_that_refuses_the_long_call_is_asked_one_by_one_from_then_on(
    node: ScriptedNode, reader: RpcReader
) -> None:
    node.calls_max = 20
    with structlog.testing.capture_logs() as logs:
        assert await read(reader, node, 50) == 1 + 100 + 50 + 1
        assert await read(reader, node, 50) == 100 + 50 + 1
    assert [entry["event"] for entry in logs] == ["multicall_refused"]


ENDLESS = "0x" + "".join(f"{number:064x}" for number in (32, 1, 32, 1, 64, 2**64 - 1, 0))
"""One result whose output is said to have more bytes than a machine can count."""


@pytest.mark.parametrize("answer", ["0x", "0x" + "ff" * 64, word(32) + f"{0:064x}", ENDLESS])
async def test_an_answer_that_is_none_of_multicall3_is_not_believed(
    node: ScriptedNode, reader: RpcReader, answer: str
) -> None:
    honest = node._eth_call

    def garbled(call: dict[str, Any], pin: dict[str, str]) -> str:
        return answer if call["to"] == MULTICALL3 else honest(call, pin)

    node._eth_call = garbled  # type: ignore[method-assign]  # this node has another contract at the address
    assert await read(reader, node, 50) == 1 + 100 + 50 + 1


async def test_a_block_that_cannot_be_read_says_nothing_about_multicall3(node: ScriptedNode, reader: RpcReader) -> None:
    await read(reader, node, 50)
    node.pruned_below = len(node.blocks)
    with pytest.raises(ChainUnavailableError, match="the state is pruned"):
        await reader.balances_and_allowances(WALLETS[:50], node.blocks[-1].block_hash)
    node.pruned_below = 0
    assert await read(reader, node, 50) == 3


async def test_the_block_before_the_token_has_no_multicall3_either(node: ScriptedNode, reader: RpcReader) -> None:
    node.asked.clear()
    await reader.balances_and_allowances(WALLETS[:50], node.blocks[0].block_hash, may_lack_code=True)
    assert node.asked == ["eth_call"] * 100
