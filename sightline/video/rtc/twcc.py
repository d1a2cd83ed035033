"""Transport-wide congestion control feedback: which packets arrived, and when. Pure; time comes in as an argument.

The sender numbers every packet in a header extension, and estimates the bandwidth from this feedback.
Source: draft-holmer-rmcat-transport-wide-cc-extensions-01.
"""

import struct
from typing import Final, final

from sightline.video.rtc.rtp import header_extension

EXTENSION_URI: Final = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
RTCP_RTPFB: Final = 205
FMT_TRANSPORT_CC: Final = 15
REPORT_MAX_PACKETS: Final = 400
"""Statuses of one message: below 1,200 bytes even if every arrival needs two bytes."""
HISTORY_PACKETS: Final = 2_000
"""Arrivals kept, so that a packet that arrives out of order is reported between its neighbours."""
REORDER_MAX_PACKETS: Final = 200
"""A packet later than this is not reported any more."""
TICKS_PER_MS: Final = 4
TICKS_PER_REFERENCE: Final = 256
"""Arrival times are in units of 250 us, reference times in units of 64 ms."""
_LOST, _SMALL, _LARGE = 0, 1, 2
RUN_MIN: Final = 7
RUN_MAX: Final = 8191


@final
class ArrivalRecorder:
    """Records arrivals and writes the feedback messages of one transport.

    Args:
        ssrc: Our own SSRC.
    """

    def __init__(self, ssrc: int) -> None:
        self._ssrc = ssrc
        self._arrivals: dict[int, int] = {}  # extended sequence -> arrival in ticks
        self._highest: int | None = None
        self._next = 0
        self._count = 0

    @property
    def pending(self) -> bool:
        """True while an arrival has not been reported."""
        return self._highest is not None and self._next <= self._highest

    def record(self, sequence: int, arrived_ms: float) -> None:
        """Note one packet.

        Args:
            sequence: Its 16-bit transport-wide sequence number.
            arrived_ms: On any clock that does not go back.
        """
        if self._highest is None:
            self._highest = self._next = sequence + 0x10000
        step = (sequence - self._highest) & 0xFFFF
        extended = self._highest + (step if step < 0x8000 else step - 0x10000)
        if extended in self._arrivals or self._highest - extended > REORDER_MAX_PACKETS:
            return
        if extended - self._highest > HISTORY_PACKETS:  # the sender skipped numbers: do not report them all as lost
            self._arrivals.clear()
            self._next = extended
        self._highest = max(self._highest, extended)
        self._next = min(self._next, extended)
        self._arrivals[extended] = round(arrived_ms * TICKS_PER_MS)
        if len(self._arrivals) > HISTORY_PACKETS:
            oldest = self._highest - HISTORY_PACKETS // 2
            self._arrivals = {known: at for known, at in self._arrivals.items() if known > oldest}

    def reports(self, media_ssrc: int) -> list[bytes]:
        """The messages that report everything since the last call; empty if nothing arrived.

        Args:
            media_ssrc: SSRC of a stream of the sender. Clients ignore feedback for SSRC 0.
        """
        messages: list[bytes] = []
        while self.pending:
            messages.append(self._report(media_ssrc))
        return messages

    def _report(self, media_ssrc: int) -> bytes:
        assert self._highest is not None
        base = next(known for known in range(self._next, self._highest + 1) if known in self._arrivals)
        reference = self._arrivals[base] // TICKS_PER_REFERENCE
        before = reference * TICKS_PER_REFERENCE
        symbols: list[int] = []
        deltas = bytearray()
        for extended in range(base, min(self._highest + 1, base + REPORT_MAX_PACKETS)):
            at = self._arrivals.get(extended)
            if at is None:
                symbols.append(_LOST)
                continue
            delta = at - before
            if 0 <= delta <= 0xFF:
                symbols.append(_SMALL)
                deltas.append(delta)
            elif -0x8000 <= delta <= 0x7FFF:
                symbols.append(_LARGE)
                deltas += struct.pack("!h", delta)
            else:
                break  # too far from its predecessor: the next message has a reference time of its own
            before = at
        while symbols[-1] == _LOST:
            symbols.pop()
        self._next = base + len(symbols)
        body = struct.pack("!IIHH", self._ssrc, media_ssrc, base & 0xFFFF, len(symbols))
        body += (reference & 0xFFFFFF).to_bytes(3, "big") + bytes([self._count])
        self._count = (self._count + 1) & 0xFF
        body += _chunks(symbols) + deltas
        padding = -len(body) % 4
        if padding:
            body += bytes(padding - 1) + bytes([padding])
        first = 0x80 | (0x20 if padding else 0) | FMT_TRANSPORT_CC
        return struct.pack("!BBH", first, RTCP_RTPFB, len(body) // 4) + body


def _chunks(symbols: list[int]) -> bytes:
    """Packet status chunks (section 3.1.3 and 3.1.4): runs where they are long, else vectors of 14 or 7 symbols."""
    out = bytearray()
    at = 0
    while at < len(symbols):
        run = at
        while run < len(symbols) and symbols[run] == symbols[at] and run - at < RUN_MAX:
            run += 1
        one_bit = symbols[at : at + 14]
        if run - at >= RUN_MIN and (run - at >= 14 or _LARGE in one_bit):
            out += struct.pack("!H", symbols[at] << 13 | (run - at))
            at = run
        elif _LARGE not in one_bit:
            bits = sum(symbol << 13 - index for index, symbol in enumerate(one_bit))
            out += struct.pack("!H", 0x8000 | bits)
            at += 14
        else:
            bits = sum(symbol << 12 - 2 * index for index, symbol in enumerate(symbols[at : at + 7]))
            out += struct.pack("!H", 0xC000 | bits)
            at += 7
    return bytes(out)


def transport_sequence(data: bytes, ident: int) -> int | None:
    """The transport-wide sequence number of an RTP packet; None if it carries none."""
    value = header_extension(data, ident)
    return None if value is None or len(value) < 2 else int.from_bytes(value[:2], "big")
