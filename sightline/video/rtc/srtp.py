"""Encryption of many RTP packets in one buffer.

`pylibsrtp.Session.protect` copies each packet in and out and allocates a length for it, which takes as long as the
encryption itself (ADR 0247). This calls libsrtp below it: private names, see tests/video/rtc/test_private_names.py.
"""

import threading
from collections.abc import Sequence
from typing import Final

import pylibsrtp
from pylibsrtp._binding import ffi, lib

TRAILER_MAX_BYTES: Final = pylibsrtp.SRTP_MAX_TRAILER_LEN
"""What libsrtp may write after a packet."""
FIRST_BYTES: Final = 1 << 16


class _Buffer(threading.local):
    """One thread's buffer. It grows to the largest frame, and is never given back."""

    def __init__(self) -> None:
        self.length = ffi.new("int *")
        self.allocate(FIRST_BYTES)

    def allocate(self, size: int) -> None:
        self.start = ffi.new("unsigned char[]", size)
        self.view = memoryview(ffi.buffer(self.start))


_buffer: Final = _Buffer()


def protect_all(session: pylibsrtp.Session, packets: Sequence[bytes]) -> list[memoryview]:
    """Encrypt RTP packets, back to back in one buffer.

    Returns:
        The packets for the wire: views that are valid until the next call in this thread.

    Raises:
        pylibsrtp.Error: libsrtp refused a packet, such as one without a whole RTP header.
    """
    needed = sum(map(len, packets)) + TRAILER_MAX_BYTES * len(packets)
    if needed > len(_buffer.view):
        _buffer.allocate(needed)
    start, view, length = _buffer.start, _buffer.view, _buffer.length
    protect, handle = lib.srtp_protect, session._srtp[0]
    protected, at = [], 0
    for packet in packets:
        size = len(packet)
        view[at : at + size] = packet
        length[0] = size
        if status := protect(handle, start + at, length):
            raise pylibsrtp.Error(f"libsrtp refused a packet: error {status}")
        size = length[0]
        protected.append(view[at : at + size])
        at += size
    return protected
