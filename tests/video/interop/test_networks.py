"""Clients connect from networks that block or translate their packets, made of network namespaces."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sightline.domain.value import Value, replace
from sightline.ports.video import MediaKind
from sightline.video.options import IceServer, NetOptions, Options
from tests.groups import rest_at_night
from tests.video.interop.browser import a_browser
from tests.video.interop.firefox import a_firefox
from tests.video.interop.test_chromium import watch
from tests.video.support.harness import SECRET, a_frame, a_rig, a_session_id, play_json, publishing
from tests.video.support.networks import (
    TURN_SECRET,
    Network,
    a_nat64,
    a_network,
    a_relay,
    a_routed_network,
    through_nat64,
)

NO_UDP = "meta l4proto udp drop;"


@pytest.fixture
def network() -> Iterator[Network]:
    with a_network() as made:
        yield made


def options_of(network: Network, *relays: IceServer) -> Options:
    """One worker at the network's address of this machine; without TCP if there are relays, so that they are needed."""
    net = NetOptions(bind_addresses=(network.server,), loopback=False, tcp_port=-1 if relays else 0)
    options = Options(secret=SECRET, public_url="", workers=1, net=net)
    return replace(options, ice_servers=relays, turn_secret=TURN_SECRET if relays else "")


@pytest.mark.parametrize("codec", rest_at_night(["video/VP8", "video/H264"], gate=1))
async def test_chromium_publishes_and_plays_by_tcp_without_a_relay_where_udp_is_dropped(
    client_script: Path, network: Network, codec: str
):
    network.firewall(NO_UDP)
    async with (
        a_rig(options_of(network), host=network.server) as rig,
        a_browser(client_script, host=network.server, inside=network.inside) as (browser, url),
    ):
        made = await rig.backend.create_input(a_session_id())
        publisher, viewer = await browser.open(url), await browser.open(url)
        await publisher.run(f"publishPlain({made.whip_url!r}, {codec!r})")
        await a_frame(rig.backend, made.ref)
        await viewer.run(f"playPlain({made.whep_url!r})")
        await watch(viewer, frames=60)
        for page in (publisher, viewer):
            path = await page.run("path()")
            assert (path["local"]["protocol"], path["remote"]["candidateType"]) == ("tcp", "host")


class Site(Value):
    """A server, and a client in a network."""

    options: Options
    host: str
    """This machine's address for signalling."""
    inside: tuple[str, ...]
    """The start of a command that runs where the client is."""
    port: int = 0
    page_host: str = ""
    """This machine's address for the page, if it is another."""
    public_host: str = ""
    """The address by which clients reach both, if it is another."""


HTTPS: Final = 443
SYMMETRIC: Final = "masquerade random,fully-random"
"""A mapping for each destination, at a port that has nothing to do with the client's."""


@asynccontextmanager
async def udp_dropped() -> AsyncIterator[Site]:
    with a_network() as network:
        network.firewall(NO_UDP)
        yield Site(options_of(network), network.server, network.inside)


@asynccontextmanager
async def udp_dropped_and_no_tcp_port() -> AsyncIterator[Site]:
    with a_network() as network:
        network.firewall(NO_UDP)
        async with a_relay(network.server) as relay:
            yield Site(options_of(network, relay), network.server, network.inside)


@asynccontextmanager
async def only_ipv6() -> AsyncIterator[Site]:
    with a_network() as network:
        network.firewall("meta nfproto ipv4 drop;")
        net = NetOptions(loopback=False, ipv6=True, tcp_port=-1)
        yield Site(Options(secret=SECRET, public_url="", workers=1, net=net), network.server6, network.inside)


@asynccontextmanager
async def only_tcp_443() -> AsyncIterator[Site]:
    with a_network() as network:
        host, page_host, media_host = network.public_addresses()
        network.firewall("tcp dport 443 accept; tcp sport 443 accept; drop;")
        net = NetOptions(bind_addresses=(media_host,), loopback=False, tcp_port=HTTPS)
        options = Options(secret=SECRET, public_url="", workers=1, net=net)
        yield Site(options, host, network.inside, port=HTTPS, page_host=page_host)


@asynccontextmanager
async def client_behind_symmetric_nat() -> AsyncIterator[Site]:
    with a_routed_network() as network:
        network.nat("home", outward=SYMMETRIC)
        net = NetOptions(bind_addresses=(network.server,), loopback=False, tcp_port=-1)
        options = Options(secret=SECRET, public_url="", workers=1, net=net)
        yield Site(options, network.server, network.within("client"))


@asynccontextmanager
async def server_behind_1_to_1_nat() -> AsyncIterator[Site]:
    with a_routed_network() as network:
        network.nat("home")
        network.nat("office", inward=f"ip daddr {network.public} dnat to {network.server}")
        net = NetOptions(
            bind_addresses=(network.server,), advertised_addresses=(network.public,), loopback=False, tcp_port=-1
        )
        options = Options(secret=SECRET, public_url="", workers=1, net=net)
        yield Site(options, network.server, network.within("client"), public_host=network.public)


@asynccontextmanager
async def both_behind_nat_that_changes_ports() -> AsyncIterator[Site]:
    with a_routed_network() as network:
        network.nat("home", outward=SYMMETRIC)
        network.nat("office", inward=f"meta l4proto tcp dnat ip to {network.server}", outward=SYMMETRIC)
        net = NetOptions(
            bind_addresses=(network.server,), advertised_addresses=(network.public,), loopback=False, tcp_port=-1,
            private_candidates=True,
        )  # fmt: skip
        async with a_relay(network.relay, network.within("internet")) as relay:
            options = Options(
                secret=SECRET, public_url="", workers=1, net=net, ice_servers=(relay,), turn_secret=TURN_SECRET
            )
            yield Site(options, network.server, network.within("client"), public_host=network.public)


