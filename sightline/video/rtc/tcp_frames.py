"""Packets on a TCP connection of ICE: their framing (RFC 4571), and the agent that a first one names. Pure."""

from collections.abc import Iterator
from typing import Final, final

FRAME_MAX_BYTES: Final = 2048
"""STUN, DTLS and SRTP packets are made for Ethernet frames; a longer one is no packet of ours."""
LENGTH_BYTES: Final = 2
STUN_HEADER_BYTES: Final = 20
BINDING_REQUEST: Final = b"\x00\x01"
MAGIC_COOKIE: Final = b"\x21\x12\xa4\x42"
USERNAME: Final = 0x0006


class FramingError(ValueError):
    """The bytes are no frames of packets."""


def frame_length(prefix: bytes) -> int:
    """The length that a frame's first two bytes say.

    Raises:
        FramingError: It is 0 or above FRAME_MAX_BYTES.
    """
    length = int.from_bytes(prefix, "big")
    if not 0 < length <= FRAME_MAX_BYTES:
        raise FramingError(f"a frame of {length} bytes")
    return length


def framed(packet: bytes | memoryview) -> bytes:
    """A packet with its length before it."""
    return len(packet).to_bytes(LENGTH_BYTES, "big") + packet


@final
class FrameReader:
    """Cuts a byte stream into packets. Holds at most one incomplete frame and what was fed last."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes; gives the packets that are complete.

        Raises:
            FramingError: The stream is none of frames. Packets before the fault were given.
        """
        data, at = self._rest + data, 0
        self._rest = b""
        while len(data) - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + frame_length(data[at : at + LENGTH_BYTES])
            if end > len(data):
                break
            yield data[at + LENGTH_BYTES : end]
            at = end
        self._rest = data[at:]


def named_agent(packet: bytes) -> str | None:
    """The receiver's ufrag in the USERNAME of a STUN binding request (RFC 8445, section 7.2.2); None for other packets.

    The request is not authenticated here.
    """
    if len(packet) < STUN_HEADER_BYTES or packet[:2] != BINDING_REQUEST or packet[4:8] != MAGIC_COOKIE:
        return None
    at = STUN_HEADER_BYTES
    while at + 4 <= len(packet):
        kind = int.from_bytes(packet[at : at + 2], "big")
        length = int.from_bytes(packet[at + 2 : at + 4], "big")
        if kind == USERNAME:
            ufrag, colon, _ = packet[at + 4 : at + 4 + length].decode(errors="replace").partition(":")
            return ufrag if colon else None
        at += 4 + (length + 3 & ~3)
    return None
