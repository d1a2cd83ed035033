"""Film and settle a session, and put older copies of its chain or its database in place."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from sightline_client import AsyncChain, AsyncReceipt, ReceiptError, TrustedDeployment
from tests.client.api import Api
from tests.e2e.server import Server, until
from tests.nemesis.test_clock_steps import Pair, a_pair

FUNDS = 10_000_000


async def film_until(pair: Pair, seconds: int) -> None:
    """Send heartbeats and video until the session has this many clean seconds."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.beat)
        nursery.start_soon(pair.film)
        await until(pair.clean_seconds, lambda seen: seen >= seconds, f"{seconds} clean seconds")
        nursery.cancel_scope.cancel()


async def end_and_settle(pair: Pair) -> tuple[str, str]:
    """End the session unless it has ended by itself; wait until it is settled. Returns the two amounts of the chain."""
    async with pair.watcher() as watcher:
        if (await watcher.get(f"/sessions/{pair.session_id}"))["state"] == "LIVE":
            await watcher.post(f"/sessions/{pair.session_id}/end")
        path = f"/settlements/{pair.session_id}"
        settled = await until(lambda: watcher.get(path), lambda seen: seen["state"] == "CONFIRMED", "settled")
    return settled["payload"]["toAmount"], settled["payload"]["feeAmount"]


async def consumer_has(pair: Pair, expected: int) -> None:
    """Check the consumer's balance on the chain, and wait until the API shows it."""
    async with Api(pair.server.url) as api:
        config = await api.get("/config")
    chain = AsyncChain(config["rpcUrl"])
    address = pair.consumer.wallet.address
    assert await until(
        lambda: chain.balance_of(config["usdcAddress"], address), lambda seen: seen == expected, "balance on the chain"
    )
    async with pair.watcher() as watcher:
        await until(
            lambda: watcher.get("/wallet"), lambda seen: seen["trackedBalance"] == str(expected), "balance in the API"
        )


@contextmanager
def backup_of(part: Path) -> Iterator[Path]:
    """Copy a part of the data directory of a server that does not run."""
    copy = part.with_name(f"{part.name}-backup")
    subprocess.run(["cp", "-a", str(part), str(copy)], check=True)
    yield copy


def restore(part: Path, backup: Path) -> None:
    subprocess.run(["rm", "-rf", str(part)], check=True)
    backup.rename(part)


async def accept_database(server: Server) -> "subprocess.CompletedProcess[bytes]":
    """Say, as the person who restored it, that an older database is meant."""
    command = [sys.executable, "-m", "sightline.cli", "reconcile", "--accept-database", "--yes"]
    return await trio.run_process(
        [*command, "--data-dir", str(server.directory / "data")], capture_stdout=True, capture_stderr=True,
        env=os.environ | server.env,
    )  # fmt: skip


async def settled_otherwise(server: Server) -> Pair:
    """End a session with more seconds, restore the database from before, and end it there with fewer."""
    await server.start()
    pair = await a_pair(server)
    await pair.go_live()
    await film_until(pair, 1)
    await server.stop()
    postgres = server.directory / "data" / "postgres"
    with backup_of(postgres) as backup:
        await server.start()
        await film_until(pair, await pair.clean_seconds() + 3)
        settled = await end_and_settle(pair)
        charged = sum(map(int, settled))
        await consumer_has(pair, FUNDS - charged)
        await server.stop()
        restore(postgres, backup)
    await accept_database(server)
    await server.start()
    assert await end_and_settle(pair) == settled
    await consumer_has(pair, FUNDS - charged)
    return pair


async def receipt_says_only_that_it_is_mismatched(pair: Pair) -> None:
    """The payload has the contract's seconds and amounts, which the chain confirms; the session has its own."""
    async with pair.watcher() as watcher:
        data, config = await watcher.get(f"/sessions/{pair.session_id}/receipt"), await watcher.get("/config")
    paid, recorded = data["settlement"]["payload"], data["session"]
    total = int(paid["toAmount"]) + int(paid["feeAmount"])
    assert total == paid["chargeableSeconds"] * int(paid["ratePerSecond"]) != int(recorded["chargedMicroUsdc"])
    deployment = TrustedDeployment(config["chainId"], config["settlementAddress"], config["usdcAddress"])
    with pytest.raises(ReceiptError) as refused:
        await AsyncReceipt(data).verify(deployment=deployment, rpc=config["rpcUrl"])
    assert [failure.line for failure in refused.value.failures] == ["settlement.mismatched"]
