"""Wallets are read through the Multicall3 that public chains have."""

import re

import pytest

from sightline.chain.rpc.client import open_rpc
from sightline.chain.rpc.multicall import MULTICALL3
from sightline.chain.rpc.reader import RpcReader
from tests.chain.endpoint import open_endpoint
from tests.chain.interop.anvil import INSTALLED, PATIENT, Anvil
from tests.chain.world import World, ids

pytestmark = pytest.mark.interop


async def give_multicall(anvil: Anvil) -> None:
    """Put Multicall3 at its address, as viem has it."""
    found = re.search(r"multicall3Bytecode = '(0x[0-9a-f]+)'", (INSTALLED.parent / "viem.js").read_text())
    assert found
    code = await anvil.rpc.call("eth_call", {"data": found[1]}, "latest")
    await anvil.rpc.call("anvil_setCode", MULTICALL3, code)
    await anvil.mine()


async def test_three_hundred_wallets_are_three_calls_and_have_the_numbers_of_single_reads(
    world: World, anvil: Anvil
) -> None:
    wallets = [world.payer.address, *("0x" + ids.token_bytes(20).hex() for _ in range(299))]
    async with open_endpoint(anvil.url) as endpoint, open_rpc(endpoint.url, PATIENT, ids) as rpc:
        single, gathering = (RpcReader(rpc, token=anvil.token, settlement=anvil.settlement) for _ in range(2))
        head = (await rpc.call("eth_getBlockByNumber", "latest", False))["hash"]
        numbers = await single.balances_and_allowances(wallets, head)
        limits = await single.spending_limits(wallets, head, day=0)
        assert endpoint.seen.count("eth_call") == 900
        assert numbers[0][0] > 0
        assert numbers[0][1] > 0
        await give_multicall(anvil)
        endpoint.seen.clear()
        head = (await rpc.call("eth_getBlockByNumber", "latest", False))["hash"]
        assert await gathering.balances_and_allowances(wallets, head) == numbers
        assert await gathering.spending_limits(wallets, head, day=0) == limits
        assert endpoint.seen.count("eth_call") == 3
