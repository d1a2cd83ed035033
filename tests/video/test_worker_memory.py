"""A media worker frees closed peers by itself."""

import asyncio
import gc
import uuid
from collections.abc import Iterator

import pytest

from sightline.ports.video import SignalRequest
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.video.options import Options
from sightline.video.rtc.peer import RtcPeer
from sightline.video.worker.media_server import COLLECT_EVERY_PEERS, MediaServer
from tests.video.support.offers import an_obs_offer


@pytest.fixture
def without_automatic_collection() -> Iterator[None]:
    """Python's own schedule depends on all else that this process has allocated."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_automatic_collection")
def test_closed_peers_are_freed_although_their_transports_refer_to_each_other() -> None:
    async def publish_and_leave(media: MediaServer) -> None:
        offer = SignalRequest(
            kind="whip", method="POST", token="t", resource=None, headers={}, body=an_obs_offer(),
            base_url="http://127.0.0.1", client_ip="127.0.0.1",
        )  # fmt: skip
        for _ in range(COLLECT_EVERY_PEERS):
            session_id = str(uuid.uuid4())
            media.open(session_id)
            assert (await media.signal(session_id, offer)).status == 201
            media.close(session_id)

    async def peers_left() -> int:
        media = MediaServer(
            Options(secret=b"tests only, 16 bytes", public_url="http://127.0.0.1"),
            clock=SystemClock(), ids=SystemIds(), emit=lambda *_: None,
        )  # fmt: skip
        await publish_and_leave(media)
        assert media.stats()["closing"] == COLLECT_EVERY_PEERS
        running = asyncio.create_task(media.run())
        while media.stats()["closing"]:  # noqa: ASYNC110 (the worker has no event to wait for)
            await asyncio.sleep(0.05)
        running.cancel()
        await media.stop()
        return sum(isinstance(each, RtcPeer) for each in gc.get_objects())

    assert asyncio.run(asyncio.wait_for(peers_left(), 20)) == 0
