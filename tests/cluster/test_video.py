"""Any server takes and shows the video of any session; its home may die."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from sightline.video.assets import clip_path
from sightline_client import Frame, UnavailableError
from tests.client.api import Api
from tests.cluster.servers import Cluster, a_cluster
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until
from tests.video.support.harness import play_json


@pytest.fixture
def pair(data_directory: Path) -> Iterator[Cluster]:
    with a_cluster(data_directory, 2) as cluster:
        yield cluster


@dataclass
class Live:
    """A LIVE session: its consumer at each server, and the server that opened its input."""

    session_id: str
    consumer_key: str
    whip: str
    whep: str
    home: Server
    other: Server

    async def frame(self, server: Server, after: int | None = None) -> Frame:
        """The first frame that a poller gets from a server, newer than `after`."""
        query = {} if after is None else {"after": after, "wait_ms": 500}
        async with Api(server.url, key=self.consumer_key) as consumer:

            async def poll() -> Frame | None:
                try:
                    return await consumer.frame(self.session_id, **query)
                except UnavailableError:  # the home has ended, and its shards have no owner yet
                    return None

            return await until(poll, lambda frame: frame is not None, "a frame")


async def a_live_session(cluster: Cluster) -> Live:
    one, two = cluster.servers
    consumer = await a_tenant(one.url, "CONSUMER", "consumer")
    operator = await a_tenant(two.url, "SUPPLIER", "operator")
    await go_online(two.url, operator)
    async with Api(one.url, key=consumer.key) as watcher, Api(two.url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
        await watcher.post(f"/sessions/{session_id}/dispatch")
        started = await device.post(f"/sessions/{session_id}/start")
        whep = (await watcher.get(f"/sessions/{session_id}"))["whepUrl"]
    home, other = (one, two) if started["whipUrl"].startswith(one.url) else (two, one)
    return Live(
        session_id,
        consumer.key,
        started["whipUrl"].removeprefix(home.url),
        whep.removeprefix(home.url),
        home,
        other,
    )


@asynccontextmanager
async def publishing(url: str) -> AsyncIterator[None]:
    """Publish the clip, and publish again when the publisher ends, as a device does."""
    command = [sys.executable, "-m", "sightline.video.publish", str(clip_path()), "--whip", url]

    async def publish_forever() -> None:
        while True:
            await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_forever)
        yield
        nursery.cancel_scope.cancel()


async def test_a_session_is_published_watched_and_polled_at_a_server_that_is_not_its_home(pair: Cluster) -> None:
    await pair.start()
    live = await a_live_session(pair)
    async with publishing(live.other.url + live.whip):
        first = await live.frame(live.other)
        second = await live.frame(live.home, first.sequence)
        assert (await live.frame(live.other, second.sequence)).sequence > second.sequence > first.sequence
        assert (await play_json(live.other.url + live.whep, 1.0))["frames"] > 10
    await live.home.kill()
    async with publishing(live.other.url + live.whip):
        with trio.fail_after(15):
            assert (await live.frame(live.other)).sequence > second.sequence
