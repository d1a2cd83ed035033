"""Two servers on one database: the first one stops and gives no stale answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trio

from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, go_online
from tests.nemesis.parts import ExternalChain, ExternalPostgres

EXIT_FENCED = 3


@contextmanager
def shared_parts(directory: Path) -> Iterator[dict[str, str]]:
    """A database and a chain that run independently of the servers; the settings of a server that uses them."""
    directory.chmod(0o711)
    (directory / "postgres").mkdir(mode=0o700)
    postgres, chain = ExternalPostgres(directory / "postgres"), ExternalChain(directory / "chain")
    try:
        postgres.start()
        chain.start()
        yield chain.env | {"SIGHTLINE_DATABASE_URL": postgres.layout.dsn}
    finally:
        chain.end()
        postgres.end()


@pytest.fixture
def pair(data_directory: Path) -> Iterator[tuple[Server, Server]]:
    with shared_parts(data_directory) as env:
        servers = (Server(data_directory / "one", env=env), Server(data_directory / "two", env=env))
        for server in servers:
            (server.directory / "data").mkdir(parents=True)
        # Both servers use the same secrets: API keys of the first are valid at the second.
        secrets = data_directory / "one" / "data" / "secrets.json"
        yield servers
        assert secrets.exists()
        for server in servers:
            server.end()


async def test_a_server_whose_database_was_taken_over_ends_and_answers_no_stale_read(
    pair: tuple[Server, Server],
) -> None:
    first, second = pair
    await first.start()
    consumer = await a_tenant(first.url, "CONSUMER", "consumer")
    operator = await a_tenant(first.url, "SUPPLIER", "operator")
    await go_online(first.url, operator)
    async with Api(first.url, key=consumer.key) as watcher, Api(first.url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
        await watcher.post(f"/sessions/{session_id}/dispatch")
        await device.post(f"/sessions/{session_id}/start")
    (second.directory / "data" / "secrets.json").write_bytes((first.directory / "data" / "secrets.json").read_bytes())
    ended_by_second = trio.Event()
    stale: list[str] = []
    path, headers = f"/api/v1/sessions/{session_id}", {"authorization": f"Bearer {consumer.key}"}

    async def read_first() -> None:
        async with httpx.AsyncClient(base_url=first.url, headers=headers) as http:
            while True:
                is_over = ended_by_second.is_set()
                try:
                    answer = await http.get(path)
                except httpx.TransportError:
                    if first.process is not None and first.process.poll() is not None:
                        return
                    continue
                if is_over and answer.status_code == 200 and answer.json()["data"]["state"] == "LIVE":
                    stale.append(answer.text)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_first)
            await second.start()
            async with Api(second.url, key=consumer.key) as watcher:
                ended = await watcher.post(f"/sessions/{session_id}/end")
                assert ended["state"] == "ENDED"
            ended_by_second.set()
    assert not stale
    assert first.process is not None
    assert first.process.poll() == EXIT_FENCED
    said = [line for line in first.log().splitlines() if "server_fenced" in line]
    assert len(said) == 1
    assert '"critical"' in said[0]
    assert "Traceback" not in first.log()
    async with Api(second.url, key=consumer.key) as watcher:
        assert (await watcher.get(f"/sessions/{session_id}"))["state"] == "ENDED"
