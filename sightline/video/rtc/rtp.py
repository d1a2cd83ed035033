"""RTP packets and the RTCP messages that a forwarder needs. Pure.

Source: RFC 3550 (RTP, sender and receiver reports), RFC 4585 (NACK, PLI), RFC 4588 (RTX), REMB draft.
"""

import struct
from typing import final

HEADER = struct.Struct("!BBHII")
"""Of a packet without extensions: version and flags, marker and payload type, sequence, timestamp, SSRC."""
HEADER_BYTES = HEADER.size
RTCP_SR, RTCP_RR, RTCP_SDES, RTCP_BYE, RTCP_RTPFB, RTCP_PSFB = 200, 201, 202, 203, 205, 206
FMT_NACK, FMT_PLI, FMT_FIR, FMT_REMB = 1, 1, 4, 15
NTP_EPOCH_OFFSET_S = 2_208_988_800
"""Seconds from 1900 (NTP) to 1970 (Unix)."""


RTCP_MESSAGES_MAX = 16
"""Messages of one datagram that are read."""


@final
class RtpPacket:
    """A received RTP packet; extensions are dropped, padding is cut."""

    __slots__ = ("marker", "payload", "payload_type", "sequence", "ssrc", "timestamp")

    def __init__(
        self, *, marker: bool, payload_type: int, sequence: int, timestamp: int, ssrc: int, payload: bytes
    ) -> None:
        self.marker = marker
        self.payload_type = payload_type
        self.sequence = sequence
        self.timestamp = timestamp
        self.ssrc = ssrc
        self.payload = payload


def is_rtcp(data: bytes) -> bool:
    """Tell RTCP from RTP on one port (RFC 5761, section 4)."""
    return len(data) >= 2 and 192 <= data[1] <= 223


def parse_rtp(data: bytes) -> RtpPacket | None:
    """Read one packet; None if it is malformed."""
    if len(data) < 12:
        return None
    first, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if first >> 6 != 2:
        return None
    start = 12 + 4 * (first & 0x0F)
    if first & 0x10:
        if len(data) < start + 4:
            return None
        start += 4 + 4 * int.from_bytes(data[start + 2 : start + 4], "big")
    end = len(data)
    if first & 0x20:
        end -= data[-1]
    if start > end:
        return None
    return RtpPacket(
        marker=bool(second & 0x80),
        payload_type=second & 0x7F,
        sequence=sequence,
        timestamp=timestamp,
        ssrc=ssrc,
        payload=data[start:end],
    )


def header_extension(data: bytes, ident: int) -> bytes | None:
    """The value of a header extension; None if the packet does not carry it whole (RFC 8285, both header forms)."""
    if not data[0] & 0x10:
        return None
    at = 12 + 4 * (data[0] & 0x0F)
    if len(data) < at + 4:
        return None
    profile, words = struct.unpack_from("!HH", data, at)
    at += 4
    end = at + 4 * words
    if len(data) < end:
        return None
    one_byte = profile == 0xBEDE
    if not one_byte and profile & 0xFFF0 != 0x1000:
        return None
    while at < end:
        if data[at] == 0:
            at += 1
            continue
        if one_byte:
            found, size, start = data[at] >> 4, (data[at] & 0x0F) + 1, at + 1
        elif at + 1 < end:
            found, size, start = data[at], data[at + 1], at + 2
        else:
            return None
        if found == ident:
            return data[start : start + size] if start + size <= end else None
        at = start + size
    return None


def build_rtp(payload: bytes, *, marker: bool, payload_type: int, sequence: int, timestamp: int, ssrc: int) -> bytes:
    """Write one packet without extensions."""
    return HEADER.pack(0x80, payload_type | (0x80 if marker else 0), sequence, timestamp, ssrc) + payload


def unwrap_rtx(packet: RtpPacket, payload_type: int, ssrc: int) -> RtpPacket | None:
    """The original packet inside a retransmission; None if it carries none (a probe)."""
    if len(packet.payload) < 2:
        return None
    return RtpPacket(
        marker=packet.marker,
        payload_type=payload_type,
        sequence=int.from_bytes(packet.payload[:2], "big"),
        timestamp=packet.timestamp,
        ssrc=ssrc,
        payload=packet.payload[2:],
    )


def wrap_rtx(data: bytes, *, payload_type: int, sequence: int, ssrc: int) -> bytes:
    """Turn a sent packet (as `build_rtp` made it) into its retransmission."""
    _, second, _, timestamp, _ = HEADER.unpack_from(data)
    head: bytes = HEADER.pack(0x80, (second & 0x80) | payload_type, sequence, timestamp, ssrc)
    return head + data[2:4] + data[12:]


@final
class RtcpMessage:
    """One message of a compound RTCP packet: its type, its count or format, and the body after the header."""

    __slots__ = ("body", "count", "kind")

    def __init__(self, kind: int, count: int, body: bytes) -> None:
        self.kind = kind
        self.count = count
        self.body = body


