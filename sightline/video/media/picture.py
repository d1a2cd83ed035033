"""Decodes frames and encodes JPEGs. Blocking: runs in threads; PyAV, swscale and libjpeg release the GIL."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import av
import numpy as np
import numpy.typing as npt
import simplejpeg
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

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
_local = threading.local()

Luma = npt.NDArray[np.uint8]


@final
@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded picture."""

    frame: Any
    """The av.VideoFrame."""
    source: StreamFrame
    thumb: Luma
    black: bool
    aspect: float = 1.0
    """Width of a pixel divided by its height."""


@final
class PictureDecoder:
    """Decodes one stream in order. Returns no picture instead of a damaged one."""

    def __init__(self, codec: str) -> None:
        self.codec = codec
        context: Any = av.CodecContext.create(codec, "r")
        context.thread_count = 1
        context.flags |= 0x80000  # AV_CODEC_FLAG_LOW_DELAY
        self._context = context

    def decode(self, frames: Sequence[StreamFrame]) -> Picture | None:
        """Decode frames and return the newest picture; None if there is none, or if it is damaged.

        Raises:
            av.FFmpegError: The bitstream cannot be decoded; restart at a keyframe.
        """
        newest: Any = None
        for frame in frames:
            packet = av.Packet(frame.format.unpack(frame.payloads))
            packet.pts = frame.sequence
            for decoded in self._context.decode(packet):
                newest = decoded
        if newest is None or getattr(newest, "is_corrupt", False):
            return None
        source = next((frame for frame in reversed(frames) if frame.sequence == newest.pts), frames[-1])
        thumb = luma_thumb(newest)
        black = float(thumb.mean()) < BLACK_MEAN_MAX and float(thumb.std()) < BLACK_SPREAD_MAX
        ratio = self._context.sample_aspect_ratio
        return Picture(newest, source, thumb, black, float(ratio) if ratio else 1.0)


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
