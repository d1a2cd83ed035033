"""Networks made of namespaces, for clients behind firewalls and NATs. Needs root, iproute2, nftables and coturn.

A client's namespace is joined to this machine's by a pair of virtual interfaces, with a router's namespace between them
where a test asks for NAT. Each network has addresses of its own, so that two test runs on one machine do not meet.
"""

import os
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from sightline.video.options import IceServer

TURN_SECRET: Final = "tests only"


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Network:
    """A client's namespace and its way to this machine."""

    name: str
    """Of the client's namespace."""
    server: str
    """An address of this machine."""
    client: str
    """The client's address."""
    server6: str
    """An IPv6 address of this machine."""

    @property
    def inside(self) -> tuple[str, ...]:
        """The start of a command that runs in the client's namespace."""
        return ("ip", "netns", "exec", self.name)

    def firewall(self, rules: str) -> None:
        """Replace the client's nftables rules, which see its packets in both directions."""
        table = f"""
            table inet firewall
            delete table inet firewall
            table inet firewall {{
                chain out {{ type filter hook output priority 0; {rules} }}
                chain in {{ type filter hook input priority 0; {rules} }}
            }}
        """
        subprocess.run([*self.inside, "nft", "-f", "-"], input=table, check=True, capture_output=True, text=True)


@contextmanager
def a_network() -> Iterator[Network]:
    """Make a namespace with one IPv4 and one IPv6 address, joined to this machine."""
    tag = uuid.uuid4().hex[:8]
    number = int(tag, 16)
    base = f"10.{64 + number % 128}.{number >> 8 & 0xFF}"
    base6 = f"fd{tag[:2]}:{tag[2:6]}:{tag[6:]}"
    network = Network(name=f"client{tag}", server=f"{base}.1", client=f"{base}.2", server6=f"{base6}::1")
    ip("netns", "add", network.name)
    try:
        ip("link", "add", f"s{tag}", "type", "veth", "peer", "name", f"c{tag}", "netns", network.name)
        ip("address", "add", f"{network.server}/24", "dev", f"s{tag}")
        ip("address", "add", f"{network.server6}/64", "dev", f"s{tag}", "nodad")
        ip("link", "set", f"s{tag}", "up")
        for words in (
            ("address", "add", f"{network.client}/24", "dev", f"c{tag}"),
            ("address", "add", f"{base6}::2/64", "dev", f"c{tag}", "nodad"),
            ("link", "set", f"c{tag}", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", network.name, *words)
        yield network
    finally:
        ip("netns", "delete", network.name)  # and with it both interfaces


def free_port(address: str) -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        port: int = sock.getsockname()[1]
    return port


@asynccontextmanager
async def a_relay(address: str) -> AsyncIterator[IceServer]:
    """Run coturn, with the server of an ICE setting that reaches it by TCP."""
    port = free_port(address)
    process = await trio.lowlevel.open_process(
        [
            "turnserver", "-n", "--no-cli", "--no-tls", "--no-dtls", "--use-auth-secret", "--realm=sightline",
            f"--static-auth-secret={TURN_SECRET}", f"--listening-ip={address}", f"--relay-ip={address}",
            f"--listening-port={port}", "--log-file=stdout", f"--pidfile={os.devnull}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with trio.fail_after(20):
            while True:
                try:
                    await (await trio.open_tcp_stream(address, port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)  # coturn says nothing when it listens
        yield IceServer(url=f"turn:{address}:{port}?transport=tcp")
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()
