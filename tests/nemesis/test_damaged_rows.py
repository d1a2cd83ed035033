"""A row that cannot be read stops its session only: the server starts, others are paid, and the mended row is read."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from sightline_client import ApiError
from tests.client.api import Api
from tests.e2e.server import Server, until
from tests.groups import rest_at_night
from tests.nemesis.parts import ExternalPostgres, on_database
from tests.nemesis.restored_money import FUNDS, consumer_has, end_and_settle, film_until
from tests.nemesis.test_clock_steps import a_pair

pytestmark = pytest.mark.interop

FAR = {"lat": 1.5, "lng": 2.5, "waitTimeoutSeconds": 3600}


@pytest.fixture
def postgres(data_directory: Path) -> Iterator[ExternalPostgres]:
    (data_directory / "postgres").mkdir(mode=0o700)
    made = ExternalPostgres(data_directory / "postgres")
    made.start()
    yield made
    made.end()


@pytest.fixture
def server(data_directory: Path, postgres: ExternalPostgres) -> Iterator[Server]:
    (data_directory / "server").mkdir()
    made = Server(data_directory / "server", env={"SIGHTLINE_DATABASE_URL": postgres.layout.dsn})
    yield made
    made.end()


async def revive(server: Server, session_id: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "sightline.cli", "actors", "--revive", f"session/{session_id}"]
    return await trio.run_process(
        [*command, "--data-dir", str(server.directory / "data")], check=False, capture_stdout=True, capture_stderr=True
    )


@pytest.mark.parametrize("damage", rest_at_night(['{"state": null}', "{}"], gate=1))
async def test_a_damaged_row_stops_its_session_only(server: Server, postgres: ExternalPostgres, damage: str) -> None:
    await server.start()
    pair = await a_pair(server)
    async with Api(server.url, key=pair.consumer.key) as watcher:
        damaged = (await watcher.post("/sessions", **FAR))["id"]
    await server.stop()
    kept: list[Any] = []

    async def break_row(connection: Any) -> None:
        kept.append(await connection.fetchval("SELECT doc FROM session WHERE id = $1", damaged))
        await connection.execute("UPDATE session SET doc = $2 WHERE id = $1", damaged, damage)

    async def mend_row(connection: Any) -> None:
        await connection.execute("UPDATE session SET doc = $2 WHERE id = $1", damaged, kept[0])

    await on_database(postgres.layout.dsn, break_row)
    await server.start()
    async with pair.watcher() as watcher:
        with pytest.raises(ApiError) as refused:
            await watcher.get(f"/sessions/{damaged}")
        assert refused.value.status in (500, 503)
    await pair.go_live()
    await film_until(pair, 2)
    charged = sum(map(int, await end_and_settle(pair)))
    assert charged > 0
    await consumer_has(pair, FUNDS - charged)
    await on_database(postgres.layout.dsn, mend_row)
    done = await revive(server, damaged)
    assert done.returncode == 0, done.stderr
    async with pair.watcher() as watcher:

        async def state() -> str:
            try:
                return str((await watcher.get(f"/sessions/{damaged}"))["state"])
            except ApiError as error:
                return str(error.status)

        await until(state, lambda seen: seen == "REQUESTED", "the repaired session is read again")
