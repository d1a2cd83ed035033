"""A process gives new connections to the process beside it that serves what their first request names."""

import socket
from pathlib import Path
from typing import Any

from sightline.http.server import ASGIApp, ConnectionPassing
from tests.http.server.conftest import StartServer


def named(name: str) -> ASGIApp:
    """An application that answers with its name, and the client's address as it sees it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = f"{name} {scope['client'][0]}".encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def a_process(common: Path, name: str) -> ConnectionPassing:
    (common / name).mkdir()
    choice = {b"GET /one": "one", b"GET /two": "two", b"GET /gon": "gone"}
    return ConnectionPassing(common / name, name, lambda first: choice.get(first[:8].ljust(8)[:8]) or None)


def sockets_in(common: Path) -> list[Path]:
    return list(common.glob("*/*.sock"))


async def test_a_connection_is_served_by_the_process_that_its_first_request_names(
    running: StartServer, tmp_path: Path
) -> None:
    one, two = a_process(tmp_path, "one"), a_process(tmp_path, "two")
    async with running(named("one"), passing=one) as server, running(named("two"), passing=two):
        async with server.client() as client:
            assert (await client.get("/two/a")).body == b"two 127.0.0.1"
            # Later requests of the connection stay there.
            assert (await client.get("/one/a")).body == b"two 127.0.0.1"
        async with server.client() as client:
            assert (await client.get("/other")).body == b"one 127.0.0.1"
            assert (await client.get("/two/a")).body == b"one 127.0.0.1"


async def test_a_connection_for_a_process_that_is_gone_is_served_where_it_was_accepted(
    running: StartServer, tmp_path: Path
) -> None:
    one = a_process(tmp_path, "one")
    (tmp_path / "gone").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
        left_behind.bind(str(tmp_path / "gone" / "gone.sock"))
    async with running(named("one"), passing=one) as server:
        for path in ("/gone/a", "/two/a"):
            async with server.client() as client:
                assert (await client.get(path)).body == b"one 127.0.0.1"


async def test_a_process_that_stops_takes_no_connections_and_leaves_no_socket(
    running: StartServer, tmp_path: Path
) -> None:
    one, two = a_process(tmp_path, "one"), a_process(tmp_path, "two")
    async with running(named("one"), passing=one) as server:
        async with running(named("two"), passing=two) as other:
            other.shutdown.set()
            await other.stopped.wait()
        async with server.client() as client:
            assert (await client.get("/two/a")).body == b"one 127.0.0.1"
    assert sockets_in(tmp_path) == []


async def test_a_process_that_stops_gets_the_connections_that_are_on_their_way(tmp_path: Path) -> None:
    one, two = a_process(tmp_path, "one"), a_process(tmp_path, "two")
    with (
        socket.create_server(("127.0.0.1", 0)) as accepting,
        socket.create_connection(accepting.getsockname()) as client,
    ):
        client.sendall(b"GET /two/a HTTP/1.1\r\n\r\n")
        with accepting.accept()[0] as accepted:
            assert await one.give(accepted)
        (given,) = two.close()
        with given:
            assert given.getpeername() == client.getsockname()
    assert one.close() == two.close() == []


async def test_a_connection_that_has_sent_nothing_does_not_delay_the_stop(running: StartServer, tmp_path: Path) -> None:
    async with (
        running(named("one"), passing=a_process(tmp_path, "one"), drain_s=60.0) as server,
        server.client() as silent,
        server.client() as other,
    ):
        assert (await other.get("/a")).status == 200
        server.shutdown.set()
        await server.stopped.wait()
        assert await silent.closed()
