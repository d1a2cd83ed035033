"""The stream of one input after assembly: one timeline, one sequence and one GOP cache across publishers."""

from dataclasses import dataclass
from typing import Final, final

from sightline.video.media.codecs import PayloadFormat
from sightline.video.rtc.rtp import ms_from_ntp

VIDEO_RATE: Final = 90
AUDIO_RATE: Final = 48
"""RTP ticks per millisecond."""
GOP_MAX_FRAMES: Final = 1_500
"""A group of more frames is not cached: 12 s at 125 frames a second."""
CAPTURE_MAX_LAG_MS: Final = 5_000
"""A capture time further in the past than this means that the publisher's clock is wrong; it is not used."""


@final
@dataclass(frozen=True, slots=True)
class StreamFrame:
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


@final
class Timeline:
    """Maps RTP timestamps of successive publishers onto one increasing timeline."""

    def __init__(self, ticks_per_ms: int) -> None:
        self._rate = ticks_per_ms
        self._source: int | None = None
        self._out = 0
        self._top = 0
        self._at_ms = 0.0

    def restart(self) -> None:
        """The next timestamp is from another publisher."""
        self._source = None

    def map(self, timestamp: int, now_ms: float) -> int:
        """The position of a 32-bit timestamp on the timeline."""
        if self._source is None:
            self._out = self._top + max(self._rate, int((now_ms - self._at_ms) * self._rate)) if self._top else 0
        else:
            step = (timestamp - self._source) & 0xFFFFFFFF
            self._out += step if step < 0x80000000 else step - 0x100000000
        self._source = timestamp
        self._top = max(self._top, self._out)
        self._at_ms = now_ms
        return self._out


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
