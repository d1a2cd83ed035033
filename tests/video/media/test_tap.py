"""The frame tap alone: when it decodes, what it shares, and which pictures it does not serve."""

import asyncio
from collections.abc import Awaitable, Callable
from fractions import Fraction

import av
import numpy as np
import simplejpeg
from aiortc.codecs.h264 import H264Encoder

from sightline.ports.video import Frame, FrameMissing, FrameMissingReason, FrameQuery, PictureState
from sightline.video.media.codecs import H264Format
from sightline.video.media.decoder_budget import DecoderBudget
from sightline.video.media.picture import SIZE_CHANGES_MAX, SIZE_CHANGES_MS, SLICE_S, PictureDecoder, SizeChanges
from sightline.video.media.picture_size import PictureLimit
from sightline.video.media.picture_threads import PictureThreads
from sightline.video.media.stream import GopCache, StreamFrame
from sightline.video.media.tap import FrameTap
from tests.video.support.bitstreams import a_group


class Bench:
    """A tap with its own clock and an encoder that feeds it."""

    def __init__(self, width: int = 320, height: int = 180, warm_ms: int = 3000) -> None:
        self.now_ms = 1_000_000
        self.keys_asked = 0
        self.gop = GopCache(max_bytes=1_000_000, max_ms=12_000)
        threads = PictureThreads(mono_ms=lambda: self.now_ms)
        self.is_lost = False
        self.tap = FrameTap(
            self.gop,
            share=threads.share(),
            budget=DecoderBudget(1_000_000_000),
            limit=PictureLimit(),
            ask_key=self._ask,
            is_lost=lambda: self.is_lost,
            now_ms=lambda: self.now_ms,
            warm_ms=warm_ms,
            key_every_ms=900,
        )
        self.format = H264Format()
        self._size = (width, height)
        self._encoder = H264Encoder()
        self._index = 0
        self.shown = self.picture(0)

    def _ask(self) -> None:
        self.keys_asked += 1

    def picture(self, value: int) -> np.ndarray:
        """Draw a moving bar on a grey ground."""
        width, height = self._size
        image = np.full((height, width, 3), 90, np.uint8)
        image[:, value * 7 % width : value * 7 % width + 24] = 230
        return image

    def feed(self, image: np.ndarray | None = None, *, key: bool = False, step_ms: int = 33) -> StreamFrame:
        """Encode one frame and pass it to the tap."""
        self.now_ms += step_ms
        self.shown = self.picture(self._index) if image is None else image
        frame = av.VideoFrame.from_ndarray(self.shown, format="rgb24")
        frame.pts, frame.time_base = self._index * 3000, Fraction(1, 90_000)
        self._index += 1
        payloads, timestamp = self._encoder.encode(frame, force_keyframe=key)
        whole = self.format.complete(payloads, key=any(self.format.is_key(payload) for payload in payloads))
        assert whole is not None
        stream = StreamFrame(
            sequence=self.now_ms,
            timestamp=timestamp,
            payloads=whole,
            key=any(self.format.is_key(payload) for payload in whole),
            size=sum(map(len, whole)),
            received_at_ms=self.now_ms,
            captured_at_ms=self.now_ms,
            captured_by_rtcp=False,
            publisher_epoch=1,
            layer=1,
            format=self.format,
        )
        self.gop.add(stream)
        self.tap.on_frame(stream)
        return stream

    def feed_nals(self, nals: list[bytes], *, step_ms: int = 33) -> StreamFrame:
        """Pass a frame of hand-made NAL units to the tap."""
        self.now_ms += step_ms
        stream = StreamFrame(
            sequence=self.now_ms,
            timestamp=0,
            payloads=tuple(nals),
            key=any(nal[0] & 0x1F == 5 for nal in nals),
            size=sum(map(len, nals)),
            received_at_ms=self.now_ms,
            captured_at_ms=self.now_ms,
            captured_by_rtcp=False,
            publisher_epoch=1,
            layer=1,
            format=self.format,
        )
        self.gop.add(stream)
        self.tap.on_frame(stream)
        return stream

    async def get(self, query: FrameQuery | None = None) -> Frame:
        reply = await self.tap.frame(query or FrameQuery())
        assert isinstance(reply, Frame), reply
        return reply


