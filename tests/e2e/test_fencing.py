"""Two servers on one database: the second one waits or is refused; it never takes over from one that serves."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import trio

from tests.client.api import Api
from tests.e2e.server import Server, Tenant, go_live
from tests.nemesis.parts import ExternalChain, ExternalPostgres

EXIT_FENCED = 3


@contextmanager
def shared_parts(directory: Path, *, is_escrow: bool = False) -> Iterator[dict[str, str]]:
    """A database and a chain that run independently of the servers; the settings of a server that uses them."""
    directory.chmod(0o711)
    (directory / "postgres").mkdir(mode=0o700)
    postgres, chain = ExternalPostgres(directory / "postgres"), ExternalChain(directory / "chain")
    chain.is_escrow = is_escrow
    try:
        postgres.start()
        chain.start()
        # Sessions whose device and video are not part of a test stay LIVE on a busy machine too.
        longer = {"SIGHTLINE_PAUSE_MAX_SECONDS": "600", "SIGHTLINE_PAUSED_TOTAL_MAX_SECONDS": "1800"}
        yield chain.env | longer | {"SIGHTLINE_DATABASE_URL": postgres.layout.dsn}
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


def share_secrets(first: Server, second: Server) -> None:
    """Make the API keys of the first server valid at the second."""
    (second.directory / "data" / "secrets.json").write_bytes((first.directory / "data" / "secrets.json").read_bytes())


async def state_of(server: Server, session_id: str, consumer: Tenant) -> str:
    async with Api(server.url, key=consumer.key) as watcher:
        return str((await watcher.get(f"/sessions/{session_id}"))["state"])


async def test_a_second_server_is_refused_with_the_reason_and_the_first_serves_on(pair: tuple[Server, Server]) -> None:
    first, second = pair
    await first.start()
    live = await go_live(first)
    session_id, consumer = live.session_id, live.consumer
    share_secrets(first, second)
    second.env |= {"SIGHTLINE_STARTUP_TIMEOUT_SECONDS": "3"}
    second.spawn()
    assert second.process is not None
    with trio.fail_after(60):
        assert await trio.to_thread.run_sync(second.process.wait, abandon_on_cancel=True) == 1
    assert f"Another server, on {socket.gethostname()}, uses this database" in second.log().splitlines()[-1]
    assert first.process is not None
    assert first.process.poll() is None
    assert await state_of(first, session_id, consumer) == "LIVE"
    async with Api(first.url, key=consumer.key) as watcher:
        assert (await watcher.post(f"/sessions/{session_id}/end"))["state"] == "ENDED"


async def test_a_waiting_server_replaces_one_that_was_killed(pair: tuple[Server, Server]) -> None:
    first, second = pair
    await first.start()
    live = await go_live(first)
    session_id, consumer = live.session_id, live.consumer
    share_secrets(first, second)
    second.spawn()
    await second.until_logged("waiting_for_other_server")
    await first.kill()
    await second.await_ready()
    assert await state_of(second, session_id, consumer) == "LIVE"


async def test_a_server_that_was_suspended_while_another_took_over_gives_no_stale_answer_and_ends(
    pair: tuple[Server, Server],
) -> None:
    first, second = pair
    await first.start()
    live = await go_live(first)
    session_id, consumer = live.session_id, live.consumer
    share_secrets(first, second)
    path, headers = f"/api/v1/sessions/{session_id}", {"authorization": f"Bearer {consumer.key}"}
    answers: list[httpx.Response] = []
    assert first.process is not None

    async def read(http: httpx.AsyncClient) -> None:
        with suppress(httpx.TransportError):
            answers.append(await http.get(path))

    async with httpx.AsyncClient(base_url=first.url, headers=headers, timeout=60) as http:
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read, http)
        assert {answer.json()["data"]["state"] for answer in answers} == {"LIVE"}
        answers.clear()
        first.process.send_signal(signal.SIGSTOP)
        await second.start()
        async with Api(second.url, key=consumer.key) as watcher:
            assert (await watcher.post(f"/sessions/{session_id}/end"))["state"] == "ENDED"
        async with trio.open_nursery() as nursery:
            # These requests wait in the sockets of the suspended server.
            for _ in range(8):
                nursery.start_soon(read, http)
            await trio.sleep(0.5)
            first.process.send_signal(signal.SIGCONT)
    with trio.fail_after(90):
        assert await trio.to_thread.run_sync(first.process.wait, abandon_on_cancel=True) == EXIT_FENCED
    assert {answer.status_code for answer in answers} <= {503}
    said = [line for line in first.log().splitlines() if "server_fenced" in line]
    assert len(said) == 1
    assert '"critical"' in said[0]
    assert "Traceback" not in first.log()
    assert await state_of(second, session_id, consumer) == "ENDED"
