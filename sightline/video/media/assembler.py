"""Assembles packets into complete frames: reordering, gaps, retransmission requests. Pure; time is an argument.

A frame is delivered at its marker bit, not when the next frame starts, which saves one frame of delay. A gap holds back
the packets after it until it is filled (NACK), until a complete keyframe has arrived after it, or until it is too
old. In the last two cases everything up to the next keyframe is dropped, because a decoder would smear it.
"""

from collections.abc import Callable
from typing import Final, final

from sightline.domain.value import Value
from sightline.video.media.codecs import PayloadFormat
from sightline.video.rtc.rtp import RtpPacket

NACK_FIRST_MS: Final = 5.0
"""Minimum of the adaptive delay before the first NACK: a reordered packet may still arrive."""
NACK_FIRST_MAX_MS: Final = 60.0
NACK_AGAIN_MS: Final = 70.0
"""Interval of repeated NACKs: above a usual round trip, so that one loss causes one request."""
GAP_MAX_MS: Final = 600.0
"""Age at which a gap is given up: a keyframe is then faster."""
JUMP_AFTER_MS: Final = 120.0
"""How long repair of a gap may take although a complete keyframe has arrived after it."""
BUFFER_MAX_PACKETS: Final = 3000
"""Packets held back behind one gap; about 3.6 MB."""
FRAME_MAX_BYTES: Final = 4_000_000
FRAME_MAX_PACKETS: Final = 8_192
"""A frame that grows beyond either is dropped."""
NACK_MAX_SEQUENCES: Final = 250
"""Missing packets that are requested at once; more than this is an outage, not loss."""


@final
class EncodedFrame(Value):
    """One whole encoded frame, still as RTP payloads."""

    payloads: tuple[bytes, ...]
    timestamp: int
    """RTP timestamp of the publisher, 32 bits."""
    key: bool
    arrived_ms: float
    """Arrival of its last packet, on the caller's clock."""
    size: int


