"""UDP sockets that report when the kernel received each datagram, and send a frame's datagrams in few system calls.

asyncio's datagram endpoints hide the arrival time: a datagram that waited a second in the socket's buffer would look
new. Datagrams of one size are sent as one buffer, which the kernel cuts again (UDP GSO, Linux 4.18).
"""

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, final

from typing_extensions import override

SOCKET_BUFFER_BYTES: Final = 1 << 20
DATAGRAM_MAX_BYTES: Final = 2048
"""Larger datagrams are cut; WebRTC packets fit into one Ethernet frame."""
READ_MAX: Final = 32
"""Datagrams read per wake-up, so that one socket cannot starve the others."""
PAUSE_S: Final = 0.02
"""How long a socket over its pace is not read: the kernel then drops what its buffer cannot hold, at no cost here."""
SO_TIMESTAMPNS: Final = 35
"""Linux; the socket module does not name it."""
UDP_SEGMENT: Final = 103
"""Linux: the option of UDP sockets, and the type of the control message, that gives the size of the segments."""
SEGMENTS_MAX: Final = 44
"""Datagrams in one call: with packets of at most 1,472 bytes (Ethernet) they stay below the 65,507 bytes of UDP."""
_TIMESPEC: Final = struct.Struct("@qq")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_TIMESPEC.size)
Address = tuple[str, int]


class Run(NamedTuple):
    """Datagrams of one size, of which the last may be shorter."""

    parts: Sequence[bytes | memoryview]
    """One for each datagram, or a single one that has them all, back to back."""
    segment_bytes: int
    """The size of each datagram but the last."""
    segments: int
    """How many datagrams there are."""

    def datagrams(self) -> Iterator[bytes | memoryview]:
        """The datagrams one by one."""
        if len(self.parts) == self.segments:
            yield from self.parts
            return
        (whole,) = self.parts
        for at in range(0, len(whole), self.segment_bytes):
            yield whole[at : at + self.segment_bytes]


def one_datagram(data: bytes) -> Run:
    """A run of one."""
    return Run((data,), len(data), 1)


@final
class ReadPace:
    """Bounds how many datagrams of one peer are read; shared by its sockets. A second's worth may come at once.

    Args:
        per_s: Datagrams a second.
    """

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._at_s = 0.0

    def take(self, wanted: int, now_s: float) -> int:
        """How many of the wanted datagrams may be read now."""
        self._left = min(self._per_s, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Return what was taken and not read."""
        self._left += count


@final
class UdpTransport(asyncio.DatagramTransport):
    """A bound UDP socket on the running loop. Sends at once or not at all; never buffers.

    Args:
        on_datagram: Takes (data, source, arrival in ms on the loop's clock). Runs in the read callback: must be quick.
        on_lost: Called once after `close`, from the loop.
        pace: Bounds how many datagrams are read.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_datagram: Callable[[bytes, Address, float], None],
        on_lost: Callable[[], None],
        pace: ReadPace,
    ) -> None:
        super().__init__({"socket": sock, "sockname": sock.getsockname()})
        self._sock = sock
        self._on_datagram = on_datagram
        self._on_lost = on_lost
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self.blocked = False
        """True after the kernel refused a datagram because its send buffer was full."""
        self._segments = _can_segment(sock)
        self._loop.add_reader(sock.fileno(), self._read)

    def _read(self) -> None:
        allowed = self._pace.take(READ_MAX, self._loop.time())
        if not allowed:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.call_later(PAUSE_S, self._resume)
        for count in range(allowed):
            if self._closing or not self._read_one():
                self._pace.give_back(allowed - count)
                return

    def _read_one(self) -> bool:
        """Read one datagram; False if there is none."""
        try:
            data, ancillary, _, source = self._sock.recvmsg(DATAGRAM_MAX_BYTES, _ANCILLARY_BYTES)
        except OSError:
            return False  # nothing more to read, or an ICMP error of an earlier datagram
        if data:
            arrived_ms = self._loop.time() * 1000 - _age_ms(ancillary)
            self._on_datagram(data, (source[0], source[1]), arrived_ms)
        return True

    def _resume(self) -> None:
        if not self._closing:
            self._loop.add_reader(self._sock.fileno(), self._read)

    @override
    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send one datagram; drops it if the socket cannot take it now (as a congested network would)."""
        try:
            self._sock.sendto(data, addr)
            self.blocked = False
        except BlockingIOError:
            self.blocked = True
        except OSError:
            pass  # no route, or an ICMP error of an earlier datagram: UDP may lose datagrams

    def send_runs(self, runs: Iterable[Run], address: Address) -> None:
        """Send datagrams in order; drops the rest as soon as the socket cannot take one."""
        for run in runs:
            if run.segments > 1 and self._segments and self._send_segments(run, address):
                if self.blocked:
                    return
                continue
            for data in run.datagrams():
                self.sendto(data, address)
                if self.blocked:
                    return

    def _send_segments(self, run: Run, address: Address) -> bool:
        """Send a run in one call; False if its datagrams must be sent one by one."""
        size = run.segment_bytes.to_bytes(2, sys.byteorder)
        try:
            self._sock.sendmsg(run.parts, [(socket.IPPROTO_UDP, UDP_SEGMENT, size)], 0, address)
            self.blocked = False
        except BlockingIOError:
            self.blocked = True
        except OSError:  # larger than the path's MTU, or a network device without checksums: not tried again
            self._segments = False
            return False
        return True

    @override
    def is_closing(self) -> bool:
        return self._closing

    @override
    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._loop.call_soon(self._on_lost)

    @override
    def abort(self) -> None:
        self.close()


def equal_runs(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split datagrams into runs of one size in which only the last may be shorter, as UDP GSO wants them.

    Yields:
        The index of a run's first datagram, and of the first after it.
    """
    start = 0
    for at in range(1, len(sizes) + 1):
        first, previous = sizes[start], sizes[at - 1]
        if at == len(sizes) or previous < first or sizes[at] > first or at - start == SEGMENTS_MAX:
            yield start, at
            start = at


def _can_segment(sock: socket.socket) -> bool:
    """True if the kernel has UDP GSO."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


def _age_ms(ancillary: list[tuple[int, int, bytes]]) -> float:
    """How long ago the kernel received the datagram; 0 where the platform does not say."""
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(value)
            # The kernel stamps with CLOCK_REALTIME, so the age is measured on that clock.
            now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            age_ns: int = now_ns - seconds * 1_000_000_000 - nanoseconds
            return min(60_000.0, max(0.0, age_ns / 1_000_000))
    return 0.0


def bind_udp(address: str, port: int) -> socket.socket:
    """A non-blocking socket bound to an address.

    Raises:
        OSError: The port is taken or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        if sys.platform == "linux":
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock
