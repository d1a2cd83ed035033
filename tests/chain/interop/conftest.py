"""Fixtures with a chain on anvil."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from simulation.memory.ledger import MemoryLedger
from tests.chain.endpoint import open_endpoint
from tests.chain.interop.anvil import Anvil, open_anvil
from tests.chain.world import World


@pytest.fixture
async def anvil() -> AsyncIterator[Anvil]:
    async with open_anvil() as anvil:
        yield anvil


@asynccontextmanager
async def a_world_on(anvil: Anvil) -> AsyncIterator[World]:
    async with open_endpoint(anvil.url) as endpoint:
        yield World(
            chain_dir=Path("/nonexistent"), node_url=anvil.url, rpc=anvil.rpc, ledger=MemoryLedger(), token=anvil.token,
            settlement=anvil.settlement, relayer_key=bytes.fromhex(anvil.relayer_key[2:]),
            treasury_key=anvil.treasury_key, endpoint=endpoint,
        )  # fmt: skip


@pytest.fixture
async def world(anvil: Anvil) -> AsyncIterator[World]:
    """A funded payer on anvil with automine off."""
    async with a_world_on(anvil) as world:
        async with mining(anvil):
            await world.ready_parties()
        await anvil.mine(2)
        yield world


@asynccontextmanager
async def mining(anvil: Anvil) -> AsyncIterator[None]:
    """Mine blocks at an interval inside the block."""

    async def mine_on() -> None:
        while True:
            await anvil.mine()
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mine_on)
        yield
        nursery.cancel_scope.cancel()
