"""The restore drill of docs/ops/backup.md: an older database is restored beside an external chain that has moved on."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from sightline.chain.contracts.abi import SETTLED_TOPIC
from sightline.system.keccak import session_id_hash
from sightline.system.server_address_file import read_server_addresses
from sightline_client import ApiError, AsyncChain
from sightline_client.wallet import LocalWallet
from tests.chain.interop.anvil import CHAIN_ID, Anvil, open_anvil
from tests.chain.interop.conftest import a_world_on, mining
from tests.chain.world import Wallet
from tests.e2e.server import PLACE, Server, a_tenant, go_online, start_line, until
from tests.nemesis.parts import ExternalPostgres, on_database
from tests.nemesis.restored_money import end_and_settle, film_until
from tests.nemesis.test_clock_steps import Pair

pytestmark = pytest.mark.interop

FUNDS = 50_000_000
MOVED_ON = 15
"""Settlements on the chain after the backup."""
STUDIO = (PLACE[0] + 1.0, PLACE[1] + 1.0)


@dataclass
class Service:
    """A server on an external database and an external chain."""

    server: Server
    postgres: ExternalPostgres
    anvil: Anvil

    @property
    def dsn(self) -> str:
        return self.postgres.layout.dsn.replace("/postgres?", "/sightline?")

    async def type(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a `sightline` command on the service's data directory, and print it as an operator sees it."""
        command = [*arguments, "--data-dir", str(self.server.directory / "data")]
        done = await trio.run_process(
            [sys.executable, "-m", "sightline.cli", *command], check=False, capture_stdout=True, capture_stderr=True,
            env=os.environ | self.server.env,
        )  # fmt: skip
        sys.stdout.write(f"$ sightline {' '.join(command)}\n{(done.stdout + done.stderr).decode()}")
        return done

    async def readiness(self) -> httpx.Response:
        where = read_server_addresses(self.server.directory / "data")
        assert where is not None
        async with httpx.AsyncClient() as http:
            return await http.get(f"{where.internal_url}/readyz")

    async def settled_on_chain(self) -> dict[str, int]:
        """Amounts of all Settled events by the hash of the session's id, read without the server."""
        query = {"address": self.anvil.settlement, "topics": [SETTLED_TOPIC], "fromBlock": "0x0", "toBlock": "latest"}
        logs = await self.anvil.rpc.call("eth_getLogs", query)
        amounts = {log["topics"][1]: int(log["data"][2:66], 16) + int(log["data"][66:130], 16) for log in logs}
        assert len(amounts) == len(logs), "a session settled twice on the chain"
        return amounts

    async def pg(self, program: str, *arguments: str) -> None:
        """Run a program of Postgres."""
        binary = str(self.postgres.layout.binaries / program)
        await trio.run_process([binary, *arguments], capture_stdout=True, capture_stderr=True)

    async def restore(self, dump: Path) -> None:
        """Put the dump in place of the database."""
        await on_database(self.postgres.layout.dsn, _recreate)
        await self.pg("pg_restore", "--exit-on-error", "-d", self.dsn, str(dump))


async def _recreate(connection: Any) -> None:
    await connection.execute("DROP DATABASE IF EXISTS sightline")
    await connection.execute("CREATE DATABASE sightline")


def _in(directory: Path) -> tuple[ExternalPostgres, Server]:
    directory.chmod(0o711)
    (directory / "postgres").mkdir(mode=0o700)
    (directory / "server").mkdir()
    return ExternalPostgres(directory / "postgres"), Server(directory / "server")


@asynccontextmanager
async def a_service(directory: Path) -> AsyncIterator[Service]:
    postgres, server = _in(directory)
    async with open_anvil() as anvil, mining(anvil):
        try:
            postgres.start()
            await on_database(postgres.layout.dsn, _recreate)
            service = Service(server, postgres, anvil)
            server.env |= {
                "SIGHTLINE_DATABASE_URL": service.dsn,
                "SIGHTLINE_CHAIN_RPC_URL": anvil.url,
                "SIGHTLINE_CHAIN_PUBLIC_RPC_URL": anvil.url,
                "SIGHTLINE_CHAIN_ID": str(CHAIN_ID),
                "SIGHTLINE_CHAIN_USDC_ADDRESS": anvil.token,
                "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": anvil.settlement,
                "SIGHTLINE_CHAIN_RELAYER_KEY": anvil.relayer_key,
                "SIGHTLINE_CHAIN_CONFIRMATIONS": "2",
            }
            await server.start()
            yield service
        finally:
            server.end()
            postgres.end()


async def a_pair_at(service: Service, name: str, place: tuple[float, float]) -> Pair:
    """Sign up a funded consumer and an operator at a place of their own."""
    wallet, url = LocalWallet.create(), service.server.url
    async with a_world_on(service.anvil) as world:
        await world.fund(Wallet(key=wallet.private_key), FUNDS)
    await service.anvil.rpc.call("anvil_setBalance", wallet.address, hex(10**20))
    consumer = await a_tenant(url, "CONSUMER", f"{name}-consumer", wallet)
    operator = await a_tenant(url, "SUPPLIER", f"{name}-operator")
    anvil = service.anvil
    await AsyncChain(anvil.url).approve(wallet, token=anvil.token, spender=anvil.settlement, amount=FUNDS)
    await go_online(url, operator, place)
    return Pair(service.server, consumer, operator, place)


