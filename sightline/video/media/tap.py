"""The newest frame of one input, decoded on demand.

Three modes. Asleep: no poll for `warm_ms`; there is no decoder, only the GOP cache. Lazy: polls are rare; frames are
kept and decoded at the next poll, from the newest keyframe on. For a steady poller a keyframe is requested just before
the poll (see `keyframe_schedule`). Eager: polls are frequent, or a poll is waiting for the next frame; every frame is
decoded as it arrives. A frame after a gap is not decoded: the tap waits for a keyframe.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, final

import av
import structlog

from sightline.domain.value import replace
from sightline.ports.video import (
    Frame,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    PictureState,
)
from sightline.video.media.decoder_budget import DecoderBudget
from sightline.video.media.keyframe_schedule import KeyframeSchedule
from sightline.video.media.picture import (
    Luma,
    Picture,
    PictureDecoder,
    SizeChanges,
    SizeChangesError,
    changed,
    encode_jpeg,
)
from sightline.video.media.picture_size import PictureLimit, PictureTooLargeError, UnreadableSizeError
from sightline.video.media.picture_threads import PictureShare
from sightline.video.media.stream import GopCache, StreamFrame

EAGER_POLL_MS: Final = 300.0
"""Mean interval of polls below which every frame is decoded."""
FROZEN_AFTER_MS: Final = 3_000
PENDING_MAX: Final = 900
PATIENCE_MS: Final = 900
"""How long a poll waits for a requested keyframe if no frame can be decoded yet."""
JPEG_CACHE_MAX: Final = 16
JPEG_KEPT_MAX_BYTES: Final = 1_000_000
"""A larger JPEG is not kept for further polls."""
log = structlog.get_logger()


@final
class FrameTap:
    """Serves frames of one input.

    Args:
        gop: The input's GOP cache, decoded first when a decoder starts.
        ask_key: Requests a keyframe from the publisher.
        is_lost: Whether no frame arrives from the publisher.
        now_ms: Unix time in milliseconds.
        key_every_ms: Minimum interval of keyframes requested for slow pollers; 0 means none.
        share: The input's share of the threads that decode and encode.
    """

    def __init__(
        self,
        gop: GopCache,
        *,
        share: PictureShare,
        budget: DecoderBudget,
        limit: PictureLimit,
        ask_key: Callable[[], None],
        is_lost: Callable[[], bool],
        now_ms: Callable[[], int],
        warm_ms: int,
        key_every_ms: int,
    ) -> None:
        self._gop = gop
        self._share = share
        self._budget = budget
        self._limit = limit
        self._size_changes = SizeChanges(now_ms)
        self._ask_key = ask_key
        self._is_lost = is_lost
        self._forgotten = 0
        self._now_ms = now_ms
        self._warm_ms = warm_ms
        self._decoder: PictureDecoder | None = None
        self._pending: list[StreamFrame] = []
        self._picture: Picture | None = None
        self._newest: StreamFrame | None = None
        self._decoding = asyncio.Lock()
        self._eager_task: asyncio.Task[None] | None = None
        self._arrival = asyncio.Event()
        self._waiters = 0
        self._poll_every_ms = 10_000.0
        self.polled_ms = 0
        self._keyframes = KeyframeSchedule(key_every_ms=key_every_ms)
        self._jpegs: dict[tuple[int, int | None, int], asyncio.Future[tuple[bytes, int, int]]] = {}
        self._still: tuple[Luma, int] | None = None
        self._failure: str | None = None
        self._is_too_large = False
        self.decoded = self.encoded = 0

    @property
    def awake(self) -> bool:
        """True while there is a decoder."""
        return self._decoder is not None

    def on_frame(self, frame: StreamFrame) -> None:
        """Take a new frame. Cheap; decoding runs in a thread."""
        self._newest = frame
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()
        if self._decoder is None:
            return
        now_ms = self._now_ms()
        if now_ms - self.polled_ms > self._warm_ms and not self._waiters:
            self.sleep()
            return
        if frame.key:
            self._pending.clear()
            self._keyframes.key_came(now_ms)
        self._pending.append(frame)
        if len(self._pending) > PENDING_MAX:
            self.sleep()
        elif self._is_eager(now_ms):
            if self._eager_task is None or self._eager_task.done():
                self._eager_task = asyncio.create_task(self._decode_along())
        elif self._keyframes.take_request(now_ms, len(self._pending)):
            self._ask_key()

    def _is_eager(self, now_ms: int) -> bool:
        return self._waiters > 0 or max(self._poll_every_ms, now_ms - self.polled_ms) < EAGER_POLL_MS

    def sleep(self) -> None:
        """Release the decoder."""
        self._decoder = None
        self._budget.note(self, 0)
        self._pending.clear()
        self._picture = None
        self._jpegs.clear()

    def forget(self) -> None:
        """Forget the stream; no frame of it is served again."""
        self.sleep()
        self._newest = None
        self._still = None
        self._forgotten += 1

    async def _decode_along(self) -> None:
        while self._pending and self._decoder is not None:
            await self._decode_pending()

    async def _decode_pending(self) -> None:
        """Decode up to the newest frame. One call at a time per input."""
        async with self._decoding:
            decoder = self._decoder
            frames, self._pending = self._pending, []
            if decoder is None or not frames:
                return
            if frames[0].format.decoder != decoder.codec:
                decoder = self._decoder = self._new_decoder(frames[0])
            try:
                picture = await self._decode(decoder, frames)
            except (PictureTooLargeError, UnreadableSizeError, SizeChangesError, MemoryError, av.FFmpegError) as error:
                self._refuse(error)
                return
            if self._decoder is decoder:
                self._failure, self._is_too_large = None, False
                if picture is not None:
                    self._picture = picture
                    self._note_motion(picture)

    async def _decode(self, decoder: PictureDecoder, frames: list[StreamFrame]) -> Picture | None:
        """Decode frames in slices, between which other inputs have the thread."""
        picture = None
        while frames and self._decoder is decoder:
            taken, picture = await self._share.run(partial(decoder.decode, frames))
            self.decoded += taken
            frames = frames[taken:]
            if self._decoder is decoder:
                self._budget.note(self, decoder.memory)
        return picture

    def _refuse(self, error: Exception) -> None:
        """Drop a stream that cannot or must not be decoded; log what is new."""
        self._is_too_large = isinstance(error, PictureTooLargeError)
        failure = f"{type(error).__name__}: {error}"
        if failure != self._failure:
            self._failure = failure
            log.warning("frame_decode_failed", error=failure)
        self.sleep()
        if not isinstance(error, PictureTooLargeError | SizeChangesError):
            self._ask_key()

    def _new_decoder(self, frame: StreamFrame) -> PictureDecoder:
        return PictureDecoder(frame.format.decoder, self._limit, self._size_changes)

    def _note_motion(self, picture: Picture) -> None:
        if self._still is None or changed(self._still[0], picture.thumb):
            self._still = (picture.thumb, picture.source.received_at_ms)

    async def frame(self, query: FrameQuery) -> FrameReply:
        """Answer one poll."""
        now_ms = self._now_ms()
        if self.polled_ms:
            self._poll_every_ms += 0.3 * (min(10_000, now_ms - self.polled_ms) - self._poll_every_ms)
        self.polled_ms = now_ms
        self._keyframes.polled(now_ms)
        deadline_ms = now_ms + query.wait_ms
        self._waiters += query.after is not None and query.wait_ms > 0
        try:
            if query.after is not None:
                after = query.after
                await self._wait(lambda: self._newest is not None and self._newest.sequence > after, deadline_ms)
                if self._newest is not None and self._newest.sequence <= after:
                    reason = FrameMissingReason.NOT_NEWER
                    if self._now_ms() - self._newest.received_at_ms > query.max_age_ms:
                        reason = FrameMissingReason.STALE
                    return FrameMissing(reason=reason, sequence=self._newest.sequence, is_lost=self._is_lost())
            while True:
                forgotten = self._forgotten
                picture = await self._fresh_picture(query, deadline_ms)
                if isinstance(picture, FrameMissing):
                    return replace(picture, is_lost=picture.sequence is not None and self._is_lost())
                frame = await self._serve(picture, query)
                if forgotten == self._forgotten:
                    return frame
                # Another publisher has taken over since the picture was chosen: this one is not shown any more.
                if self._now_ms() >= deadline_ms:
                    return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        finally:
            self._waiters -= query.after is not None and query.wait_ms > 0

    async def _wait(self, ready: Callable[[], bool], deadline_ms: int) -> bool:
        """Wait until `ready()` is true, checked after each arrival; False at the deadline."""
        while not ready():
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                return False
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._arrival.wait()
            except TimeoutError:
                return ready()
        return True

    async def _fresh_picture(self, query: FrameQuery, deadline_ms: int) -> Picture | FrameMissing:
        newest = self._newest
        if newest is None:
            await self._wait(lambda: self._newest is not None, deadline_ms)
            if self._newest is None:
                return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
            newest = self._newest
        if self._now_ms() - newest.received_at_ms > query.max_age_ms:
            await self._wait(lambda: self._newest is not newest, deadline_ms)
            if self._newest is None or self._now_ms() - self._newest.received_at_ms > query.max_age_ms:
                return FrameMissing(reason=FrameMissingReason.STALE, sequence=newest.sequence)
        await self._hold_for_key()
        picture = await self._bring_up()
        if picture is None and self._is_too_large:
            return FrameMissing(reason=FrameMissingReason.TOO_LARGE, sequence=newest.sequence)
        if picture is None and self._now_ms() - newest.received_at_ms < PATIENCE_MS:
            self._ask_key()
            patience_ms = max(deadline_ms, self._now_ms() + PATIENCE_MS)
            await self._wait(lambda: bool(self._gop.frames) or self._picture is not None, patience_ms)
            picture = await self._bring_up()
        if picture is None:
            return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        if query.after is not None and picture.source.sequence <= query.after:
            return FrameMissing(reason=FrameMissingReason.NOT_NEWER, sequence=picture.source.sequence)
        if self._now_ms() - picture.source.received_at_ms > query.max_age_ms:
            return FrameMissing(reason=FrameMissingReason.STALE, sequence=picture.source.sequence)
        return picture

    async def _hold_for_key(self) -> None:
        """Delay a slow poll if a keyframe is due that replaces the frames it would decode."""
        now_ms = self._now_ms()
        if self._decoder is None or not self._pending or self._is_eager(now_ms):
            return
        oldest = self._pending[0]
        if hold_ms := self._keyframes.hold_ms(now_ms, len(self._pending)):
            await self._wait(lambda: not self._pending or self._pending[0] is not oldest, now_ms + hold_ms)

    async def _bring_up(self) -> Picture | None:
        """Start a decoder if there is none, decode the kept frames, and return the newest picture."""
        if self._decoder is None and self._gop.frames:
            self._decoder = self._new_decoder(self._gop.frames[0])
            self._pending = list(self._gop.frames)
        await self._decode_pending()
        return self._picture

    async def _serve(self, picture: Picture, query: FrameQuery) -> Frame:
        source = picture.source
        width = query.width if query.width is not None and query.width < picture.frame.width else None
        key = (source.sequence, width, query.quality)
        future = self._jpegs.get(key)
        if future is None:
            self._jpegs = {known: old for known, old in self._jpegs.items() if known[0] == source.sequence}
            encode = partial(encode_jpeg, picture, width, query.quality)
            future = asyncio.ensure_future(self._share.run(encode))
            if len(self._jpegs) < JPEG_CACHE_MAX:
                self._jpegs[key] = future
            self.encoded += 1
        # Shielded: a poller that is cancelled must not cancel the encoding that others share.
        jpeg, served_width, served_height = await asyncio.shield(future)
        if len(jpeg) > JPEG_KEPT_MAX_BYTES:
            self._jpegs.pop(key, None)
        now_ms = self._now_ms()
        return Frame(
            jpeg=jpeg,
            sequence=source.sequence,
            captured_at_ms=source.captured_at_ms,
            received_at_ms=source.received_at_ms,
            age_ms=max(0, now_ms - source.received_at_ms),
            width=served_width,
            height=served_height,
            state=self._state(picture),
            captured_by_rtcp=source.captured_by_rtcp,
            publisher_epoch=source.publisher_epoch,
        )

    def _state(self, picture: Picture) -> PictureState:
        if self._is_lost():
            return PictureState.LOST
        if picture.black:
            return PictureState.BLACK
        if self._still is not None and picture.source.received_at_ms - self._still[1] >= FROZEN_AFTER_MS:
            return PictureState.FROZEN
        return PictureState.LIVE