def on_asyncio(work: Callable[[Bench], Awaitable[None]], **options: int) -> None:
    async def run() -> None:
        await asyncio.wait_for(work(Bench(**options)), 20)  # type: ignore[arg-type]

    asyncio.run(run())


def test_nothing_is_decoded_until_somebody_polls_and_then_the_newest_comes():
    async def work(bench: Bench) -> None:
        for _ in range(20):
            newest = bench.feed()
        assert (bench.tap.decoded, bench.tap.awake) == (0, False)
        frame = await bench.get()
        assert frame.sequence == newest.sequence
        assert bench.tap.decoded == 20, "from the cached keyframe on"
        shown = simplejpeg.decode_jpeg(frame.jpeg)
        assert np.abs(shown.astype(int) - bench.picture(19).astype(int)).mean() < 6

    on_asyncio(work)


def test_rare_polls_decode_only_since_the_last_keyframe_and_silence_puts_it_to_sleep():
    async def work(bench: Bench) -> None:
        bench.feed()
        await bench.get()
        for _ in range(60):
            bench.feed()
        bench.feed(key=True)
        bench.feed()
        await bench.get()
        assert bench.tap.decoded == 3, "1 at first, then the keyframe and its follower"
        for _ in range(4):
            bench.feed(step_ms=1000)
        assert not bench.tap.awake

    on_asyncio(work)


def test_a_steady_slow_poll_finds_a_fresh_keyframe_and_still_gets_the_newest_frame():
    async def work(bench: Bench) -> None:
        newest = bench.feed()
        decoded: list[int] = []
        asked = 0
        for _ in range(6):
            before = bench.tap.decoded
            frame = await bench.get()
            decoded.append(bench.tap.decoded - before)
            assert frame.sequence == newest.sequence
            assert np.abs(simplejpeg.decode_jpeg(frame.jpeg).astype(int) - bench.shown.astype(int)).mean() < 6
            for _ in range(30):
                newest = bench.feed(key=bench.keys_asked > asked)
                asked = bench.keys_asked if newest.key else asked
        assert decoded[:3] == [1, 30, 30], "no rhythm is known yet"
        assert max(decoded[3:]) <= 6
        assert bench.keys_asked == 4

    on_asyncio(work)


def test_a_slow_poll_at_the_end_of_a_group_waits_for_the_keyframe_and_serves_it():
    async def work(bench: Bench) -> None:
        for group in range(4):
            bench.feed(key=True)
            if not group:
                await bench.get()
            for _ in range(29):
                bench.feed()
        before = bench.tap.decoded
        waiting = asyncio.create_task(bench.get())
        await asyncio.sleep(0)
        key = bench.feed(key=True)
        assert (await waiting).sequence == key.sequence
        assert bench.tap.decoded - before == 1

    on_asyncio(work, warm_ms=60_000)


def test_a_keyframe_that_does_not_come_in_time_leaves_the_poll_the_newest_frame():
    async def work(bench: Bench) -> None:
        for group in range(4):
            bench.feed(key=True)
            if not group:
                await bench.get()
            for _ in range(29):
                newest = bench.feed()
        assert (await bench.get()).sequence == newest.sequence

    on_asyncio(work, warm_ms=60_000)


def test_frequent_polls_never_cost_the_publisher_a_keyframe():
    async def work(bench: Bench) -> None:
        bench.feed()
        for _ in range(40):
            await bench.get()
            for _ in range(6):
                bench.feed()
        assert bench.keys_asked == 0

    on_asyncio(work)


def test_a_waiting_poll_gets_the_next_frame_when_it_comes():
    async def work(bench: Bench) -> None:
        first = bench.feed()
        await bench.get()
        waiting = asyncio.create_task(bench.get(FrameQuery(after=first.sequence, wait_ms=5000)))
        await asyncio.sleep(0)
        second = bench.feed()
        assert (await waiting).sequence == second.sequence

    on_asyncio(work)


