"""Video packets of a camera, forwarded without transcoding: an RTSP or other URL, or a V4L2 device such as /dev/video0.

A thread reads the source, because PyAV blocks. Packets cross to the event loop through a bounded queue. If the loop is
slow, packets are dropped up to the next keyframe, so that the picture stays whole and the delay small.
"""

import asyncio
import errno
import threading
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final, final
from urllib.parse import urlsplit

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

CLOCK_RATE: Final = 90_000
OPEN_S: Final = 10.0
READ_S: Final = 10.0
"""Seconds without a packet after which the source counts as lost."""
QUEUE_PACKETS_MAX: Final = 120
FRAME_TICKS: Final = CLOCK_RATE // 30
JUMP_TICKS: Final = CLOCK_RATE
"""A larger step back in time is a restarted clock; B-frames are reordered by less."""
CODECS: Final = frozenset({"h264", "vp8"})


class SourceLostError(Exception):
    """The source cannot be opened; it may come back.

    Attributes:
        is_passing: Whether a source that was never opened may open soon: a camera that starts, or a device in use.
    """

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class UnusableSourceError(Exception):
    """The source can never be published; the message says why and what to do."""


def is_live(source: str) -> bool:
    """Whether a source is a URL or a device, and not a file."""
    return "://" in source or source.startswith("/dev/")


def shown_source(source: str) -> str:
    """The source without user name, password and query, which may be secret."""
    if "://" not in source:
        return source
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@final
class LiveTrack(MediaStreamTrack):
    """The encoded video packets of a live source. It ends when the source is lost. Made by `open_live_track`."""

    kind = "video"

    def __init__(self, container: Any, stream: Any) -> None:
        super().__init__()
        self.codec = str(stream.codec_context.name)
        self._container = container
        self._stream = stream
        self._home = asyncio.get_running_loop()  # `_loop` and `_events` are names of the base class
        self._packets: asyncio.Queue[tuple[bytes, int] | None] = asyncio.Queue(
            QUEUE_PACKETS_MAX + 1
        )  # one place for the end
        self._is_waiting_for_key = True
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._read, name="live-source", daemon=True)
        self._thread.start()

    async def recv(self) -> Any:
        """The next packet."""
        if self.readyState != "live":
            raise MediaStreamError
        item = await self._packets.get()
        if item is None:
            self.stop()
            raise MediaStreamError
        packet = av.Packet(item[0])
        packet.pts, packet.time_base = item[1], Fraction(1, CLOCK_RATE)
        return packet

    def stop(self) -> None:
        """Stop reading; the thread closes the source."""
        self._leave.set()
        super().stop()

    def _read(self) -> None:
        """Runs in the thread."""
        try:
            with self._container:
                for data, ticks, is_key in _packets(self._container, self._stream):
                    if self._leave.is_set():
                        return
                    self._home.call_soon_threadsafe(self._put, data, ticks, is_key)
        except (OSError, av.FFmpegError):
            pass  # lost: the track ends
        finally:
            with suppress(RuntimeError):  # the loop has been closed
                self._home.call_soon_threadsafe(self._end)

    def _put(self, data: bytes, ticks: int, is_key: bool) -> None:
        is_full = self._packets.qsize() >= QUEUE_PACKETS_MAX
        if is_full:
            self._is_waiting_for_key = True
        if is_full or (self._is_waiting_for_key and not is_key):
            return
        self._is_waiting_for_key = False
        self._packets.put_nowait((data, ticks))

    def _end(self) -> None:
        self._packets.put_nowait(None)


async def open_live_track(source: str) -> LiveTrack:
    """Open a source.

    Raises:
        SourceLostError: It does not answer.
        UnusableSourceError: It has no video, or its codec cannot be published.
    """
    shown = shown_source(source)
    try:
        container = await asyncio.to_thread(_open, source)
    except (OSError, av.FFmpegError) as error:
        is_passing = not source.startswith("/dev/") or error.errno == errno.EBUSY
        reason = error.strerror or type(error).__name__  # its text may quote a password
        raise SourceLostError(f"cannot open {shown}: {reason}", is_passing=is_passing) from None
    if not container.streams.video:
        container.close()
        raise UnusableSourceError(f"{shown} has no video")
    stream = container.streams.video[0]
    codec = stream.codec_context.name
    if codec not in CODECS:
        container.close()
        raise UnusableSourceError(f"{shown} sends {codec}. Set the camera to H.264, baseline profile, without B-frames")
    return LiveTrack(container, stream)


def _open(source: str) -> Any:
    if source.startswith("/dev/"):
        return av.open(source, format="v4l2", options={"input_format": "h264"}, timeout=(OPEN_S, READ_S))
    # TCP, because a lost UDP packet of a camera would damage the picture until the next keyframe.
    options = {"rtsp_transport": "tcp"} if source.startswith(("rtsp://", "rtsps://")) else {}
    return av.open(source, options=options, timeout=(OPEN_S, READ_S))


def _packets(container: Any, stream: Any) -> Any:
    """Yield (bytes, start in 1/90000 s, is keyframe); Annex B with parameter sets at keyframes for H.264."""
    filters = None
    if stream.codec_context.name == "h264":
        # Cameras that send the parameter sets in the SDP only would show no picture to a viewer that joins later.
        extra = ",dump_extra=freq=keyframe" if stream.codec_context.extradata else ""
        filters = av.BitStreamFilterContext(f"h264_mp4toannexb{extra}", stream)
    first: int | None = None
    begins, newest = 0, -1
    for packet in container.demux(stream):
        at = packet.pts if packet.pts is not None else packet.dts
        if packet.size == 0 or at is None:
            continue
        first = at if first is None else first
        ticks = begins + round(float((at - first) * stream.time_base) * CLOCK_RATE)
        # The camera's clock was set back, or its stream began anew. One packet with a wrong time is hardly a keyframe.
        if ticks < newest - JUMP_TICKS and packet.is_keyframe:
            first, begins = at, newest + FRAME_TICKS
            ticks = begins
        if ticks < newest:
            continue  # a B-frame, which WebRTC cannot carry
        newest = ticks
        is_key = bool(packet.is_keyframe)  # read first, because the filter empties the packet
        for part in filters.filter(packet) if filters is not None else [packet]:
            yield bytes(part), ticks, is_key
