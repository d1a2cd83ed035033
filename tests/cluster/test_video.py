"""Any server takes and shows the video of any session; its home may die."""

import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import av
import pytest
import trio

from sightline_client import AsyncSightline, Frame, OutcomeUnknownError, UnavailableError
from sightline_client.video.assets import clip_path
from tests.client.api import Api
from tests.cluster.servers import Cluster, a_cluster
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until
from tests.video.support.harness import play_json

TAKE_OVER_S = 60.0
"""A lease of 6 s, the publisher's own timeout of 10 s, and a very busy machine."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two servers shared by the tests of this module; the last test kills one."""
    with a_cluster(2, SIGHTLINE_VIDEO_CLIP_SECONDS="10") as cluster:
        trio.run(cluster.start)
        yield cluster


@dataclass
class Live:
    """A LIVE session: its consumer at each server, and the server that opened its input."""

    session_id: str
    consumer: Tenant
    whip: str
    whep: str
    home: Server
    other: Server

    async def frame(self, server: Server, after: int | None = None) -> Frame:
        """The first frame that a poller gets from a server, newer than `after`."""
        query = {} if after is None else {"after": after, "wait_ms": 500}
        async with Api(server.url, key=self.consumer.key) as consumer:

            async def poll() -> Frame | None:
                try:
                    return await consumer.frame(self.session_id, **query)
                except UnavailableError:  # the home has ended, and its shards have no owner yet
                    return None

            return await until(poll, lambda frame: frame is not None, "a frame")


async def a_live_session(cluster: Cluster, name: str, degrees_north: int) -> Live:
    """A session that starts at a place of its own, so that no other operator is dispatched."""
    one, two = cluster.servers
    place = (PLACE[0] + degrees_north, PLACE[1])
    consumer = await a_tenant(one.url, "CONSUMER", f"consumer-{name}")
    operator = await a_tenant(two.url, "SUPPLIER", f"operator-{name}")
    await go_online(two.url, operator, place)
    async with Api(one.url, key=consumer.key) as watcher, Api(two.url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=place[0], lng=place[1], maxDurationSeconds=600))["id"]
        await watcher.post(f"/sessions/{session_id}/dispatch")
        started = await device.post(f"/sessions/{session_id}/start")
        whep = (await watcher.get(f"/sessions/{session_id}"))["whepUrl"]
    home, other = (one, two) if started["whipUrl"].startswith(one.url) else (two, one)
    return Live(
        session_id,
        consumer,
        started["whipUrl"].removeprefix(home.url),
        whep.removeprefix(home.url),
        home,
        other,
    )


@asynccontextmanager
async def a_device(server: Server, operator: Tenant) -> AsyncIterator[None]:
    """Run `sightline device` at a server."""
    place = (f"--lat={PLACE[0]}", f"--lng={PLACE[1]}")
    command = [sys.executable, "-m", "sightline.cli", "device", "--api", server.url, *place]
    env = os.environ | {"SIGHTLINE_API_KEY": operator.key}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.run_process, command, env=env, capture_stdout=True, capture_stderr=True))
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def publishing(url: str) -> AsyncIterator[None]:
    """Publish the clip, and publish again when the publisher ends, as a device does."""
    command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", url]

    async def publish_forever() -> None:
        while True:
            await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_forever)
        yield
        nursery.cancel_scope.cancel()


async def test_a_device_at_one_server_films_for_a_consumer_at_another_who_is_charged(pair: Cluster) -> None:
    one, two = pair.servers
    consumer = await a_tenant(one.url, "CONSUMER", "consumer-device")
    operator = await a_tenant(two.url, "SUPPLIER", "operator-device")
    await go_online(two.url, operator)
    async with Api(one.url, key=consumer.key) as api, a_device(two, operator):
        path = f"/sessions/{(await api.post('/sessions', lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))['id']}"
        await api.post(f"{path}/dispatch")
        # Time is charged only if the heartbeats at one server and the media of the home meet in the session.
        seen = await until(lambda: api.get(path), lambda session: session["cleanSeconds"] >= 2, "charged")
        assert seen["meterState"] == "RUNNING"
        for server in pair.servers:
            async with Api(server.url, key=consumer.key) as poller:
                assert await poller.frame(seen["id"]) is not None
        ended = await api.post(f"{path}/end")
        assert int(ended["chargedMicroUsdc"]) == ended["cleanSeconds"] * int(ended["ratePerSecondMicroUsdc"]) > 0


async def test_a_session_is_published_watched_and_polled_at_a_server_that_is_not_its_home(pair: Cluster) -> None:
    live = await a_live_session(pair, "first", 1)
    async with publishing(live.other.url + live.whip):
        first = await live.frame(live.other)
        second = await live.frame(live.home, first.sequence)
        assert (await live.frame(live.other, second.sequence)).sequence > second.sequence > first.sequence
        assert (await play_json(live.other.url + live.whep, 1.0))["frames"] > 10
        for server in (live.home, live.other):
            async with AsyncSightline(server.url, key=live.consumer.key) as consumer:
                clip = await consumer.sessions.clip(live.session_id, seconds=1)
            with av.open(io.BytesIO(clip.video)) as container:
                assert sum(1 for _ in container.decode(video=0)) == clip.frames > 10


async def connections(server: Server) -> int:
    """How many viewers have connected to the media workers of a server."""
    await trio.lowlevel.checkpoint()
    return server.log().count("viewer_connected")


async def test_a_sign_in_that_ends_at_one_server_ends_its_video_at_the_home_of_the_input(pair: Cluster) -> None:
    live = await a_live_session(pair, "third", 3)
    async with (
        publishing(live.home.url + live.whip),
        Api(live.other.url) as person,
        trio.open_nursery() as watching,
    ):
        signed_in = await person.auth.sign_in(live.consumer.wallet, workspace_id=live.consumer.workspace_id)
        assert signed_in.workspaces
        whep = (await person.get(f"/sessions/{live.session_id}/viewer-token"))["whepUrl"]
        await live.frame(live.home)
        play_url = live.other.url + "/whep/" + whep.rpartition("/")[2]
        assert (await play_json(play_url, 1.0))["frames"] > 10
        over = trio.Event()
        before = await connections(live.home)

        async def watch() -> None:
            await play_json(play_url, 200.0)  # the check may come before its first frame
            over.set()

        watching.start_soon(watch)
        await until(partial(connections, live.home), lambda count: count > before, "watched")
        await person.post("/auth/logout")
        with trio.fail_after(100):  # a sign-in is remembered for 5 s, and checked every 15 s
            await over.wait()


async def test_when_the_home_hangs_and_dies_the_survivor_takes_the_publisher_and_sequences_rise(pair: Cluster) -> None:
    live = await a_live_session(pair, "second", 2)
    async with publishing(live.other.url + live.whip):
        before = await live.frame(live.other)
        assert live.home.process is not None
        live.home.process.send_signal(signal.SIGSTOP)
        async with Api(live.other.url, key=live.consumer.key) as poller:
            with trio.move_on_after(2), suppress(UnavailableError, OutcomeUnknownError):
                assert await poller.frame(live.session_id) is None  # no old picture
        await live.home.kill()
        with trio.fail_after(TAKE_OVER_S):
            assert (await live.frame(live.other, before.sequence)).sequence > before.sequence
            assert (await play_json(live.other.url + live.whep, 1.0))["frames"] > 10
