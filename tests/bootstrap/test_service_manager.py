"""What a server tells systemd, received on a real notification socket."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

from sightline.bootstrap.observability.service_manager import ServiceManager
from tests.e2e.server import Server


@pytest.fixture
def notified(tmp_path: Path) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def environment_of(notified: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": notified.getsockname(), **more}


async def test_the_watchdog_is_told_twice_in_each_interval(
    notified: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    environment = environment_of(notified, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid()))
    manager = ServiceManager(environment)
    with trio.move_on_after(50):
        await manager.keep_watchdog()
    notified.setblocking(False)
    assert [notified.recv(100) for _ in range(4)] == [b"WATCHDOG=1"] * 4
    assert environment == {}, "children tell the service manager nothing"


@pytest.mark.parametrize("environment", [{}, {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}])
async def test_without_a_watchdog_nothing_is_kept(environment: dict[str, str]) -> None:
    await ServiceManager(environment).keep_watchdog()


def test_a_socket_that_is_gone_does_not_stop_the_server(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


async def test_a_server_says_that_it_is_ready_and_alive(data_directory: Path, notified: socket.socket) -> None:
    server = Server(data_directory, env=environment_of(notified, WATCHDOG_USEC="60000000"))
    try:
        await server.start()
        said = set()
        while said != {b"READY=1", b"WATCHDOG=1"}:
            said.add(await trio.to_thread.run_sync(notified.recv, 100))
        assert await server.stop() == 0
    finally:
        server.end()
