"""GET /readyz of a real server: 200 when it can serve, 503 with the check that failed."""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import trio

from sightline.bootstrap.process import EXIT_FENCED
from sightline.chain.embedded.copy import hold_mining
from sightline.system.server_address_file import read_server_addresses
from tests.client.api import Api
from tests.conftest import on_server
from tests.e2e.server import PLACE, Server, a_tenant, until


@pytest.fixture
def server_on(data_directory: Path, database_dsn: str) -> Iterator[Server]:
    """Start a server on a Postgres that the test may break."""
    made = Server(data_directory, env={"SIGHTLINE_DATABASE_URL": database_dsn, "SIGHTLINE_READY_PARKED_ACTORS": "0"})
    yield made
    made.end()


async def readiness(server: Server) -> tuple[int, dict[str, Any]]:
    """Return the status of /readyz, and its checks by name."""
    where = read_server_addresses(server.directory / "data")
    assert where is not None
    async with httpx.AsyncClient(timeout=10) as http:
        answer = await http.get(f"{where.internal_url}/readyz")
    body = answer.json()
    return answer.status_code, body["data"]["checks"] if answer.status_code == 200 else body["checks"]


async def until_ready(server: Server) -> None:
    await until(lambda: readiness(server), lambda seen: seen[0] == 200, "ready")


async def until_failed(server: Server, check: str) -> dict[str, Any]:
    """Wait until exactly this check fails; return it."""

    def fails(seen: tuple[int, dict[str, Any]]) -> bool:
        return seen[0] == 503 and [name for name, found in seen[1].items() if not found["ok"]] == [check]

    _, checks = await until(lambda: readiness(server), fails, f"{check} fails")
    found: dict[str, Any] = checks[check]
    return found


def execute(dsn: str, statement: str) -> None:
    on_server(dsn, lambda connection: connection.execute(statement))


async def test_a_read_only_database_is_not_ready_until_it_takes_writes_again(
    server_on: Server, database_dsn: str, postgres_dsn: str
) -> None:
    await server_on.start()
    await until_ready(server_on)
    name = database_dsn.partition("?")[0].rpartition("/")[2]
    end_connections = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    execute(postgres_dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    execute(postgres_dsn, end_connections)
    assert "no writes" in (await until_failed(server_on, "database"))["detail"]
    execute(postgres_dsn, f"ALTER DATABASE {name} RESET default_transaction_read_only")
    execute(postgres_dsn, end_connections)
    await until_ready(server_on)


async def test_a_server_whose_database_another_one_took_over_stops(server_on: Server, database_dsn: str) -> None:
    await server_on.start()
    await until_ready(server_on)
    assert server_on.process is not None
    process = server_on.process
    execute(database_dsn, "SELECT end_server(incarnation) FROM server_lease")
    with trio.fail_after(60):
        assert await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True) == EXIT_FENCED
    assert '"event":"server_fenced"' in server_on.log()
    assert "Traceback" not in server_on.log()


async def test_a_parked_actor_is_not_ready_and_named_with_its_cause(server_on: Server, database_dsn: str) -> None:
    await server_on.start()
    consumer = await a_tenant(server_on.url, "CONSUMER", "reader")
    async with Api(server_on.url, key=consumer.key) as api:
        session = await api.post("/sessions", lat=PLACE[0], lng=PLACE[1], waitTimeoutSeconds=3600)
    assert await server_on.stop() == 0
    execute(database_dsn, f"UPDATE session SET doc = '{{}}' WHERE id = '{session['id']}'")
    await server_on.start()
    failed = await until_failed(server_on, "actors")
    assert failed["parked"] == 1
    assert f"session/{session['id']}" in failed["causes"]


async def test_too_little_disk_is_not_ready(server: Server) -> None:
    server.env["SIGHTLINE_READY_DISK_FREE_MB"] = str(10**9)
    await server.start()
    failed = await until_failed(server, "disk")
    assert 0 < failed["freeMegabytes"] < 10**9


