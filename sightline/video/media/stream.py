"""The stream of one input after assembly: one timeline, one sequence and one GOP cache across publishers."""

from typing import Final, final

from sightline.domain.value import Value
from sightline.video.media.codecs import PayloadFormat
from sightline.video.rtc.rtp import ms_from_ntp

VIDEO_RATE: Final = 90
AUDIO_RATE: Final = 48
"""RTP ticks per millisecond."""
GOP_MAX_FRAMES: Final = 1_500
"""A group of more frames is not cached: 12 s at 125 frames a second."""
STREAMS_MAX: Final = 8
"""Streams of a publisher that are mapped at the same time."""
CAPTURE_MAX_LAG_MS: Final = 5_000
"""A capture time further in the past than this means that the publisher's clock is wrong; it is not used."""


@final
class StreamFrame(Value):
    """One complete encoded video frame on the input's timeline."""

    sequence: int
    """Increases across takeovers and restarts: the arrival time in Unix milliseconds, incremented on a collision."""
    timestamp: int
    """Ticks of 1/90000 s on the input's timeline; does not wrap."""
    payloads: tuple[bytes, ...]
    key: bool
    size: int
    received_at_ms: int
    captured_at_ms: int
    captured_by_rtcp: bool
    publisher_epoch: int
    format: PayloadFormat
    layer: int
    """SSRC of the publisher's stream: with simulcast there are several."""


@final
class Timeline:
    """Maps RTP timestamps of successive and simultaneous streams onto one timeline, a new stream by its arrival."""

    def __init__(self, ticks_per_ms: int) -> None:
        self._rate = ticks_per_ms
        self._streams: dict[int, tuple[int, int]] = {}  # SSRC -> (its newest timestamp, where that was mapped to)
        self._top = 0
        self._at_ms = 0.0

    def restart(self) -> None:
        """The next timestamps are from another publisher."""
        self._streams.clear()

    def map(self, timestamp: int, now_ms: float, ssrc: int) -> int:
        """The position of a 32-bit timestamp on the timeline."""
        known = self._streams.get(ssrc)
        if known is None:
            out = self._top + max(self._rate, int((now_ms - self._at_ms) * self._rate)) if self._top else 0
            if len(self._streams) >= STREAMS_MAX:
                self._streams.clear()
        else:
            step = (timestamp - known[0]) & 0xFFFFFFFF
            out = known[1] + (step if step < 0x80000000 else step - 0x100000000)
        self._streams[ssrc] = (timestamp, out)
        if out >= self._top:
            self._top, self._at_ms = out, now_ms
        return out


@final
class CaptureClock:
    """Turns RTP timestamps into capture times by the publisher's sender reports (RFC 3550, section 6.4.1)."""

    def __init__(self, ticks_per_ms: int) -> None:
        self._rate = ticks_per_ms
        self._report: tuple[float, int] | None = None

    def report(self, ntp: int, timestamp: int) -> None:
        """Take a sender report; one without a wall clock (all zero) is ignored."""
        if ntp >> 32:
            self._report = (ms_from_ntp(ntp), timestamp)

    def captured(self, timestamp: int, received_at_ms: int) -> tuple[int, bool]:
        """(capture time, whether it is from a sender report). A time after reception or long before it is rejected."""
        if self._report is not None:
            at_ms, reference = self._report
            step = (timestamp - reference) & 0xFFFFFFFF
            claim = at_ms + (step if step < 0x80000000 else step - 0x100000000) / self._rate
            if 0 <= received_at_ms - claim <= CAPTURE_MAX_LAG_MS:
                return int(claim), True
        return received_at_ms, False


@final
class GopCache:
    """The frames since the last keyframe, for new viewers and for a decoder that starts."""

    def __init__(self, *, max_bytes: int, max_ms: int) -> None:
        self._max_bytes = max_bytes
        self._max_ms = max_ms
        self.frames: list[StreamFrame] = []
        self._bytes = 0

    def add(self, frame: StreamFrame) -> None:
        """Add a frame; a group that grows too large is dropped until the next keyframe."""
        if frame.key:
            self.clear()
        elif not self.frames:
            return
        self.frames.append(frame)
        self._bytes += frame.size
        is_long = len(self.frames) > GOP_MAX_FRAMES or self.span_ms > self._max_ms
        if is_long or self._bytes > self._max_bytes:
            self.clear()

    def clear(self) -> None:
        """Drop all frames."""
        self.frames = []
        self._bytes = 0

    @property
    def span_ms(self) -> int:
        """From the keyframe to the newest frame."""
        return self.frames[-1].received_at_ms - self.frames[0].received_at_ms if self.frames else 0
