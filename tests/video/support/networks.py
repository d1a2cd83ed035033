"""Networks made of namespaces, for clients behind firewalls and NATs. Needs root, iproute2, nftables, coturn and
tayga.

A client's namespace is joined to this machine's by a pair of virtual interfaces, with a router's namespace between them
where a test asks for NAT. Each network has addresses of its own, so that two test runs on one machine do not meet.
"""

import ipaddress
import itertools
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import trio

from sightline.domain.value import Value
from sightline.video.options import IceServer

TURN_SECRET: Final = "tests only"
TURN_PORT: Final = 3478


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network(Value):
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
        nft(self.name, table)

    def public_addresses(self) -> tuple[str, str, str]:
        """Give this machine three addresses, and the client one, that browsers take for public; returns this machine's.

        Chromium refuses candidates of port 443 at private addresses, and calls from public pages to them.
        """
        base = f"198.18.{self.name.removeprefix('client')}"
        ours = (f"{base}.1", f"{base}.2", f"{base}.4")
        for address in ours:
            ip("address", "add", f"{address}/24", "dev", self.name.replace("client", "s"))
        ip("-n", self.name, "address", "add", f"{base}.3/24", "dev", self.name.replace("client", "c"))
        return ours

    def leave(self) -> None:
        """Take the client's addresses away, as when a phone leaves a Wi-Fi."""
        ip("-n", self.name, "address", "flush", "dev", self.name.replace("client", "c"))

    def arrive(self) -> None:
        """Give the client another IPv4 address."""
        base, _, _ = self.client.rpartition(".")
        ip("-n", self.name, "address", "add", f"{base}.3/24", "dev", self.name.replace("client", "c"))


def nft(namespace: str, rules: str) -> None:
    """Apply nftables rules in a namespace."""
    command = ["ip", "netns", "exec", namespace, "nft", "-f", "-"]
    subprocess.run(command, input=rules, check=True, capture_output=True, text=True)


def a_free_number() -> int:
    """The first number without a client's namespace on this machine; makes the namespace."""
    for number in itertools.count():
        try:
            ip("netns", "add", f"client{number}")
        except subprocess.CalledProcessError as error:
            if "File exists" not in error.stderr:
                raise
        else:
            return number
    raise AssertionError("unreachable")


def remove(tag: int, *namespaces: str) -> None:
    """Remove the link of this machine and namespaces, as far as they were made."""
    # The link first: a namespace removes its links later, when its number may be in use again.
    for words in (("link", "delete", f"s{tag}"), *(("netns", "delete", name) for name in reversed(namespaces))):
        subprocess.run(["ip", *words], check=False, capture_output=True)


@contextmanager
def a_network() -> Iterator[Network]:
    """Make a namespace with one IPv4 and one IPv6 address, joined to this machine."""
    tag = a_free_number()
    base, base6 = f"10.64.{tag}", f"fd64:{tag:x}"
    network = Network(name=f"client{tag}", server=f"{base}.1", client=f"{base}.2", server6=f"{base6}::1")
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
        remove(tag, network.name)


class RoutedNetwork(Value):
    """A client and this machine, each behind a router, with the internet between the routers.

    Names of namespaces: client, home (the client's router), internet, office (this machine's router).
    """

    tag: int
    server: str
    """This machine's address."""
    public: str
    """The outer address of this machine's router."""
    relay: str
    """An address in the internet, for a TURN server."""

    def name(self, place: str) -> str:
        """The namespace of a place."""
        return f"{place}{self.tag}"

    def within(self, place: str) -> tuple[str, ...]:
        """The start of a command that runs in the namespace of a place."""
        return ("ip", "netns", "exec", self.name(place))

    def nat(self, place: str, *, inward: str = "", outward: str = "masquerade") -> None:
        """Make a router translate addresses, and drop packets from the internet that nobody inside asked for.

        Args:
            inward: The nftables statement for packets from the internet that are to be let in, before routing.
            outward: The statement for packets to the internet.
        """
        nft(
            self.name(place),
            f"""
            table ip nat {{
                chain in {{ type nat hook prerouting priority dstnat; iifname "outer" {inward or "accept"}; }}
                chain out {{ type nat hook postrouting priority srcnat; oifname "outer" {outward}; }}
                chain through {{
                    type filter hook forward priority filter;
                    iifname "outer" ct state new ct status & dnat == 0 drop;
                }}
            }}
            """,
        )