@final
class Assembler:
    """Assembler of one video stream."""

    def __init__(self, fmt: PayloadFormat, on_frame: Callable[[EncodedFrame], None]) -> None:
        self.format = fmt
        self._on_frame = on_frame
        self.needs_key = True
        """True while frames are dropped until a keyframe arrives."""
        self._buffer: dict[int, tuple[RtpPacket, float]] = {}
        self._expected: int | None = None
        self._highest = 0
        self._gap_since_ms: float | None = None
        self._missing: dict[int, list[float]] = {}  # extended sequence -> [first seen, last asked or 0]
        self._reorder_ms = NACK_FIRST_MS
        self._key_at: int | None = None
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._parts_timestamp: int | None = None
        self._parts_key = False
        self._parts_whole = False
        self._in_order = False

    @property
    def has_gap(self) -> bool:
        """True while packets are missing, so that `tick` must be called."""
        return self._gap_since_ms is not None

    def push(self, packet: RtpPacket, now_ms: float) -> None:
        """Take one packet, in any order, any number of times."""
        if self._expected is None:
            self._expected = self._highest = packet.sequence + 0x10000
        step = (packet.sequence - self._highest) & 0xFFFF
        extended = self._highest + (step if step < 0x8000 else step - 0x10000)
        if extended < self._expected or extended in self._buffer:
            return
        if extended - self._expected >= BUFFER_MAX_PACKETS:
            self._restart_at(extended)
        self._note_missing(extended, now_ms)
        self._buffer[extended] = (packet, now_ms)
        if extended != self._expected and self.format.surely_opens(packet.payload):
            self._note_possible_key(extended, packet)
        self._drain(now_ms)

    def misses(self, sequence: int) -> bool:
        """True if the packet with this 16-bit sequence number is missing."""
        step = (sequence - self._highest) & 0xFFFF
        return self._highest + (step if step < 0x8000 else step - 0x10000) in self._missing

    def drop_to_key(self) -> None:
        """Drop incomplete frames and wait for the next keyframe."""
        self._buffer.clear()
        self._missing.clear()
        self._parts.clear()
        self._parts_timestamp = self._gap_since_ms = self._key_at = None
        self._in_order = False
        self._expected = None
        self.needs_key = True

    def tick(self, now_ms: float) -> None:
        """Give up gaps that are too old. Call every 10 to 20 ms while `has_gap`."""
        if self._gap_since_ms is None:
            return
        if now_ms - self._gap_since_ms >= GAP_MAX_MS:
            self._skip_to(min(self._buffer))
            self._drain(now_ms)
        else:
            self._jump_to_key(now_ms)

    def due_nacks(self, now_ms: float) -> list[int]:
        """The 16-bit sequence numbers to request now."""
        due: list[int] = []
        first = min(NACK_FIRST_MAX_MS, self._reorder_ms * 1.5)
        for extended, times in self._missing.items():
            seen, asked = times
            if (asked and now_ms - asked >= NACK_AGAIN_MS) or (not asked and now_ms - seen >= first):
                times[1] = now_ms
                due.append(extended & 0xFFFF)
                if len(due) >= NACK_MAX_SEQUENCES:
                    break
        return due

    def _note_missing(self, extended: int, now_ms: float) -> None:
        if extended > self._highest + 1:
            for absent in range(max(self._highest + 1, extended - NACK_MAX_SEQUENCES), extended):
                self._missing[absent] = [now_ms, 0.0]
        elif (times := self._missing.pop(extended, None)) is not None and not times[1]:
            # It was reordered, not lost: adapt the delay before the first NACK.
            self._reorder_ms += 0.2 * (max(NACK_FIRST_MS, now_ms - times[0]) - self._reorder_ms)
        self._highest = max(self._highest, extended)

    def _note_possible_key(self, extended: int, packet: RtpPacket) -> None:
        if (self._key_at is None or extended > self._key_at) and (
            self.format.name == "H264" or self.format.is_key(packet.payload)
        ):
            self._key_at = extended

    def _restart_at(self, extended: int) -> None:
        self._buffer.clear()
        self._missing.clear()
        self._skip_to(extended)

    def _skip_to(self, extended: int) -> None:
        """Drop everything before `extended`."""
        assert self._expected is not None
        for old in [key for key in self._buffer if key < extended]:
            del self._buffer[old]
        for old in [key for key in self._missing if key < extended]:
            del self._missing[old]
        self._expected = extended
        self._gap_since_ms = None
        self._parts.clear()
        self._parts_timestamp = None
        self._in_order = False
        self.needs_key = True
        if self._key_at is not None and self._key_at < extended:
            self._key_at = None

    def _drain(self, now_ms: float) -> None:
        assert self._expected is not None
        progressed = False
        while (entry := self._buffer.pop(self._expected, None)) is not None:
            self._expected += 1
            progressed = True
            self._consume(*entry)
        if not self._buffer:
            self._gap_since_ms = None
        else:
            if progressed or self._gap_since_ms is None:
                self._gap_since_ms = now_ms
            self._jump_to_key(now_ms)

    def _jump_to_key(self, now_ms: float) -> None:
        """Skip a gap if a complete keyframe has arrived after it."""
        start = self._key_at
        if start is None or self._gap_since_ms is None:
            return
        if not self.needs_key and now_ms - self._gap_since_ms < JUMP_AFTER_MS:
            return
        if start not in self._buffer:
            self._key_at = None
            return
        timestamp = self._buffer[start][0].timestamp
        at, key = start, False
        while (entry := self._buffer.get(at)) is not None and entry[0].timestamp == timestamp:
            key = key or self.format.is_key(entry[0].payload)
            if entry[0].marker:
                if not key:
                    self._key_at = None
                    return
                self._skip_to(start)
                self._drain(now_ms)
                return
            at += 1

    def _consume(self, packet: RtpPacket, arrived_ms: float) -> None:
        in_order, self._in_order = self._in_order, True
        if not packet.payload:
            return  # a padding probe: it has a sequence number but no media
        if packet.timestamp != self._parts_timestamp:
            if self._parts:
                self._finish(arrived_ms)
            self._parts_timestamp = packet.timestamp
            self._parts_whole = in_order or self.format.surely_opens(packet.payload)
            self._parts_key = False
            self._parts_bytes = 0
        self._parts.append(packet.payload)
        self._parts_bytes += len(packet.payload)
        if self._parts_bytes > FRAME_MAX_BYTES or len(self._parts) > FRAME_MAX_PACKETS:
            self._parts.clear()
            self._parts_whole = False
        self._parts_key = self._parts_key or self.format.is_key(packet.payload)
        if packet.marker:
            self._finish(arrived_ms)
            self._parts_timestamp = None

    def _finish(self, arrived_ms: float) -> None:
        payloads, self._parts = self._parts, []
        timestamp = self._parts_timestamp
        if timestamp is None or not self._parts_whole or (self.needs_key and not self._parts_key):
            if not self._parts_whole:
                self.needs_key = True
            return
        whole = self.format.complete(payloads, key=self._parts_key)
        if whole is None:
            return
        self.needs_key = False
        self._on_frame(EncodedFrame(whole, timestamp, self._parts_key, arrived_ms, sum(len(part) for part in whole)))
