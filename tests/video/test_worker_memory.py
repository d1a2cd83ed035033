"""A media worker frees closed peers by itself, and ends over its limit of memory."""

import asyncio
import gc
import queue
import resource
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress

import pytest
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.ports.video import FrameQuery, MediaKind, SignalRequest, VideoBackend
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.video.options import Options
from sightline.video.rtc.peer import RtcPeer
from sightline.video.worker.media_server import COLLECT_EVERY_PEERS, MediaServer
from sightline.video.worker.memory import EXIT_CODE, MemoryLimit, pause_s
from tests.video.support.harness import SECRET, a_frame, a_rig, a_session_id, publishing
from tests.video.support.hostile import sending
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

    assert asyncio.run(asyncio.wait_for(peers_left(), 60)) == 0


def test_a_worker_over_its_limit_ends_itself() -> None:
    ended: queue.Queue[int] = queue.Queue()
    hard = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        MemoryLimit(1, end=ended.put, harden=False).start()
        assert ended.get(timeout=60) == EXIT_CODE
    finally:
        assert resource.getrlimit(resource.RLIMIT_DATA) == hard


async def poll(backend: VideoBackend, ref: str) -> None:
    """Ask for frames for ever, so that the decoder of an input is never released."""
    while True:
        with suppress(VideoUnavailableError):
            await backend.frame(ref, FrameQuery())
        await trio.sleep(0.05)


async def test_after_a_worker_ran_out_of_memory_the_inputs_of_others_come_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = Options(secret=SECRET, public_url="", workers=1, worker_memory_mb=170)
    async with a_rig(options) as rig:
        honest = await rig.backend.create_input(a_session_id())
        async with publishing(honest.whip_url):
            before = await a_frame(rig.backend, honest.ref)
            hostile = [await rig.backend.create_input(a_session_id()) for _ in range(2)]
            async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
                for each in hostile:
                    await stack.enter_async_context(sending(each.whip_url, "still:3840x2160:6"))
                for each in hostile:  # polls make the worker decode: the first one may be enough to end it
                    nursery.start_soon(poll, rig.backend, each.ref)
                await rig.heard(MediaKind.DISCONNECTED)
                nursery.cancel_scope.cancel()
            assert (await a_frame(rig.backend, honest.ref)).sequence > before.sequence
    logged = capfd.readouterr()
    assert (logged.out + logged.err).count("media_worker_memory_exceeded") >= 1


def test_memory_is_looked_at_more_often_while_it_grows_or_is_near_the_limit() -> None:
    calm = pause_s(100, 100, 1_000)
    assert pause_s(100, 90, 1_000) == calm
    assert calm > pause_s(0, 100, 1_000) == pause_s(100, 101, 1_000) == pause_s(600, 500, 1_000)
