"""Encryption of the RTP packets of a frame in one buffer.

`pylibsrtp.Session.protect` copies each packet in and out and allocates a length for it, which takes as long as the
encryption itself (ADR 0247). This calls libsrtp below it: private names, see tests/video/rtc/test_private_names.py.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final, final

import pylibsrtp
from pylibsrtp._binding import ffi, lib

from sightline.video.rtc.rtp import HEADER, HEADER_BYTES
from sightline.video.rtc.udp import Run, equal_runs

GAP_BYTES: Final = 16
"""Left after each packet for the authentication tag. That of AES-GCM fills it, so that a run is one piece of memory."""
FIRST_BYTES: Final = 1 << 16


@final
class _Layout:
    """The payloads of a frame as they lie in the buffer, with room for headers and tags. All viewers share it.

    Args:
        start: Where in memory the buffer begins, for libsrtp.
    """

    __slots__ = ("data", "packets", "payloads", "runs")

    def __init__(self, payloads: Sequence[bytes], start: Any) -> None:
        self.payloads = payloads
        header, gap = bytes(HEADER_BYTES), bytes(GAP_BYTES)
        self.data = b"".join([part for payload in payloads for part in (header, payload, gap)])
        at = 0
        self.packets: list[tuple[int, int, Any]] = []
        """Of each packet: where it begins, its size without tag, and the pointer to it."""
        for payload in payloads:
            size = HEADER_BYTES + len(payload)
            self.packets.append((at, size, start + at))
            at += size + GAP_BYTES
        self.runs = list(equal_runs([size for _, size, _ in self.packets]))


class _Buffer(threading.local):
    """One thread's buffer, and the layout that is in use. It grows to the largest frame, and is never given back."""

    def __init__(self) -> None:
        self.length = ffi.new("int *")
        self.allocate(FIRST_BYTES)

    def allocate(self, size: int) -> None:
        self.start = ffi.new("unsigned char[]", size)
        self.view = memoryview(ffi.buffer(self.start))
        self.layout: _Layout | None = None

    def lay_out(self, payloads: Sequence[bytes]) -> _Layout:
        needed = sum(map(len, payloads)) + (HEADER_BYTES + GAP_BYTES) * len(payloads)
        if needed > len(self.view):
            self.allocate(needed)
        self.layout = _Layout(payloads, self.start)
        return self.layout


_buffer: Final = _Buffer()


def protect(session: pylibsrtp.Session, packet: bytes) -> bytes:
    """Encrypt one RTP packet of any size.

    Raises:
        pylibsrtp.Error: libsrtp refused it: it has no whole RTP header.
    """
    if len(packet) + pylibsrtp.SRTP_MAX_TRAILER_LEN > len(_buffer.view):
        _buffer.allocate(len(packet) + pylibsrtp.SRTP_MAX_TRAILER_LEN)
    view, length = _buffer.view, _buffer.length
    view[: len(packet)] = packet
    length[0] = len(packet)
    _check(lib.srtp_protect(session._srtp[0], _buffer.start, length))
    return bytes(view[: length[0]])


def protect_frame(
    session: pylibsrtp.Session,
    payloads: Sequence[bytes],
    *,
    payload_type: int,
    sequence: int,
    timestamp: int,
    ssrc: int,
) -> list[Run]:
    """Make the RTP packets of a frame and encrypt them: running sequence numbers, and the marker on the last.

    Args:
        payloads: At least one. With the same sequence again (as for the next viewer), they are not laid out anew.

    Returns:
        What goes on the wire.

    Raises:
        pylibsrtp.Error: libsrtp refused a packet.
    """
    buffer = _buffer
    layout = buffer.layout
    if layout is None or layout.payloads is not payloads:
        layout = buffer.lay_out(payloads)
    view, length = buffer.view, buffer.length
    view[: len(layout.data)] = layout.data
    pack, encrypt, handle = HEADER.pack_into, lib.srtp_protect, session._srtp[0]
    left = len(layout.packets)
    size = 0
    for at, size, pointer in layout.packets:
        left -= 1
        pack(view, at, 0x80, payload_type if left else payload_type | 0x80, sequence, timestamp, ssrc)
        length[0] = size
        if status := encrypt(handle, pointer, length):
            _check(status)
        sequence = sequence + 1 & 0xFFFF
    return _runs(layout, view, length[0] - size)


def _runs(layout: _Layout, view: memoryview, tag_bytes: int) -> list[Run]:
    packets = layout.packets
    runs = []
    for first, end in layout.runs:
        at, size, _ = packets[first]
        if tag_bytes == GAP_BYTES:
            last_at, last_size, _ = packets[end - 1]
            parts = [bytes(view[at : last_at + last_size + tag_bytes])]
        else:
            parts = [bytes(view[at : at + size + tag_bytes]) for at, size, _ in packets[first:end]]
        runs.append(Run(parts, size + tag_bytes, end - first))
    return runs


def _check(status: int) -> None:
    if status:
        raise pylibsrtp.Error(f"libsrtp refused a packet: error {status}")