@contextmanager
def a_routed_network() -> Iterator[RoutedNetwork]:
    """Make the namespaces and links of a routed network, without NAT."""
    tag = a_free_number()
    places = [f"{place}{tag}" for place in ("client", "home", "internet", "office")]
    client, home, internet, office = places
    inner, outer, beyond, machine = (f"10.{second}.{tag}" for second in (65, 66, 67, 68))
    network = RoutedNetwork(tag=tag, server=f"{machine}.1", public=f"{beyond}.2", relay=f"{beyond}.1")
    try:
        for name in places[1:]:
            ip("netns", "add", name)
        links = [
            (client, "lan", home, "inner", inner),
            (home, "outer", internet, "west", outer),
            (internet, "east", office, "outer", beyond),
            (office, "inner", None, f"s{tag}", machine),
        ]
        # Of each link, the first end has the address .2 and the second .1; of the internet's second link the other way.
        for left, left_device, right, right_device, base in links:
            words = ["link", "add", left_device, "type", "veth", "peer", "name", right_device]
            ip("-n", left, *words, "netns", right or str(os.getpid()))
            first, second = (".1", ".2") if left == internet else (".2", ".1")
            for where, device, end in ((left, left_device, first), (right, right_device, second)):
                inside = ("-n", where) if where else ()
                ip(*inside, "address", "add", f"{base}{end}/24", "dev", device)
                ip(*inside, "link", "set", device, "up")
        for name in places:
            ip("-n", name, "link", "set", "lo", "up")
            command = ["ip", "netns", "exec", name, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]
            subprocess.run(command, check=True, capture_output=True)
        for where, gateway in ((client, f"{inner}.1"), (home, f"{outer}.1"), (office, f"{beyond}.1")):
            ip("-n", where, "route", "add", "default", "via", gateway)
        ip("-n", internet, "route", "add", f"{inner}.0/24", "via", f"{outer}.2")
        ip("-n", internet, "route", "add", f"{machine}.0/24", "via", f"{beyond}.2")
        for base in (inner, outer, beyond):
            ip("route", "add", f"{base}.0/24", "via", f"{machine}.2")
        yield network
    finally:
        remove(tag, *places)


NAT64_PREFIX: Final = "2001:db8:64"
NAT64_POOL: Final = "192.168.255"


def through_nat64(address: str) -> str:
    """The IPv6 address, in brackets, by which NAT64 reaches an IPv4 address."""
    return f"[{ipaddress.IPv6Address(f'{NAT64_PREFIX}::{address}')}]"


@contextmanager
def a_nat64(network: RoutedNetwork) -> Iterator[None]:
    """Take IPv4 away from the client, and run tayga on its router."""
    home, client = network.name("home"), network.name("client")
    ip("-n", client, "address", "flush", "dev", "lan")
    for where, device, address in ((client, "lan", "fd64::2"), (home, "inner", "fd64::1")):
        ip("-n", where, "address", "add", f"{address}/64", "dev", device, "nodad")
    ip("-n", client, "-6", "route", "add", "default", "via", "fd64::1")
    subprocess.run([*network.within("home"), "sysctl", "-q", "-w", "net.ipv6.conf.all.forwarding=1"], check=True)
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory, "tayga.conf")
        settings.write_text(
            f"tun-device nat64\nipv4-addr {NAT64_POOL}.1\nprefix {NAT64_PREFIX}::/96\n"
            f"dynamic-pool {NAT64_POOL}.0/24\ndata-dir {directory}\n"
        )
        tayga = [*network.within("home"), "tayga", "--config", str(settings)]
        subprocess.run([*tayga, "--mktun"], check=True, capture_output=True)
        ip("-n", home, "link", "set", "nat64", "up")
        ip("-n", home, "route", "add", f"{NAT64_POOL}.0/24", "dev", "nat64")
        ip("-n", home, "-6", "route", "add", f"{NAT64_PREFIX}::/96", "dev", "nat64")
        with subprocess.Popen([*tayga, "--nodetach"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()


def free_port(address: str) -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        port: int = sock.getsockname()[1]
    return port


@asynccontextmanager
async def a_relay(address: str, inside: tuple[str, ...] = ()) -> AsyncIterator[IceServer]:
    """Run coturn, with the server of an ICE setting that reaches it by TCP.

    Args:
        inside: Start of the command that runs it in a network namespace.
    """
    port = TURN_PORT if inside else free_port(address)
    process = await trio.lowlevel.open_process(
        [
            *inside, "turnserver", "-n", "--no-cli", "--no-tls", "--no-dtls", "--use-auth-secret", "--realm=sightline",
            f"--static-auth-secret={TURN_SECRET}", f"--listening-ip={address}", f"--relay-ip={address}",
            f"--listening-port={port}", "--log-file=stdout", f"--pidfile={os.devnull}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with trio.fail_after(90):
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
