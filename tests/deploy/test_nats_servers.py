"""The settings of three NATS servers, run by real ones."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from socket import SOCK_STREAM
from typing import Final

import trio

from sightline.bootstrap.listeners.own_tls import issue
from sightline.cluster.bus.nats import NatsBus, NatsOptions, client_tls, open_nats_bus
from sightline.cluster.bus.nats_child import find_binary
from sightline.ports.bus import Interrupted, Received
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from tests.cluster.bus.certificates import CLIENT_AND_SERVER, issue_certificate
from tests.cluster.bus.nats_process import until
from tests.video.support.real_engines import free_ports

CONFIG: Final = Path(__file__).parents[2] / "deploy" / "nats.conf"
TOKEN: Final = "token-of-the-test"


@contextmanager
def nats_servers(folder: Path) -> Iterator[list[tuple[int, subprocess.Popen[bytes]]]]:
    """Three servers with the settings of deploy/nats.conf, on loopback: their ports and processes."""
    issue(folder, SystemIds(), SystemClock().now_ms(), None, "host")
    certificate, key = issue_certificate(folder / "tls", "nats", CLIENT_AND_SERVER)
    ports = free_ports(*[SOCK_STREAM] * 6)
    clients, routes = ports[:3], ports[3:]
    text = CONFIG.read_text().replace("/etc/nats/server-key.pem", str(key))
    text = text.replace("/etc/nats/server.pem", str(certificate))
    text = text.replace("/etc/nats/ca.pem", str(folder / "tls" / "ca.pem"))
    for number, port in enumerate(routes, 1):
        text = text.replace(f"nats-{number}.internal:6222", f"127.0.0.1:{port}")
    running = []
    try:
        for number, (client, route) in enumerate(zip(clients, routes, strict=True), 1):
            path = folder / f"nats-{number}.conf"
            mine = text.replace("0.0.0.0:4222", f"127.0.0.1:{client}").replace("0.0.0.0:6222", f"127.0.0.1:{route}")
            path.write_text(mine)
            env = os.environ | {"NATS_NAME": f"nats-{number}", "NATS_TOKEN": TOKEN}
            with (folder / f"nats-{number}.log").open("wb") as log:
                process = subprocess.Popen([str(find_binary()), "-c", str(path)], env=env, stderr=log)
            running.append((client, process))
        yield running
    finally:
        for _, process in running:
            process.kill()
            process.wait()


async def test_frames_go_through_three_servers_and_the_loss_of_one_is_survived(tmp_path: Path) -> None:
    with nats_servers(tmp_path) as servers:
        async with AsyncExitStack() as stack:
            tls = client_tls(tmp_path / "tls" / "ca.pem", None, None)

            async def join(incarnation: str, *ports: int) -> NatsBus:
                urls = tuple(f"tls://{TOKEN}@127.0.0.1:{port}" for port in ports)
                options = NatsOptions(servers=urls, cluster="test", key=b"k" * 32, incarnation=incarnation, tls=tls)
                return await stack.enter_async_context(open_nats_bus(options))

            (first, process), (second, _), (third, _) = servers
            one, two = await join("one", first), await join("two", second, third)
            await until_heard(one, two, by="one", to="two")
            process.send_signal(signal.SIGKILL)
            await until(lambda: not one.is_connected)
            assert two.is_connected
            again = await join("three", third)
            await until_heard(again, two, by="three", to="two")


async def until_heard(sender: NatsBus, receiver: NatsBus, *, by: str, to: str) -> None:
    """Send until a frame arrives: the NATS servers tell each other a little later who has subscribed."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                while True:
                    sender.send(to, b"heard")
                    await trio.sleep(0.05)

            nursery.start_soon(send)
            while (arrival := await receiver.receive()) != Received(b"heard", by):
                assert arrival != Interrupted()
            nursery.cancel_scope.cancel()
