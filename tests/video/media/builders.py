"""Builders of packets and streams for the tests without I/O."""

from collections.abc import Iterator

from sightline.video.rtc.rtp import RtpPacket

SPS = bytes.fromhex("6742c01f8c8d40501e9010")
PPS = bytes.fromhex("68ce3c80")


def a_packet(sequence: int, payload: bytes, *, timestamp: int = 0, marker: bool = False) -> RtpPacket:
    """Build one video packet."""
    return RtpPacket(
        marker=marker,
        payload_type=96,
        sequence=sequence & 0xFFFF,
        timestamp=timestamp & 0xFFFFFFFF,
        ssrc=1,
        payload=payload,
    )


def _fragment(kind: int, body: bytes, *, first: bool, last: bool) -> bytes:
    return bytes([0x60 | 28, (0x80 if first else 0) | (0x40 if last else 0) | kind]) + body


def an_h264_stream(frames: int, *, gop: int = 10, parts: int = 4, start: int = 65_500) -> Iterator[list[RtpPacket]]:
    """Build packets of `frames` frames, with a keyframe (with SPS and PPS) every `gop`; sequence numbers wrap."""
    sequence = start
    for index in range(frames):
        key = index % gop == 0
        payloads = []
        if key:
            stap = bytes([24]) + len(SPS).to_bytes(2, "big") + SPS + len(PPS).to_bytes(2, "big") + PPS
            payloads.append(stap)
        for part in range(parts):
            body = f"{index}:{part};".encode()
            payloads.append(_fragment(5 if key else 1, body, first=part == 0, last=part == parts - 1))
        packets = []
        for position, payload in enumerate(payloads):
            packets.append(
                a_packet(sequence, payload, timestamp=index * 3000 + 0xFFFFF000, marker=position == len(payloads) - 1)
            )
            sequence += 1
        yield packets
