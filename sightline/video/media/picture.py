"""Decodes frames and encodes JPEGs. Blocking: runs in threads; PyAV, swscale and libjpeg release the GIL."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import av
import numpy as np
import numpy.typing as npt
import simplejpeg
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from sightline.domain.value import Value
from sightline.video.media.picture_size import PictureLimit, PictureSize
from sightline.video.media.stream import StreamFrame

BLACK_MEAN_MAX: Final = 24.0
BLACK_SPREAD_MAX: Final = 6.0
"""Limits of limited-range luma: black is 16, and a covered lens has a little noise."""
FROZEN_CHANGE_MAX: Final = 0.25
"""Mean change per pixel at 1/8 scale; the noise of a camera is above it."""
THUMB_STEP: Final = 8
HD_HEIGHT: Final = 720
"""Video of this height or more that does not name its colours is BT.709, as decoders and browsers assume."""
UNTAGGED: Final = 2
"""AVCOL_SPC_UNSPECIFIED."""
FAST_DCT_MAX_QUALITY: Final = 90
"""Up to this quality the fast transform looks the same and saves a quarter of the time."""
REFORMATTERS_MAX: Final = 8
SLICE_S: Final = 0.02
"""Decoding time after which a decoder lets other inputs have the thread."""
SIZE_CHANGES_MAX: Final = 4
SIZE_CHANGES_MS: Final = 4_000
"""Changes of size in this time. Browsers change the size a few times in a minute, and while they start."""
SIZE_REST_MS: Final = 1_000
"""How long nothing is decoded after a change too many."""
_local = threading.local()

Luma = npt.NDArray[np.uint8]


@final
class Picture(Value):
    """One decoded picture."""

    frame: Any
    """The av.VideoFrame."""
    source: StreamFrame
    thumb: Luma
    black: bool
    aspect: float = 1.0
    """Width of a pixel divided by its height."""


class SizeChangesError(Exception):
    """The stream changes its size more often than decoders are created."""


@final
class SizeChanges:
    """Bounds how often the decoder of one input is created for another size."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._size: PictureSize | None = None
        self._changed_ms: list[int] = []
        self._rests_until_ms = 0

    def note(self, size: PictureSize) -> bool:
        """Note the size of a keyframe; True if it differs from the one before.

        Raises:
            SizeChangesError: There were too many changes lately. The size is not noted.
        """
        now_ms = self._now_ms()
        if size == self._size and now_ms >= self._rests_until_ms:
            return False
        self._changed_ms = [at_ms for at_ms in self._changed_ms if now_ms - at_ms < SIZE_CHANGES_MS]
        if now_ms < self._rests_until_ms or len(self._changed_ms) >= SIZE_CHANGES_MAX:
            if now_ms >= self._rests_until_ms:
                self._rests_until_ms = now_ms + SIZE_REST_MS
            raise SizeChangesError(f"more than {SIZE_CHANGES_MAX} changes of size in {SIZE_CHANGES_MS} ms")
        self._changed_ms.append(now_ms)
        self._size = size
        return True


@final
class PictureDecoder:
    """Decodes one stream in order. Returns no picture instead of a damaged one.

    Each frame's declared sizes are compared with the limit before libavcodec sees the frame. Another size gets a new
    libavcodec context, so that the memory of the old one is freed.

    Args:
        cpu_s: Processor time of the calling thread.
    """

    def __init__(
        self, codec: str, limit: PictureLimit, changes: SizeChanges, cpu_s: Callable[[], float] = time.thread_time
    ) -> None:
        self.codec = codec
        self.memory = 0
        """What libavcodec may allocate for pictures, in bytes."""
        self._limit = limit
        self._changes = changes
        self._cpu_s = cpu_s
        self._context: Any = None
        self._newest: Any = None

    def decode(self, frames: Sequence[StreamFrame]) -> tuple[int, Picture | None]:
        """Decode frames for at most about SLICE_S.

        Returns:
            How many were decoded, and if it was all of them, the newest picture. No picture if it is damaged.

        Raises:
            PictureTooLargeError: A frame declares a picture over the limit. It was not decoded.
            UnreadableSizeError: A frame declares a size that cannot be read. It was not decoded.
            SizeChangesError: The size changes too often. The frame was not decoded.
            av.FFmpegError: The bitstream cannot be decoded; restart at a keyframe.
        """
        ends_s = self._cpu_s() + SLICE_S
        for count, frame in enumerate(frames, 1):
            self._decode_one(frame)
            if count < len(frames) and self._cpu_s() >= ends_s:
                return count, None
        newest, self._newest = self._newest, None
        if newest is None or getattr(newest, "is_corrupt", False):
            return len(frames), None
        source = next((frame for frame in reversed(frames) if frame.sequence == newest.pts), frames[-1])
        thumb = luma_thumb(newest)
        black = float(thumb.mean()) < BLACK_MEAN_MAX and float(thumb.std()) < BLACK_SPREAD_MAX
        ratio = self._context.sample_aspect_ratio
        return len(frames), Picture(newest, source, thumb, black, float(ratio) if ratio else 1.0)

    def _decode_one(self, frame: StreamFrame) -> None:
        bitstream = frame.format.unpack(frame.payloads)
        sizes = frame.format.sizes(bitstream)
        for size in sizes:
            self._limit.require(size)
        if sizes:
            largest = max(sizes, key=lambda size: (size.memory, size.width))
            if self._changes.note(largest) or self._context is None:
                self._context = self._open()
            self.memory = largest.memory
        elif self._context is None:
            self._context = self._open()
        packet = av.Packet(bitstream)
        packet.pts = frame.sequence
        for decoded in self._context.decode(packet):
            self._newest = decoded

    def _open(self) -> Any:
        context: Any = av.CodecContext.create(self.codec, "r")
        context.thread_count = 1
        context.flags |= 0x80000  # AV_CODEC_FLAG_LOW_DELAY
        context.options = {"max_pixels": str(self._limit.decoder_max_pixels)}
        return context