def test_pollers_of_the_same_picture_share_one_encoding():
    async def work(bench: Bench) -> None:
        bench.feed()
        frames = await asyncio.gather(*(bench.get() for _ in range(10)))
        assert len({frame.jpeg for frame in frames}) == 1
        assert bench.tap.encoded == 1
        small = await asyncio.gather(*(bench.get(FrameQuery(width=160, quality=50)) for _ in range(5)))
        assert bench.tap.encoded == 2
        assert (small[0].width, small[0].height) == (160, 90)
        await bench.get(FrameQuery(width=4000))
        assert bench.tap.encoded == 2, "never enlarged: the same as full size"

    on_asyncio(work)


def test_any_width_gives_a_picture_of_that_width():
    async def work(bench: Bench) -> None:
        bench.feed()
        for width in (16, 33, 101, 255, 319):
            frame = await bench.get(FrameQuery(width=width))
            decoded = simplejpeg.decode_jpeg(frame.jpeg)
            assert decoded.shape[1] == frame.width == width
            assert decoded.shape[0] == frame.height == round(180 * width / 320)

    on_asyncio(work)


def test_an_old_frame_is_stale_and_an_empty_input_has_none():
    async def work(bench: Bench) -> None:
        none = await bench.tap.frame(FrameQuery())
        assert isinstance(none, FrameMissing)
        assert none.reason is FrameMissingReason.NOT_DECODED
        newest = bench.feed()
        bench.now_ms += 600
        stale = await bench.tap.frame(FrameQuery(max_age_ms=500))
        assert stale == FrameMissing(reason=FrameMissingReason.STALE, sequence=newest.sequence)
        assert (await bench.get(FrameQuery(max_age_ms=1000))).age_ms == 600
        same = await bench.tap.frame(FrameQuery(after=newest.sequence))
        assert same == FrameMissing(reason=FrameMissingReason.NOT_NEWER, sequence=newest.sequence)

    on_asyncio(work)


def test_a_damaged_stream_shows_nothing_until_the_next_keyframe():
    async def work(bench: Bench) -> None:
        bench.feed()
        await bench.get()
        good = bench.feed()
        broken = StreamFrame(
            sequence=good.sequence + 33,
            timestamp=good.timestamp + 3000,
            payloads=(b"\x65" + b"\xff" * 200,),
            key=True,
            size=201,
            received_at_ms=good.received_at_ms + 33,
            captured_at_ms=good.captured_at_ms + 33,
            captured_by_rtcp=False,
            publisher_epoch=1,
            layer=1,
            format=H264Format(),
        )
        bench.gop.add(broken)
        bench.tap.on_frame(broken)
        bench.now_ms += 33
        reply = await bench.tap.frame(FrameQuery(after=good.sequence))
        assert isinstance(reply, FrameMissing), "a smear was served"
        assert bench.keys_asked
        fresh = bench.feed(key=True)
        assert (await bench.get()).sequence == fresh.sequence

    on_asyncio(work)


def test_black_frozen_and_live_are_told_apart():
    async def work(bench: Bench) -> None:
        bench.feed()
        assert (await bench.get()).state is PictureState.LIVE
        still = bench.picture(1)
        for _ in range(12):
            bench.feed(still, step_ms=400)
            state = (await bench.get()).state
        assert state is PictureState.FROZEN
        bench.feed()
        assert (await bench.get()).state is PictureState.LIVE
        bench.feed(np.zeros_like(still), key=True)
        black = await bench.get()
        assert black.state is PictureState.BLACK
        assert simplejpeg.decode_jpeg(black.jpeg).mean() < 4, "limited-range black must be full-range black"

    on_asyncio(work)


def test_a_picture_is_lost_while_no_frame_arrives_whatever_it_shows():
    async def work(bench: Bench) -> None:
        bench.feed(np.zeros_like(bench.picture(1)))
        bench.is_lost = True
        frame = await bench.get()
        assert frame.state is PictureState.LOST
        missing = await bench.tap.frame(FrameQuery(after=frame.sequence))
        assert isinstance(missing, FrameMissing)
        assert missing.is_lost
        bench.is_lost = False
        assert (await bench.get()).state is PictureState.BLACK

    on_asyncio(work)


