"""The newest seconds of an input as they arrived, and clips of them: packets in a container, nothing is decoded.

A clip starts at a keyframe and is of one publisher.
"""

import io
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Final, final

import av
import structlog

from sightline.ports.video import Clip, ClipMissing, ClipMissingReason, ClipReply
from sightline.video.media.picture_size import UnreadableSizeError
from sightline.video.media.picture_threads import PictureShare
from sightline.video.media.stream import StreamFrame

KEY_EVERY_MS: Final = 4_000
"""Interval of keyframes requested while clips are kept: a clip starts at one, and browsers send none unasked."""
LATE_KEY_MS: Final = 12_000
"""How much longer than asked a group is kept whose publisher sends no keyframe."""
STALE_MS: Final = 10_000
"""Age of the newest frame beyond which there is no clip: its seconds would not be the last ones."""
PAYLOAD_OVERHEAD_BYTES: Final = 64
FRAME_OVERHEAD_BYTES: Final = 512
"""Memory of the objects that hold a payload and a frame, so that tiny frames do not exceed the limit."""
_TICKS: Final = Fraction(1, 90_000)
_CONTAINERS: Final = {"H264": ("mp4", "h264", "video/mp4"), "VP8": ("webm", "vp8", "video/webm")}
_FRAGMENTED: Final = {"movflags": "empty_moov+default_base_moof+frag_keyframe+skip_trailer"}
"""A fragment for each keyframe, with offsets that stay valid when a manifest is inserted."""
log = structlog.get_logger()


@final
class ClipBuffer:
    """The frames of one input since a keyframe `keep_ms` ago or longer.

    Args:
        keep_ms: 0 keeps nothing.
        max_bytes: Memory that this input may use now.
        share: The input's share of the threads.
        now_ms: Unix time in milliseconds.
    """

    def __init__(
        self, *, keep_ms: int, max_bytes: Callable[[], int], share: PictureShare, now_ms: Callable[[], int]
    ) -> None:
        self._keep_ms = keep_ms
        self._max_bytes = max_bytes
        self._share = share
        self._now_ms = now_ms
        self._groups: deque[list[StreamFrame]] = deque()
        self._forgotten = 0
        self.octets = 0
        """Memory of the frames that are kept."""

    def add(self, frame: StreamFrame) -> None:
        """Take a new frame, and drop the oldest groups of pictures that are not needed or too large."""
        if not self._keep_ms or not (frame.key or self._groups):
            return
        if frame.key:
            self._groups.append([])
        self._groups[-1].append(frame)
        self.octets += _octets(frame)
        newest_ms = frame.received_at_ms
        while len(self._groups) > 1 and self._groups[1][0].received_at_ms <= newest_ms - self._keep_ms:
            self._drop_oldest()
        limit = self._max_bytes()
        while self._groups and (
            self.octets > limit or newest_ms - self._groups[0][0].received_at_ms > self._keep_ms + LATE_KEY_MS
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.octets -= sum(_octets(frame) for frame in self._groups.popleft())

    def forget(self) -> None:
        """Drop all frames. A clip of them that is in work is not returned."""
        self._groups.clear()
        self.octets = 0
        self._forgotten += 1

    def wants_key(self) -> bool:
        """Whether the newest keyframe is so old that another one should be requested."""
        if not self._keep_ms:
            return False
        return not self._groups or self._now_ms() - self._groups[-1][0].received_at_ms >= KEY_EVERY_MS

    async def clip(self, seconds: int) -> ClipReply:
        """The last seconds, from the keyframe before them on, or as many as are kept."""
        if not self._keep_ms:
            return ClipMissing(reason=ClipMissingReason.OFF)
        if not self._groups:
            return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)
        newest = self._groups[-1][-1]
        if self._now_ms() - newest.received_at_ms > STALE_MS:
            return ClipMissing(reason=ClipMissingReason.STALE)
        forgotten = self._forgotten
        try:
            video, taken, (width, height) = await self._share.run(
                partial(mux, self._since(newest.received_at_ms - seconds * 1_000))
            )
        except (av.FFmpegError, UnreadableSizeError) as error:
            log.warning("clip_not_muxed", error=f"{type(error).__name__}: {error}")
            return ClipMissing(reason=ClipMissingReason.UNREADABLE)
        if self._forgotten != forgotten:
            return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)
        return Clip(
            video=video,
            media_type=_CONTAINERS[newest.format.name][2],
            started_at_ms=taken[0].captured_at_ms,
            ended_at_ms=newest.captured_at_ms,
            captured_by_rtcp=taken[0].captured_by_rtcp and newest.captured_by_rtcp,
            received_at_ms=newest.received_at_ms,
            age_ms=max(0, self._now_ms() - newest.received_at_ms),
            frames=len(taken),
            width=width,
            height=height,
            publisher_epoch=newest.publisher_epoch,
        )

    def _since(self, at_ms: int) -> list[StreamFrame]:
        """The frames from the last keyframe at or before an instant on; all if there is none."""
        groups = list(self._groups)
        first = max((index for index, group in enumerate(groups) if group[0].received_at_ms <= at_ms), default=0)
        return [frame for group in groups[first:] for frame in group]


def _octets(frame: StreamFrame) -> int:
    return frame.size + FRAME_OVERHEAD_BYTES + PAYLOAD_OVERHEAD_BYTES * len(frame.payloads)


def mux(frames: Sequence[StreamFrame]) -> tuple[bytes, Sequence[StreamFrame], tuple[int, int]]:
    """Put encoded frames into the container of their codec; returns the file, its frames and their newest size.

    H.264 before the last change of the picture's size is left out: the file has one sample description, with the size.
    Keyframes of VP8 say their size themselves.

    Raises:
        UnreadableSizeError: A keyframe does not say its size.
        av.FFmpegError: The frames are not valid.
    """
    fmt = frames[-1].format
    container, codec, _ = _CONTAINERS[fmt.name]
    start, size = 0, (0, 0)
    for index, frame in enumerate(frames):
        if frame.key and (declared := fmt.shown_size(fmt.unpack(frame.payloads))) != size:
            start, size = (index if container == "mp4" else 0), declared
    taken = frames[start:]
    shown = [frame.timestamp for frame in taken]
    # Decoding times rise and are never after the time of display, also if the publisher reorders frames.
    rising = sorted(shown)
    for index in range(1, len(rising)):
        rising[index] = max(rising[index], rising[index - 1] + 1)
    delay = max(early - late for early, late in zip(rising, shown, strict=True))
    target = io.BytesIO()
    options = _FRAGMENTED if container == "mp4" else {}
    with av.open(target, "w", format=container, options=options) as output:
        stream = output.add_mux_stream(codec, width=size[0], height=size[1], time_base=_TICKS)
        for index, frame in enumerate(taken):
            packet = av.Packet(fmt.unpack(frame.payloads))
            packet.stream, packet.time_base, packet.is_keyframe = stream, _TICKS, frame.key
            packet.dts = rising[index] - rising[0]
            packet.pts = frame.timestamp - rising[0] + delay
            following = min(index + 1, len(taken) - 1)
            packet.duration = rising[following] - rising[following - 1] if following else 0
            output.mux(packet)
    return target.getvalue(), taken, size
