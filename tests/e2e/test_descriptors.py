"""A server with a low limit of open files accepts fewer connections and keeps running."""

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest

from sightline.system.server_address_file import read_server_addresses
from tests.client.api import Api
from tests.e2e.server import Server, a_tenant, until

DESCRIPTORS = 128
CALLERS = 300


def child_of(server: Server, word: str) -> psutil.Process | None:
    """The newest of the children whose command has this word: of media workers not the one that forks them."""
    assert server.process is not None
    found = None
    for child in psutil.Process(server.process.pid).children(recursive=True):
        with suppress(psutil.Error):  # the process may be ending
            if word in " ".join(child.cmdline()):
                found = child
    return found


CHILDREN: Final = ["sightline.chain.embedded", "sightline.video.worker", "postgres_child"]


@pytest.mark.parametrize("word", CHILDREN)
async def test_a_crowd_of_callers_leaves_enough_to_restart_a_child(data_directory: Path, word: str) -> None:
    server = Server(data_directory, descriptors=DESCRIPTORS)
    try:
        await server.start()
        tenant = await a_tenant(server.url, "CONSUMER", "one-of-many")
        with ExitStack() as crowd:
            for _ in range(CALLERS):
                crowd.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            child = child_of(server, word)
            assert child is not None
            child.kill()

            async def replaced() -> bool:
                found = child_of(server, word)
                return found is not None and found.pid != child.pid

            await until(replaced, lambda is_so: is_so, f"{word} is restarted")
            await until(lambda: readiness(server), lambda status: status == 200, "ready with a crowd at the door")
        async with Api(server.url, key=tenant.key) as api:
            created = await api.post("/sessions", lat=1.5, lng=2.5)
            assert created["state"] == "REQUESTED"
        assert await server.stop() == 0
    finally:
        server.end()


async def readiness(server: Server) -> Any:
    addresses = read_server_addresses(server.directory / "data")
    assert addresses is not None
    async with httpx.AsyncClient() as http:
        try:
            return (await http.get(f"{addresses.internal_url}/readyz")).status_code
        except httpx.TransportError as error:
            return repr(error)
