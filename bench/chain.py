"""Benchmarks settlement: settlements per second, time from a session's end to CONFIRMED, and the watcher's lag.

    python -m bench.chain [--sessions 300]

Runs on the embedded chain, and also on anvil (automine) if it is installed in .interop. The ledger is in memory, so
the figures are those of the chain code; with Postgres each round takes a few milliseconds more.
"""

import argparse
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import trio

from sightline.chain.embedded.node import EmbeddedOptions, open_embedded_node
from sightline.chain.rpc.client import RpcOptions, open_rpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.ports.ledger import LedgerQuery
from simulation.memory.ledger import MemoryLedger
from tests.chain.endpoint import open_endpoint
from tests.chain.interop.anvil import INSTALLED, open_anvil
from tests.chain.watcher.scripted_node import RELAYER, SETTLEMENT, TOKEN, ScriptedNode, mint
from tests.chain.world import Wallet, World, clock, ids, open_world, running

EVENTS_PER_BLOCK = 100


@asynccontextmanager
async def embedded_world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory() as directory:
        chain_dir = Path(directory) / "chain"
        async with open_embedded_node(EmbeddedOptions(data_dir=chain_dir)), open_world(chain_dir) as world:
            yield world


@asynccontextmanager
async def anvil_world() -> AsyncIterator[World]:
    async with open_anvil() as anvil, open_endpoint(anvil.url) as endpoint:
        await anvil.rpc.call("evm_setAutomine", True)
        yield World(
            chain_dir=Path("/nonexistent"), node_url=anvil.url, rpc=anvil.rpc, ledger=MemoryLedger(), token=anvil.token,
            settlement=anvil.settlement, relayer_key=bytes.fromhex(anvil.relayer_key[2:]),
            treasury_key=anvil.treasury_key, endpoint=endpoint,
        )  # fmt: skip


async def measure_settlements(name: str, world: World, sessions: int) -> None:
    await world.ready_parties(micro=10**12)
    # Connect directly to the node, without the test endpoint.
    async with running(world, rpc_url=world.node_url) as service:
        singles = []
        for _ in range(20):
            began = trio.current_time()
            session_id = await world.end_session()
            service.notify()
            while not any(update.session_id == session_id for update in world.updates):  # noqa: ASYNC110
                await trio.sleep(0.001)
            singles.append((trio.current_time() - began) * 1_000)
        waiting = [await world.end_session() for _ in range(sessions)]
        began = trio.current_time()
        service.notify()
        await world.until_told(*waiting, patience_s=600)
        took_s = trio.current_time() - began
        await world.assert_books_balance()
    singles.sort()
    print(
        f"{name}: end to CONFIRMED median {statistics.median(singles):.0f} ms, worst of 20 {singles[-1]:.0f} ms; "
        f"{sessions} at once: {sessions / took_s:.0f} settlements/s"
    )


async def measure_watcher(blocks: int) -> None:
    node, ledger, wallets = ScriptedNode(), MemoryLedger(), [Wallet() for _ in range(EVENTS_PER_BLOCK)]
    async with open_endpoint("http://127.0.0.1:1") as endpoint, open_rpc(endpoint.url, RpcOptions(), ids) as rpc:
        endpoint.fault = node.answer
        reader = RpcReader(rpc, token=TOKEN, settlement=SETTLEMENT)
        watcher = Watcher(rpc, reader, ledger, node.identity, WatcherOptions(), relayer=RELAYER, clock=clock, ids=ids)
        addresses = [wallet.address.lower() for wallet in wallets]
        for wallet, address in zip(wallets, addresses, strict=True):
            await ledger.track(wallet.workspace_id, address, now_ms=0)
        while await watcher.watch_once():
            pass
        lags = []
        for number in range(blocks):
            node.mine(*[mint(address, 1, f"{number} {address}") for address in addresses])
            began = trio.current_time()
            while await watcher.watch_once():
                pass
            lags.append((trio.current_time() - began) * 1_000)
        seen = sum([len(await ledger.ledger(wallet.workspace_id, LedgerQuery(limit=10_000))) for wallet in wallets])
        assert seen == blocks * EVENTS_PER_BLOCK
    print(
        f"watcher: {EVENTS_PER_BLOCK} events per block, {blocks} blocks: a block is in the ledger after "
        f"{statistics.median(lags):.0f} ms (median), {max(lags):.0f} ms (worst), the scripted node's own time included"
    )


async def main(sessions: int) -> None:
    async with embedded_world() as world:
        await measure_settlements("embedded", world, sessions)
    if INSTALLED.exists():
        async with anvil_world() as world:
            await measure_settlements("anvil", world, sessions)
    await measure_watcher(20)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=300)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    trio.run(main, parser.parse_args().sessions)