def test_a_picture_that_is_being_encoded_when_it_is_forgotten_is_not_served():
    async def work(bench: Bench) -> None:
        bench.feed()
        await bench.get()
        polling = asyncio.create_task(bench.tap.frame(FrameQuery(width=64)))
        while bench.tap.encoded < 2:  # noqa: ASYNC110  # the tap tells nobody that it encodes
            await asyncio.sleep(0)
        bench.tap.forget()
        reply = await polling
        assert isinstance(reply, FrameMissing)
        assert reply.reason is FrameMissingReason.NOT_DECODED

    on_asyncio(work)


def test_a_poll_that_waits_while_another_publisher_takes_over_gets_the_new_picture():
    async def work(bench: Bench) -> None:
        first = bench.feed()
        await bench.get()
        polling = asyncio.create_task(bench.tap.frame(FrameQuery(after=first.sequence, wait_ms=10_000)))
        while bench.tap._waiters == 0:  # noqa: ASYNC110  the tap tells nobody that a poll waits
            await asyncio.sleep(0)
        bench.tap.forget()
        bench.gop.clear()
        newer = bench.feed(key=True)
        reply = await polling
        assert isinstance(reply, Frame), reply
        assert reply.sequence == newer.sequence

    on_asyncio(work)


def a_keyframe(width: int, height: int, **sps: int) -> list[bytes]:
    return next(a_group(width, height, 1, **sps))


def test_a_picture_over_the_limit_is_refused_before_it_is_decoded_and_smaller_ones_are_served_again():
    async def work(bench: Bench) -> None:
        for nals in (a_keyframe(16384, 8192), a_keyframe(3840, 2160, references=16)):
            large = bench.feed_nals(nals)
            missing = await bench.tap.frame(FrameQuery())
            assert missing == FrameMissing(reason=FrameMissingReason.TOO_LARGE, sequence=large.sequence)
            assert (bench.tap.decoded, bench.tap.awake, bench.keys_asked) == (0, False, 0)
        bench.feed_nals(a_keyframe(640, 352))
        assert (await bench.get()).width == 640

    on_asyncio(work)


def test_a_large_picture_hidden_in_a_later_frame_is_refused():
    async def work(bench: Bench) -> None:
        bench.feed_nals(a_keyframe(640, 352))
        await bench.get()
        hidden = b"".join(b"\0\0\1" + nal for nal in a_keyframe(16384, 4096))
        bench.feed_nals([b"\x61\xe0" + hidden])
        missing = await bench.tap.frame(FrameQuery())
        assert isinstance(missing, FrameMissing)
        assert missing.reason is FrameMissingReason.TOO_LARGE
        assert bench.tap.decoded == 1

    on_asyncio(work)


def test_a_size_that_changes_with_every_keyframe_creates_few_decoders():
    async def work(bench: Bench) -> None:
        replies = []
        for number in range(40):
            bench.feed_nals(a_keyframe(640 + 16 * (number % 2), 352))
            replies.append(await bench.tap.frame(FrameQuery()))
        assert sum(isinstance(reply, Frame) for reply in replies) <= 2 * SIZE_CHANGES_MAX
        bench.feed_nals(a_keyframe(320, 176), step_ms=SIZE_CHANGES_MS)
        assert (await bench.get()).width == 320

    on_asyncio(work)


def test_frames_that_take_long_to_decode_let_others_have_the_thread_between_them():
    spent_s = 0.0

    def cpu_s() -> float:
        nonlocal spent_s
        spent_s += SLICE_S
        return spent_s

    decoder = PictureDecoder("h264", PictureLimit(), SizeChanges(lambda: 0), cpu_s)
    bench = Bench()
    frames = [bench.feed_nals(nals) for nals in a_group(640, 352, 3)]
    assert decoder.decode(frames) == (1, None)
    assert decoder.decode(frames[1:]) == (1, None)
    taken, picture = decoder.decode(frames[2:])
    assert taken == 1
    assert picture is not None
    assert picture.source is frames[2]
