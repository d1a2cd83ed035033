"""go2rtc, an independent implementation, plays from Sightline; Sightline plays a stream published to go2rtc."""

import io
import itertools

import av
import httpx
import trio

from sightline.ports.video import MediaKind
from sightline.system.clock import SystemClock
from sightline.video.external.engine import open_external
from sightline.video.options import Options
from sightline.video.worker_template import open_template
from tests.e2e.server import until
from tests.video.support.engines import ReadOnlyEngine
from tests.video.support.harness import (
    SECRET,
    Recorder,
    a_frame,
    a_rig,
    a_session_id,
    counter_of,
    play_json,
    publishing,
)
from tests.video.support.real_engines import RealGo2Rtc, Received, a_go2rtc

WATCHED_S = 10


async def as_mp4(peer: RealGo2Rtc, stream: str, seconds: float) -> list[Received]:
    """Convert a stream to fragmented MP4 with go2rtc and decode it; return what go2rtc received each second."""
    taken = bytearray()
    seen: list[Received] = []

    async def count() -> None:
        while True:
            seen.append(await peer.received(stream))
            await trio.sleep(1)

    async with httpx.AsyncClient(timeout=90) as http, trio.open_nursery() as nursery:
        async with http.stream("GET", f"{peer.url}/api/stream.mp4", params={"src": stream}) as reply:
            assert reply.status_code == 200
            with trio.move_on_after(seconds):
                async for part in reply.aiter_bytes():
                    if not taken:
                        nursery.start_soon(count)
                    taken += part
        nursery.cancel_scope.cancel()
    with av.open(io.BytesIO(taken)) as container:
        frames = [(frame.width, frame.height) for frame in container.decode(video=0)]
    assert set(frames) == {(1280, 720)}
    assert len(frames) > seconds * 6, len(frames)
    return seen


async def test_go2rtc_plays_from_us_for_ten_seconds():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with a_go2rtc({"ours": f"webrtc:{made.whep_url}"}) as peer, publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            seen = await as_mp4(peer, "ours", WATCHED_S)
            assert len(seen) >= WATCHED_S // 2
            assert all(one.codecs == ["h264"] for one in seen)
            assert all(later.bytes_ > sooner.bytes_ for sooner, later in itertools.pairwise(seen)), seen
            assert seen[-1].packets > 10 * (WATCHED_S - 2)


async def test_go2rtc_makes_a_jpeg_of_what_it_plays_from_us():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with a_go2rtc({"ours": f"webrtc:{made.whep_url}"}) as peer, publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            async with httpx.AsyncClient(timeout=90) as http:
                reply = await http.get(f"{peer.url}/api/frame.jpeg", params={"src": "ours"})
            assert reply.status_code == 200, reply.text
            assert counter_of(reply.content) is not None


async def test_what_is_published_to_go2rtc_plays_from_it():
    async with a_go2rtc({"theirs": ""}) as peer, publishing(peer.whip_url("theirs")):
        await until(lambda: peer.received("theirs"), lambda found: found.codecs == ["h264"], "a publisher")
        played = await play_json(peer.whep_url("theirs"), 12.0)
        assert (played["width"], played["height"]) == (1280, 720)
        assert played["frames"] > 15
        assert (await peer.received("theirs")).packets > 30


async def test_our_reader_gives_frames_of_what_was_published_to_go2rtc():
    options = Options(secret=SECRET, public_url="http://unused", workers=1)
    async with a_go2rtc({"theirs": ""}) as peer, trio.open_nursery() as nursery:
        engine = ReadOnlyEngine(peer.whep_url("theirs"))
        async with (
            open_template() as template,
            open_external(engine, options, template, clock=SystemClock()) as backend,
        ):
            seen = Recorder(backend=backend)
            nursery.start_soon(seen.record)
            made = await backend.create_input(a_session_id())
            async with publishing(peer.whip_url("theirs")):
                await seen.heard(MediaKind.FRAMES)
                frame = await a_frame(backend, made.ref)
                assert (frame.width, frame.height) == (1280, 720)
                assert counter_of(frame.jpeg) is not None
        nursery.cancel_scope.cancel()