@asynccontextmanager
async def only_ipv6_with_nat64() -> AsyncIterator[Site]:
    with a_routed_network() as network:
        network.nat("home")
        net = NetOptions(bind_addresses=(network.server,), loopback=False, tcp_port=-1)
        with a_nat64(network):
            async with a_relay(network.relay, network.within("internet")) as relay:
                # DNS64 would give clients this address for the TURN server's name.
                relay = replace(relay, url=relay.url.replace(network.relay, through_nat64(network.relay)))
                options = Options(
                    secret=SECRET, public_url="", workers=1, net=net, ice_servers=(relay,), turn_secret=TURN_SECRET
                )
                public_host = through_nat64(network.server)
                yield Site(options, network.server, network.within("client"), public_host=public_host)


Row = tuple[Callable[[], AbstractAsyncContextManager[Site]], dict[str, str]]
ROWS: Final[list[Row]] = [
    (udp_dropped, {"protocol": "tcp"}),
    (udp_dropped_and_no_tcp_port, {"candidateType": "relay"}),
    (only_tcp_443, {"protocol": "tcp"}),
    (only_ipv6, {"protocol": "udp"}),
    (client_behind_symmetric_nat, {"protocol": "udp", "candidateType": "prflx"}),
    (server_behind_1_to_1_nat, {"protocol": "udp", "candidateType": "prflx"}),
    (both_behind_nat_that_changes_ports, {"candidateType": "relay"}),
    (only_ipv6_with_nat64, {"candidateType": "relay"}),
]
"""Networks, and what the client's candidate of the path in use is."""


def local_of(path: dict[str, Any], expected: dict[str, str]) -> dict[str, str]:
    return {name: path["local"][name] for name in expected}


@pytest.mark.parametrize(("a_site", "expected"), rest_at_night(ROWS, gate=4), ids=[site.__name__ for site, _ in ROWS])
async def test_chromium_publishes_and_plays(
    client_script: Path, a_site: Callable[[], AbstractAsyncContextManager[Site]], expected: dict[str, str]
):
    async with (
        a_site() as site,
        a_rig(site.options, host=site.host, port=site.port, public_host=site.public_host) as rig,
        a_browser(
            client_script, host=site.page_host or site.host, port=site.port, public_host=site.public_host,
            inside=site.inside,
        ) as (browser, url),
    ):  # fmt: skip
        made = await rig.backend.create_input(a_session_id())
        publisher, viewer = await browser.open(url), await browser.open(url)
        await publisher.run(f"publishOurs({made.whip_url!r})")
        await publisher.run("whenConnected()")
        await a_frame(rig.backend, made.ref)
        await viewer.run(f"playOurs({made.whep_url!r})")
        await viewer.run("whenConnected()")
        await watch(viewer, frames=30)
        for page in (publisher, viewer):
            assert local_of(await page.run("path()"), expected) == expected


@pytest.mark.parametrize(("a_site", "expected"), rest_at_night(ROWS, gate=1), ids=[site.__name__ for site, _ in ROWS])
async def test_firefox_publishes_and_plays(
    client_script: Path, a_site: Callable[[], AbstractAsyncContextManager[Site]], expected: dict[str, str]
):
    async with (
        a_site() as site,
        a_rig(site.options, host=site.host, port=site.port, public_host=site.public_host) as rig,
    ):
        made = await rig.backend.create_input(a_session_id())
        script = f"publishAndPlay({made.whip_url!r}, {made.whep_url!r})"
        async with a_firefox(
            client_script, script, host=site.page_host or site.host, port=site.port, public_host=site.public_host,
            inside=site.inside,
        ) as report:  # fmt: skip
            await a_frame(rig.backend, made.ref)
            paths = await report()
    for path in paths.values():
        assert local_of(path, expected) == expected


async def test_a_player_without_a_path_at_first_tries_again_and_plays_when_there_is_one(
    client_script: Path, network: Network
):
    net = NetOptions(bind_addresses=(network.server,), loopback=False, tcp_port=-1)
    options = Options(secret=SECRET, public_url="", workers=1, net=net)
    async with a_rig(options, host=network.server) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with (
            # Outside of the network: a publisher that is cut too would leave the player nothing to ask for.
            publishing(made.whip_url),
            a_browser(client_script, host=network.server, inside=network.inside) as (browser, url),
        ):
            await rig.heard(MediaKind.FRAMES)
            network.firewall(NO_UDP)
            viewer = await browser.open(url)
            await viewer.run(f"playOurs({made.whep_url!r})")
            await viewer.run("anotherExchange()", within_s=120)
            network.firewall("")
            await viewer.run("whenConnected()", within_s=120)
            await watch(viewer, frames=10)


async def test_our_python_clients_publish_and_play_by_a_turn_server_of_the_link_header(network: Network):
    network.firewall(NO_UDP)
    async with a_relay(network.server) as relay, a_rig(options_of(network, relay), host=network.server) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, inside=network.inside):
            await rig.heard(MediaKind.FRAMES)
            report = await play_json(made.whep_url, 3.0, inside=network.inside)
    assert report["frames"] > 3