def parse_rtcp(data: bytes) -> list[RtcpMessage]:
    """Split a compound packet; stops silently at the first malformed part and after RTCP_MESSAGES_MAX."""
    messages: list[RtcpMessage] = []
    at = 0
    while at + 4 <= len(data) and len(messages) < RTCP_MESSAGES_MAX:
        first, kind, length = struct.unpack_from("!BBH", data, at)
        end = at + 4 + 4 * length
        if first >> 6 != 2 or end > len(data):
            break
        messages.append(RtcpMessage(kind, first & 0x1F, data[at + 4 : end]))
        at = end
    return messages


def _message(kind: int, count: int, body: bytes) -> bytes:
    return struct.pack("!BBH", 0x80 | count, kind, len(body) // 4) + body


def ntp_from_ms(at_ms: float) -> int:
    """64-bit NTP time of a Unix time in milliseconds."""
    seconds, rest = divmod(at_ms, 1000.0)
    return (int(seconds) + NTP_EPOCH_OFFSET_S) << 32 | int(rest * 4_294_967.296)


def ms_from_ntp(ntp: int) -> float:
    """Unix time in milliseconds of a 64-bit NTP time."""
    return ((ntp >> 32) - NTP_EPOCH_OFFSET_S) * 1000.0 + (ntp & 0xFFFFFFFF) / 4_294_967.296


def build_sender_report(
    *, ssrc: int, now_ms: float, rtp_timestamp: int, packets: int, octets: int, cname: str
) -> bytes:
    """A sender report followed by the mandatory CNAME."""
    report = struct.pack("!IQIII", ssrc, ntp_from_ms(now_ms), rtp_timestamp, packets & 0xFFFFFFFF, octets & 0xFFFFFFFF)
    name = cname.encode()
    chunk = struct.pack("!IBB", ssrc, 1, len(name)) + name + b"\0"
    chunk += b"\0" * (-len(chunk) % 4)
    return _message(RTCP_SR, 0, report) + _message(RTCP_SDES, 1, chunk)


def build_receiver_report(
    *, ssrc: int, media_ssrc: int, lost_fraction: int, lost: int, highest: int, jitter: int, lsr: int, dlsr: int
) -> bytes:
    """A receiver report of one source."""
    block = struct.pack("!IB", media_ssrc, lost_fraction)
    block += max(0, min(lost, 0x7FFFFF)).to_bytes(3, "big")
    block += struct.pack("!IIII", highest & 0xFFFFFFFF, jitter & 0xFFFFFFFF, lsr, dlsr)
    return _message(RTCP_RR, 1, struct.pack("!I", ssrc) + block)


def read_report_blocks(message: RtcpMessage, ssrc: int) -> list[tuple[float, int, int]]:
    """What a sender or receiver report says about one source: (fraction lost, last report, delay since it)."""
    blocks: list[tuple[float, int, int]] = []
    first = 24 if message.kind == RTCP_SR else 4
    for at in range(first, min(len(message.body), first + 24 * message.count) - 23, 24):
        source, lost = struct.unpack_from("!IB", message.body, at)
        if source == ssrc:
            lsr, dlsr = struct.unpack_from("!II", message.body, at + 16)
            blocks.append((lost / 256, lsr, dlsr))
    return blocks


def build_pli(ssrc: int, media_ssrc: int) -> bytes:
    """A picture loss indication: a request for a keyframe."""
    return _message(RTCP_PSFB, FMT_PLI, struct.pack("!II", ssrc, media_ssrc))


def build_nack(ssrc: int, media_ssrc: int, missing: list[int]) -> bytes:
    """Request retransmission of 16-bit sequence numbers (ascending, at least one)."""
    body = struct.pack("!II", ssrc, media_ssrc)
    base, mask = missing[0], 0
    for sequence in missing[1:]:
        distance = (sequence - base - 1) & 0xFFFF
        if distance < 16:
            mask |= 1 << distance
        else:
            body += struct.pack("!HH", base, mask)
            base, mask = sequence, 0
    return _message(RTCP_RTPFB, FMT_NACK, body + struct.pack("!HH", base, mask))


def read_nack(message: RtcpMessage) -> list[int]:
    """The sequence numbers that a NACK requests."""
    missing: list[int] = []
    for at in range(8, len(message.body) - 3, 4):
        base, mask = struct.unpack_from("!HH", message.body, at)
        missing.append(base)
        missing.extend((base + 1 + bit) & 0xFFFF for bit in range(16) if mask >> bit & 1)
    return missing


def build_remb(ssrc: int, media_ssrc: int, bitrate_bps: int) -> bytes:
    """Receiver estimated maximum bitrate (draft-alvestrand-rmcat-remb-03, section 2.2)."""
    exponent = max(0, bitrate_bps.bit_length() - 18)
    rate = struct.pack("!I", 1 << 24 | exponent << 18 | bitrate_bps >> exponent)
    return _message(RTCP_PSFB, FMT_REMB, struct.pack("!II", ssrc, 0) + b"REMB" + rate + struct.pack("!I", media_ssrc))