async def test_a_server_whose_video_workers_died_is_not_ready_until_they_are_back(server: Server) -> None:
    await server.start()
    await until_ready(server)
    assert server.process is not None
    for child in psutil.Process(server.process.pid).children(recursive=True):
        if any("sightline.video.worker" in word for word in child.cmdline()):
            os.kill(child.pid, signal.SIGKILL)
    assert (await until_failed(server, "video"))["workersReady"] == 0
    await until_ready(server)


async def test_calls_that_fail_because_of_the_database_make_the_server_not_ready(
    server_on: Server, database_dsn: str
) -> None:
    """The row of the check `database` can be written all the time."""
    await server_on.start()
    consumer = await a_tenant(server_on.url, "CONSUMER", "consumer")
    headers = {"authorization": f"Bearer {consumer.key}"}

    async def call_until_failed() -> None:
        async with httpx.AsyncClient(base_url=f"{server_on.url}/api/v1", headers=headers, timeout=30) as http:
            while True:
                assert (await http.get("/sessions")).status_code in (500, 503)
                await trio.sleep(0.05)

    await trio.to_thread.run_sync(execute, database_dsn, "ALTER TABLE session RENAME TO session_gone")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_until_failed)
        check = await until_failed(server_on, "calls")
        nursery.cancel_scope.cancel()
    assert check["failed"] * 2 > check["calls"] >= 10
    await trio.to_thread.run_sync(execute, database_dsn, "ALTER TABLE session_gone RENAME TO session")
    await until_ready(server_on)


async def test_settings_of_the_database_that_give_up_durability_are_shown_while_the_server_runs(
    server_on: Server,
) -> None:
    """The tests' own Postgres runs without fsync, for speed."""
    await server_on.start()

    async def shown() -> list[str]:
        _, checks = await readiness(server_on)
        names: list[str] = checks["database"]["notDurable"]
        return names

    await until(shown, lambda names: "fsync" in names, "fsync is named")
    where = read_server_addresses(server_on.directory / "data")
    assert where is not None
    async with httpx.AsyncClient() as http:
        metrics = (await http.get(f"{where.internal_url}/metrics")).text.splitlines()
    assert 'sightline_database_not_durable{setting="fsync"} 1.0' in metrics
    assert 'sightline_database_not_durable{setting="synchronous_standby_names"} 0.0' in metrics


async def test_a_chain_file_that_is_damaged_while_the_server_runs_is_told_with_the_way_back(server_on: Server) -> None:
    await server_on.start()
    await until_ready(server_on)
    data_dir = server_on.directory / "data"
    path = data_dir / "chain" / "chain.sqlite"
    is_damaged = False
    while not is_damaged:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE meta SET value = value")  # the chain drops the pages that it has read
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with hold_mining(path):  # a page in the log would be read in place of a damaged one
            if path.with_name(f"{path.name}-wal").stat().st_size > 0:
                continue
            with path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(100)
                file.write(b"\xff" * (size - 100))
            is_damaged = True
    damage = f"The file of the embedded chain is damaged, {path}: "
    way_back = "restore a whole backup into a new directory"
    check = (await until(lambda: readiness(server_on), lambda seen: seen[0] == 503, "not ready"))[1]["chain"]
    assert not check["ok"]
    assert damage in check["detail"]
    await server_on.until_logged("chain_file_damaged")
    account = "0x" + "1a" * 20
    for words in (["faucet", account, "1"], ["reconcile"], ["backup", str(server_on.directory / "b.tar")]):
        line = [sys.executable, "-m", "sightline.cli", *words, "--data-dir", str(data_dir)]
        env = os.environ | server_on.env
        done = await trio.run_process(line, capture_stdout=True, capture_stderr=True, check=False, env=env)
        said = done.stderr.decode()
        assert done.returncode == 1, done
        assert damage in said, done
        assert way_back in said, words
