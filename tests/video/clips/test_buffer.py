"""What is kept for clips, and what a clip of it has: time and memory are arguments, nothing is received."""

import asyncio
import io
import itertools
from collections.abc import Iterator
from fractions import Fraction

import av
import pytest

from sightline.domain.value import replace
from sightline.ports.video import Clip, ClipMissingReason, ClipReply
from sightline.video.media.clip import (
    KEY_EVERY_MS,
    LATE_KEY_MS,
    STALE_MS,
    ClipBuffer,
)
from sightline.video.media.codecs import H264Format, PayloadFormat, Vp8Format
from sightline.video.media.picture_size import UnreadableSizeError, shown_size_of_h264, shown_size_of_vp8
from sightline.video.media.picture_threads import PictureThreads
from sightline.video.media.stream import StreamFrame
from tests.video.support.bitstreams import START, a_group, an_sps, annex_b

FORMAT = H264Format()
FRAME_MS = 40


class Bench:
    """A buffer with its own clock."""

    def __init__(self, *, keep_ms: int = 5_000, max_bytes: int = 16_000_000) -> None:
        self.now_ms = 1_000_000
        self.max_bytes = max_bytes
        self.threads = PictureThreads(mono_ms=lambda: self.now_ms)
        self.buffer = ClipBuffer(
            keep_ms=keep_ms,
            max_bytes=lambda: self.max_bytes,
            share=self.threads.share(),
            now_ms=lambda: self.now_ms,
        )
        self.sequence = 0

    def feed(
        self,
        nals: list[bytes],
        *,
        shown_ms: int | None = None,
        fmt: PayloadFormat = FORMAT,
        key: bool | None = None,
    ) -> StreamFrame:
        """Receive one frame; `shown_ms` is its time of display, by default that of its arrival."""
        self.now_ms += FRAME_MS
        self.sequence += 1
        frame = StreamFrame(
            sequence=self.sequence,
            timestamp=(self.now_ms if shown_ms is None else shown_ms) * 90,
            payloads=tuple(nals),
            key=any(each[0] & 0x1F == 5 for each in nals) if key is None else key,
            size=sum(map(len, nals)),
            received_at_ms=self.now_ms,
            captured_at_ms=self.now_ms - 30,
            captured_by_rtcp=True,
            publisher_epoch=7,
            layer=1,
            format=fmt,
        )
        self.buffer.add(frame)
        return frame

    def feed_groups(self, groups: int, *, width: int = 64, height: int = 64, frames: int = 25) -> None:
        """Receive groups of pictures of a second each."""
        for _ in range(groups):
            for nals in a_group(width, height, frames):
                self.feed(nals)

    def clip(self, seconds: int) -> ClipReply:
        return asyncio.run(self._clip(seconds))

    async def _clip(self, seconds: int) -> ClipReply:
        return await self.buffer.clip(seconds)


def taken(bench: Bench, seconds: int) -> Clip:
    reply = bench.clip(seconds)
    assert isinstance(reply, Clip), reply
    return reply


def refused(bench: Bench, seconds: int = 5) -> ClipMissingReason:
    reply = bench.clip(seconds)
    assert not isinstance(reply, Clip)
    return reply.reason


def pictures(clip: Clip) -> list[av.VideoFrame]:
    with av.open(io.BytesIO(clip.video)) as container:
        return list(container.decode(video=0))


def test_a_clip_starts_at_the_keyframe_before_the_seconds_asked_for():
    bench = Bench()
    bench.feed_groups(8)
    for nals in list(a_group(64, 64, 25))[:10]:
        bench.feed(nals)
    clip = taken(bench, 2)
    assert clip.frames == 60, "the newest keyframes are 0.4, 1.4 and 2.4 s old: two seconds need the third"
    assert clip.ended_at_ms - clip.started_at_ms == (clip.frames - 1) * FRAME_MS
    assert len(pictures(clip)) == clip.frames


@pytest.mark.parametrize("seconds", [5, 30])
def test_no_more_is_kept_than_the_setting_and_one_group(seconds: int):
    bench = Bench(keep_ms=5_000)
    bench.feed_groups(60)
    clip = taken(bench, seconds)
    assert 5_000 <= clip.ended_at_ms - clip.started_at_ms <= 6_000
    assert clip.frames == 150