async def unfilmed_sessions(pair: Pair) -> None:
    """Run sessions without video one after the other; each is settled without a charge."""
    while True:
        await pair.go_live()
        await end_and_settle(pair)


async def finish(pair: Pair) -> None:
    """End or cancel what the restored database has open."""
    async with pair.watcher() as watcher:
        for session in (await watcher.get("/sessions", view="consumer"))["items"]:
            match session["state"]:
                case "REQUESTED":
                    await watcher.call("DELETE", f"/sessions/{session['id']}")
                case "ASSIGNED" | "LIVE":
                    await watcher.post(f"/sessions/{session['id']}/end")


async def settlements_of(service: Service) -> set[str]:
    """Read the hashes of the sessions for which the database has a settlement."""
    found: set[str] = set()

    async def read(connection: Any) -> None:
        found.update(
            session_id_hash(str(row["session_id"]))
            for row in await connection.fetch("SELECT session_id FROM settlement")
        )

    await on_database(service.dsn, read)
    return found


async def move_on(service: Service, filmed: Pair, unfilmed: Pair, dump: Path) -> None:
    """Back up under load; afterwards the chain gets 15 more settlements, two of them paid."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(unfilmed_sessions, unfilmed)
        await until(service.settled_on_chain, lambda seen: len(seen) >= 5, "the load runs")
        await service.pg("pg_dump", "--format=custom", f"--file={dump}", service.dsn)
        before = await service.settled_on_chain()
        for _ in range(2):
            await filmed.go_live()
            await film_until(filmed, 2)
            assert sum(map(int, await end_and_settle(filmed))) > 0
        await until(
            service.settled_on_chain, lambda seen: len(seen) >= len(before) + MOVED_ON, "the chain has moved on"
        )
        nursery.cancel_scope.cancel()


async def test_restore_drill(data_directory: Path) -> None:
    dump = data_directory / "sightline.dump"
    async with a_service(data_directory) as service:
        server = service.server
        filmed, unfilmed = await a_pair_at(service, "filmed", STUDIO), await a_pair_at(service, "unfilmed", PLACE)
        await filmed.go_live()
        await film_until(filmed, 1)
        await end_and_settle(filmed)
        await move_on(service, filmed, unfilmed, dump)
        await server.stop()
        await service.restore(dump)

        refused = await start_line(server)
        sys.stdout.write(f"$ sightline serve\n{refused}\n")
        assert "it is older" in refused
        assert (await service.type("reconcile", "--accept-database", "--yes")).returncode == 0
        await server.start()
        await server.until_logged("unknown_payments_found")
        held = await service.readiness()
        sys.stdout.write(f"/readyz {held.status_code} {json.dumps(held.json()['checks']['payments'])}\n")
        assert (held.status_code, held.json()["checks"]["payments"]["reason"]) == (503, "unknownPayments")
        with pytest.raises(ApiError) as said:
            await filmed.go_live()
        assert (said.value.status, said.value.detail) == (503, "payments:unknown")

        await finish(unfilmed)  # the session that was open at the instant of the backup
        chain = await service.settled_on_chain()
        missing = {each: chain[each] for each in chain.keys() - await settlements_of(service)}
        assert (len(missing) >= MOVED_ON - 1, sum(amount > 0 for amount in missing.values())) == (True, 2)

        async def listed() -> set[str]:
            answer = json.loads((await service.type("reconcile", "--json")).stdout)
            return {item["sessionIdHash"] for item in answer["items"]}

        await until(listed, lambda seen: seen == missing.keys(), "all payments that the database lacks are listed")
        assert (await service.type("reconcile")).returncode == 1
        adopted = await service.type("reconcile", "--adopt", "restored the dump of noon", "--as", "ada", "--yes")
        assert adopted.returncode == 0

        await until(service.readiness, lambda answer: answer.status_code == 200, "the server is ready again")
        await filmed.go_live()
        await film_until(filmed, 1)
        await end_and_settle(filmed)
        await sums_agree(service, filmed)


async def sums_agree(service: Service, filmed: Pair) -> None:
    """Compare the books with the events of the contract, and these with the consumer's wallet; none is 0."""
    chain = await service.settled_on_chain()

    async def books() -> tuple[int, int]:
        answer = json.loads((await service.type("reconcile", "--json")).stdout)
        assert answer["unknown"]["payments"] == 0
        both = (answer["settled"], answer["adopted"])
        return sum(each["payments"] for each in both), sum(int(each["amountMicroUsdc"]) for each in both)

    await until(books, lambda seen: seen == (len(chain), sum(chain.values())), "the books equal the chain")
    left = await AsyncChain(service.anvil.url).balance_of(service.anvil.token, filmed.consumer.wallet.address)
    assert FUNDS - left == sum(chain.values()) > 0
    assert (await service.type("reconcile")).returncode == 0
