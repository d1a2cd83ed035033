"""Clients connect from networks that block or translate their packets, made of network namespaces."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sightline.ports.video import MediaKind
from sightline.video.options import IceServer, NetOptions, Options
from tests.video.interop.browser import a_browser
from tests.video.interop.firefox import a_firefox
from tests.video.interop.test_chromium import watch
from tests.video.support.harness import SECRET, a_frame, a_rig, a_session_id, play_json, publishing
from tests.video.support.networks import TURN_SECRET, Network, a_network, a_relay

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


async def test_sightline_js_publishes_and_plays_by_a_turn_server_of_the_link_header(
    client_script: Path, network: Network
):
    network.firewall(NO_UDP)
    async with (
        a_relay(network.server) as relay,
        a_rig(options_of(network, relay), host=network.server) as rig,
        a_browser(client_script, host=network.server, inside=network.inside) as (browser, url),
    ):
        made = await rig.backend.create_input(a_session_id())
        publisher, viewer = await browser.open(url), await browser.open(url)
        await publisher.run(f"publishOurs({made.whip_url!r})")
        await publisher.run("whenConnected()")
        await a_frame(rig.backend, made.ref)
        await viewer.run(f"playOurs({made.whep_url!r})")
        await viewer.run("whenConnected()")
        await watch(viewer, frames=10)
        for page in (publisher, viewer):
            assert (await page.run("path()"))["local"]["candidateType"] == "relay"


@pytest.mark.parametrize("codec", ["video/VP8", "video/H264"])
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


async def test_firefox_publishes_by_tcp_without_a_relay_where_udp_is_dropped(client_script: Path, network: Network):
    network.firewall(NO_UDP)
    async with a_rig(options_of(network), host=network.server) as rig:
        made = await rig.backend.create_input(a_session_id())
        script = f"publishPlain({made.whip_url!r}, 'video/VP8').then(() => firefoxConnected()).then(() => path())"
        async with a_firefox(client_script, script, host=network.server, inside=network.inside) as report:
            await a_frame(rig.backend, made.ref)
            path = await report()
    assert path["local"]["protocol"] == "tcp", path


async def test_chromium_publishes_and_plays_where_there_is_only_ipv6(client_script: Path, network: Network):
    network.firewall("meta nfproto ipv4 drop;")
    net = NetOptions(loopback=False, ipv6=True, tcp_port=-1)
    async with (
        a_rig(Options(secret=SECRET, public_url="", workers=1, net=net), host=network.server6) as rig,
        a_browser(client_script, host=network.server6, inside=network.inside) as (browser, url),
    ):
        made = await rig.backend.create_input(a_session_id())
        publisher, viewer = await browser.open(url), await browser.open(url)
        await publisher.run(f"publishPlain({made.whip_url!r}, 'video/VP8')")
        await a_frame(rig.backend, made.ref)
        await viewer.run(f"playPlain({made.whep_url!r})")
        await watch(viewer, frames=30)
        assert (await viewer.run("path()"))["remote"]["address"] == network.server6


async def test_our_python_clients_publish_and_play_by_a_turn_server_of_the_link_header(network: Network):
    network.firewall(NO_UDP)
    async with a_relay(network.server) as relay, a_rig(options_of(network, relay), host=network.server) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url, inside=network.inside):
            await rig.heard(MediaKind.FRAMES)
            report = await play_json(made.whep_url, 1.0, inside=network.inside)
    assert report["frames"] > 10