def test_memory_is_bounded_also_when_the_limit_sinks():
    bench = Bench(keep_ms=30_000, max_bytes=60_000)
    bench.feed_groups(20)
    assert 0 < bench.buffer.octets <= 60_000
    assert taken(bench, 30).frames < 20 * 25
    bench.max_bytes = 20_000
    bench.feed_groups(1)
    assert 0 < bench.buffer.octets <= 20_000
    bench.max_bytes = 100
    bench.feed_groups(1)
    assert bench.buffer.octets == 0
    assert refused(bench) is ClipMissingReason.NOT_RECEIVED


def test_tiny_frames_count_with_the_memory_of_their_objects():
    bench = Bench(keep_ms=30_000, max_bytes=100_000)
    key, still = list(a_group(16, 16, 2))
    bench.feed(key)
    for _ in range(500):
        bench.feed(still)
    assert bench.sequence == 501
    assert refused(bench) is ClipMissingReason.NOT_RECEIVED, "one group that grew beyond the limit"


def test_a_publisher_without_keyframes_is_asked_for_them_and_does_not_fill_the_memory():
    bench = Bench(keep_ms=5_000)
    assert bench.buffer.wants_key()
    key, still = list(a_group(64, 64, 2))
    bench.feed(key)
    assert not bench.buffer.wants_key()
    for _ in range(KEY_EVERY_MS // FRAME_MS):
        bench.feed(still)
    assert bench.buffer.wants_key()
    for _ in range((5_000 + LATE_KEY_MS - KEY_EVERY_MS) // FRAME_MS):
        bench.feed(still)
    assert taken(bench, 5).frames == (5_000 + LATE_KEY_MS) // FRAME_MS + 1
    bench.feed(still)
    assert bench.buffer.octets == 0


def test_a_server_that_keeps_nothing_asks_for_no_keyframe_and_says_so():
    bench = Bench(keep_ms=0)
    bench.feed_groups(1)
    assert bench.buffer.octets == 0
    assert not bench.buffer.wants_key()
    assert refused(bench) is ClipMissingReason.OFF


def test_a_clip_does_not_begin_in_the_middle_of_a_group():
    bench = Bench()
    for nals in list(a_group(64, 64, 5))[1:]:
        bench.feed(nals)
    assert refused(bench) is ClipMissingReason.NOT_RECEIVED


def test_old_video_is_refused_as_stale():
    bench = Bench()
    bench.feed_groups(2)
    bench.now_ms += STALE_MS
    assert taken(bench, 5).age_ms == STALE_MS
    bench.now_ms += 1
    assert refused(bench) is ClipMissingReason.STALE


def test_a_clip_that_is_in_work_when_its_publisher_goes_is_not_returned():
    bench = Bench()
    bench.feed_groups(2)

    async def take_over() -> ClipReply:
        asked = asyncio.create_task(bench.buffer.clip(5))
        await asyncio.sleep(0)
        bench.buffer.forget()
        bench.feed_groups(2)
        return await asked

    reply = asyncio.run(take_over())
    assert not isinstance(reply, Clip)
    assert reply.reason is ClipMissingReason.NOT_RECEIVED


def test_a_clip_of_h264_has_one_size_of_picture():
    bench = Bench(keep_ms=30_000)
    bench.feed_groups(2, width=64, height=64)
    bench.feed_groups(2, width=128, height=96)
    clip = taken(bench, 30)
    assert (clip.width, clip.height, clip.frames) == (128, 96, 50)
    assert {(frame.width, frame.height) for frame in pictures(clip)} == {(128, 96)}


def test_a_clip_of_vp8_keeps_pictures_of_every_size():
    bench = Bench(keep_ms=30_000)
    for width, height in ((64, 48), (128, 96)):
        codec = av.CodecContext.create("libvpx", "w")
        codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, "yuv420p", Fraction(1, 25)
        codec.options = {"deadline": "realtime", "lag-in-frames": "0"}
        for number in range(25):
            picture = av.VideoFrame(width, height, "yuv420p")
            for plane in picture.planes:
                plane.update(bytes([100]) * plane.buffer_size)
            picture.pts = number
            for packet in codec.encode(picture):
                bench.feed([b"\x10" + bytes(packet)], fmt=Vp8Format(), key=packet.is_keyframe)
    clip = taken(bench, 30)
    assert (clip.media_type, clip.width, clip.height) == ("video/webm", 128, 96)
    assert [(frame.width, frame.height) for frame in pictures(clip)] == [(64, 48)] * 25 + [(128, 96)] * 25


def test_a_keyframe_that_does_not_say_its_size_gives_no_clip():
    bench = Bench()
    bench.feed([next(iter(a_group(64, 64, 1)))[2]])
    assert refused(bench) is ClipMissingReason.UNREADABLE


def encoded(frames: int, **options: str) -> Iterator[tuple[list[bytes], int]]:
    """NAL units and time of display in ms of each frame, in the order in which an encoder sends them."""
    codec = av.CodecContext.create("libx264", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = 318, 180, "yuv420p", Fraction(1, 25)
    codec.options = {"preset": "ultrafast", **options}
    for index in [*range(frames), None]:
        picture = None
        if index is not None:
            picture = av.VideoFrame(318, 180, "yuv420p")
            for plane in picture.planes:
                plane.update(bytes([16 + index * 5 % 200]) * plane.buffer_size)
            picture.pts = index
        for packet in codec.encode(picture):
            assert packet.pts is not None
            units = bytes(packet).replace(START, START[1:]).split(START[1:])
            yield [unit for unit in units if unit], packet.pts * FRAME_MS


def test_reordered_frames_keep_their_times():
    bench = Bench()
    sent = list(encoded(50, bf="2", g="25", **{"x264-params": "b-adapt=0:scenecut=0"}))
    assert [shown for _, shown in sent] != sorted(shown for _, shown in sent), "the encoder reorders"
    for nals, shown in sent:
        bench.feed(nals, shown_ms=shown)
    clip = taken(bench, 5)
    seen = pictures(clip)
    assert (clip.width, clip.height, len(seen)) == (318, 180, 50)
    times = [float(frame.time or 0) for frame in seen]
    steps = {round(later - earlier, 3) for earlier, later in itertools.pairwise(times)}
    assert steps == {FRAME_MS / 1_000}


def test_times_that_jump_back_or_stand_still_still_give_a_clip():
    bench = Bench()
    for index, nals in enumerate(a_group(64, 64, 30)):
        bench.feed(nals, shown_ms=5_000_000 if index % 7 else 4_000_000 - index)
    assert len(pictures(taken(bench, 5))) == 30


def test_capture_times_are_the_publishers_only_if_both_are():
    bench = Bench()
    bench.feed_groups(1)
    newest = bench.feed(list(a_group(64, 64, 2))[1])
    assert taken(bench, 5).captured_by_rtcp
    bench.buffer.add(replace(newest, captured_by_rtcp=False, sequence=newest.sequence + 1))
    assert not taken(bench, 5).captured_by_rtcp


@pytest.mark.parametrize("shown", [None, (638, 362), (640, 360)])
def test_the_shown_size_is_the_cropped_one(shown: tuple[int, int] | None):
    assert shown_size_of_h264(annex_b([an_sps(640, 368, shown=shown)])) == (shown or (640, 368))


@pytest.mark.parametrize(
    ("size", "pixels", "parameters"),
    [
        ((1280, 716), "yuv420p", "interlaced=1"),
        ((720, 406), "yuv444p", ""),
        ((720, 406), "yuv422p", ""),
        ((638, 358), "yuv420p10le", "cqm=jvt"),
    ],
)
def test_the_shown_size_of_every_profile_is_read(size: tuple[int, int], pixels: str, parameters: str):
    codec = av.CodecContext.create("libx264", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = *size, pixels, Fraction(1, 25)
    codec.options = {"preset": "ultrafast"} | ({"x264-params": parameters} if parameters else {})
    picture = av.VideoFrame(*size, pixels)
    for plane in picture.planes:
        plane.update(bytes(plane.buffer_size))
    picture.pts = 0
    stream = b"".join(bytes(packet) for packet in [*codec.encode(picture), *codec.encode(None)])
    assert shown_size_of_h264(stream) == size


@pytest.mark.parametrize(
    "stream", [b"", START + b"\x67", START + b"\x67\x42", annex_b([an_sps(16, 16, shown=(0, 16))])]
)
def test_a_set_without_a_usable_size_is_refused(stream: bytes):
    with pytest.raises(UnreadableSizeError):
        shown_size_of_h264(stream)
    with pytest.raises(UnreadableSizeError):
        shown_size_of_vp8(stream)
