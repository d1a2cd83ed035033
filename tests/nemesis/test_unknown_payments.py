"""An older database beside a newer chain: its unknown payments hold new sessions until a person adopts them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from sightline.system.server_address_file import read_server_addresses
from sightline_client import ApiError
from tests.conftest import on_server
from tests.e2e.server import PLACE, Server, start_line, until
from tests.nemesis.restored_money import (
    FUNDS,
    accept_database,
    backup_of,
    consumer_has,
    end_and_settle,
    film_until,
    restore,
)
from tests.nemesis.test_clock_steps import Pair, a_pair

pytestmark = pytest.mark.interop


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()


async def sightline(server: Server, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "sightline.cli", *arguments, "--data-dir", str(server.directory / "data")]
    return await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)


async def internal(server: Server, path: str) -> httpx.Response:
    where = read_server_addresses(server.directory / "data")
    assert where is not None
    async with httpx.AsyncClient() as http:
        return await http.get(where.internal_url + path)


def empty(dsn: str) -> None:
    """Drop a database, and create it anew."""
    name = dsn.partition("?")[0].rpartition("/")[2]
    for statement in (f"DROP DATABASE {name} WITH (FORCE)", f"CREATE DATABASE {name}"):
        on_server(dsn.replace(f"/{name}?", "/postgres?"), partial(_execute, statement))


async def _execute(statement: str, connection: Any) -> None:
    await connection.execute(statement)


async def request(pair: Pair) -> Any:
    async with pair.watcher() as watcher:
        return await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600)


async def test_payments_that_an_older_database_lacks_hold_new_sessions_until_they_are_adopted(server: Server) -> None:
    await server.start()
    pair = await a_pair(server)
    postgres = server.directory / "data" / "postgres"
    await server.stop()
    with backup_of(postgres) as backup:
        await server.start()
        await pair.go_live()
        await film_until(pair, 2)
        charged = sum(map(int, await end_and_settle(pair)))
        assert charged > 0
        await server.stop()
        restore(postgres, backup)
    assert "it is older: its shards were taken" in await start_line(server)
    accepted = await accept_database(server)
    assert b"the present database is accepted" in accepted.stdout
    await server.start()
    await server.until_logged("unknown_payments_found")

    found = await internal(server, "/readyz")
    assert found.status_code == 503
    check = found.json()["checks"]["payments"]
    assert (check["ok"], check["reason"], check["payments"]) == (False, "unknownPayments", 1)
    assert check["amountMicroUsdc"] == str(charged)
    metrics = (await internal(server, "/metrics")).text.splitlines()
    assert f"sightline_unknown_payments_micro_usdc {float(charged)}" in metrics
    with pytest.raises(ApiError) as refused:
        await request(pair)
    assert (refused.value.status, refused.value.detail) == (503, "payments:unknown")

    listed = await sightline(server, "reconcile", "--json")
    assert listed.returncode == 1
    answer = json.loads(listed.stdout)
    [item] = answer["items"]
    assert int(item["toAmount"]) + int(item["feeAmount"]) == charged
    assert item["from"] == pair.consumer.wallet.address.lower()
    unsaid = await sightline(server, "reconcile", "--adopt", "restored the backup of noon", "--as", "Ada")
    assert (unsaid.returncode, (await internal(server, "/readyz")).status_code) == (1, 503)

    done = await sightline(server, "reconcile", "--adopt", "restored the backup of noon", "--as", "Ada", "--yes")
    assert done.returncode == 0, done.stderr

    async def readiness() -> int:
        return (await internal(server, "/readyz")).status_code

    await until(readiness, lambda status: status == 200, "the server is ready again")
    assert (await request(pair))["state"] == "REQUESTED"
    books = json.loads((await sightline(server, "reconcile", "--json")).stdout)
    assert books["adopted"] == {"payments": 1, "amountMicroUsdc": str(charged)}
    assert books["unknown"]["payments"] == 0
    acts = (await sightline(server, "admin", "audit")).stdout.decode()
    assert "payments.adopt" in acts
    assert "Ada: restored the backup of noon" in acts
    await consumer_has(pair, FUNDS - charged)
    await server.stop()
    await server.start()
    assert (await internal(server, "/readyz")).status_code == 200


async def test_payments_that_an_empty_database_lacks_hold_new_sessions_until_they_are_adopted(
    server: Server, empty_database_dsn: str
) -> None:
    server.env["SIGHTLINE_DATABASE_URL"] = empty_database_dsn
    await server.start()
    pair = await a_pair(server)
    await pair.go_live()
    await film_until(pair, 2)
    charged = sum(map(int, await end_and_settle(pair)))
    assert charged > 0
    await server.stop()
    empty(empty_database_dsn)
    assert "older or another database: it is empty: no server has ever used it" in await start_line(server)
    await accept_database(server)
    await server.start()
    await server.until_logged("unknown_payments_found")

    found = await internal(server, "/readyz")
    check = found.json()["checks"]["payments"]
    assert (found.status_code, check["payments"], check["amountMicroUsdc"]) == (503, 1, str(charged))
    listed = json.loads((await sightline(server, "reconcile", "--json")).stdout)
    assert [int(each["toAmount"]) + int(each["feeAmount"]) for each in listed["items"]] == [charged]
    done = await sightline(server, "reconcile", "--adopt", "the database is lost", "--as", "Ada", "--yes")
    assert done.returncode == 0, done.stderr

    async def readiness() -> int:
        return (await internal(server, "/readyz")).status_code

    await until(readiness, lambda status: status == 200, "the server is ready again")
    books = json.loads((await sightline(server, "reconcile", "--json")).stdout)
    assert (books["adopted"]["payments"], books["unknown"]["payments"]) == (1, 0)
