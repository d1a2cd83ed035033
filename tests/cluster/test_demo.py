"""The demo with two servers: its consumer calls one, its device the other, and each of them is killed."""

import socket
from io import StringIO
from pathlib import Path

import trio
from rich.console import Console

from sightline.cli.demo import Demo
from sightline.cli.local import LocalServer
from sightline_client import AsyncSightline
from tests.cluster.nemesis.link import open_link
from tests.cluster.servers import a_cluster
from tests.e2e.server import Server
from tests.video.support.real_engines import free_ports


async def a_balancer(nursery: trio.Nursery, *servers: Server) -> str:
    """The URL of a proxy that connects to the first of these servers that accepts connections."""

    async def dial() -> trio.SocketStream:
        for server in servers[:-1]:
            try:
                return await trio.open_tcp_stream("127.0.0.1", server.port)
            except OSError:
                continue
        return await trio.open_tcp_stream("127.0.0.1", servers[-1].port)

    return f"http://127.0.0.1:{(await open_link(nursery, dial)).port}"


async def test_every_check_of_the_demo_holds_when_the_server_of_its_consumer_and_that_of_its_device_are_killed(
    data_directory: Path,
) -> None:
    async with trio.open_nursery() as nursery:
        with a_cluster(2) as cluster:
            one, two = cluster.servers
            one.port, two.port = free_ports(socket.SOCK_STREAM, socket.SOCK_STREAM)
            consumers, devices = await a_balancer(nursery, one, two), await a_balancer(nursery, two, one)
            for server in cluster.servers:
                server.env["SIGHTLINE_PUBLIC_URL"] = devices
            await cluster.start()
            # The faucet finds the keys of the chain below the data directory.
            (data_directory / "data").symlink_to(one.directory.parent)
            local, device_server = LocalServer(data_directory), LocalServer(data_directory)
            local.url, device_server.url = consumers, devices
            printed = StringIO()
            demo = Demo(Console(file=printed), local, data_directory / "frame.jpg", device_server)
            try:
                async with demo.dispatched() as (api, session_id):
                    await demo.watch(api, session_id)
                    await _kill_while_live(one, demo, api, session_id)
                    await one.start()
                    await _kill_while_live(two, demo, api, session_id)
                    await demo.end_and_settle(api, session_id)
            finally:
                print(printed.getvalue())  # noqa: T201  shown by pytest after a failure
        nursery.cancel_scope.cancel()


async def _kill_while_live(server: Server, demo: Demo, api: AsyncSightline, session_id: str) -> None:
    """Kill a server; the video must come back and time must be charged again."""
    charged = (await api.sessions.get(session_id)).clean_seconds
    await server.kill()
    await demo.watch(api, session_id)
    assert (await api.sessions.get(session_id)).clean_seconds > charged