def _plane(frame: Any, index: int, width: int, height: int) -> Luma:
    """One plane without its line padding, as a view."""
    plane = frame.planes[index]
    rows: Luma = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    return rows[:height, :width]


def luma_thumb(frame: Any) -> Luma:
    """The luma at 1/8 scale."""
    return _plane(frame, 0, frame.width, frame.height)[::THUMB_STEP, ::THUMB_STEP].copy()


def changed(before: Luma, after: Luma) -> bool:
    """True if the picture changed between two thumbnails."""
    if before.shape != after.shape:
        return True
    difference = np.abs(before.astype(np.int16) - after.astype(np.int16))
    return float(difference.mean()) > FROZEN_CHANGE_MAX


def shown_size(width: int, height: int, aspect: float) -> tuple[int, int]:
    """The size with square pixels: the longer side is kept and the other reduced.

    Args:
        aspect: Width of a pixel divided by its height.
    """
    if not 0.25 <= aspect <= 4 or abs(aspect - 1) < 0.01:
        return width, height
    return (width, max(2, round(height / aspect))) if aspect > 1 else (max(2, round(width * aspect)), height)


def fit_size(width: int, height: int, wanted: int | None) -> tuple[int, int]:
    """The size to serve: never enlarged, aspect kept, at least 2 pixels high."""
    if wanted is None or wanted >= width:
        return width, height
    return wanted, max(2, round(height * wanted / width))


def _reformatter(sizes: tuple[int, int, int, int]) -> Any:
    """A scaler for these sizes, cached per thread: creating one costs as much as using it."""
    known: dict[tuple[int, int, int, int], Any] = _local.__dict__.setdefault("reformatters", {})
    if sizes not in known:
        if len(known) >= REFORMATTERS_MAX:
            known.clear()
        known[sizes] = VideoReformatter()
    return known[sizes]


def encode_jpeg(picture: Picture, wanted_width: int | None, quality: int) -> tuple[bytes, int, int]:
    """Scale and convert to full range in one swscale step, then compress from the planes.

    WebRTC video is limited range (16..235); JPEG is full range with BT.601 colours (JFIF). Without conversion black
    would become grey.

    Returns:
        The JPEG, its width and its height.
    """
    frame = picture.frame
    width, height = fit_size(*shown_size(frame.width, frame.height, picture.aspect), wanted_width)
    reformatter = _reformatter((frame.width, frame.height, width, height))
    full = frame.color_range == ColorRange.JPEG or "yuvj" in frame.format.name
    bt709 = int(frame.colorspace) == int(Colorspace.ITU709) or (
        int(frame.colorspace) == UNTAGGED and frame.height >= HD_HEIGHT
    )
    scaled = reformatter.reformat(
        frame,
        width=width,
        height=height,
        format="yuvj420p",
        src_color_range=ColorRange.JPEG if full else ColorRange.MPEG,
        dst_color_range=ColorRange.JPEG,
        src_colorspace=Colorspace.ITU709 if bt709 else Colorspace.ITU601,
        dst_colorspace=Colorspace.ITU601,
    )
    half_width, half_height = (width + 1) // 2, (height + 1) // 2
    jpeg: bytes = simplejpeg.encode_jpeg_yuv_planes(
        _plane(scaled, 0, width, height),
        _plane(scaled, 1, half_width, half_height),
        _plane(scaled, 2, half_width, half_height),
        quality=quality,
        fastdct=quality <= FAST_DCT_MAX_QUALITY,
    )
    return jpeg, width, height
