"""A TCP connection of an ICE agent, with the interface of its UDP sockets (RFC 6544, RFC 4571)."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final, final

from typing_extensions import override

from sightline.video.rtc.tcp_frames import FrameReader, FramingError, framed
from sightline.video.rtc.udp import PAUSE_S, Address, ReadPace, Run, one_datagram

READ_BYTES: Final = 32 * 1024
SEND_BUFFER_BYTES: Final = 128 * 1024
"""SO_SNDBUF, which Linux doubles: half a second at 4 Mbit/s. With more, media arrives late instead of being dropped."""
UNSENT_MAX_BYTES: Final = 64 * 1024
"""What waits here beyond the kernel's buffer. More packets are dropped, as a full UDP buffer would drop them."""
IDLE_S: Final = 30.0
"""A connection without a byte for this long is closed. Agents check even the paths that they do not use more often."""


@final
class TcpTransport(asyncio.DatagramTransport):
    """An accepted TCP connection on the running loop. Sends whole packets or drops them.

    A frame that is no packet closes the connection, and so does silence of `idle_s`.

    Args:
        on_datagram: As of `UdpTransport`; the time is that of reading, because TCP has none of arrival.
        on_lost: Called once after the connection is closed, from the loop.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_datagram: Callable[[bytes, Address, float], None],
        on_lost: Callable[[], None],
        pace: ReadPace,
        idle_s: float = IDLE_S,
    ) -> None:
        peer = sock.getpeername()
        super().__init__({"socket": sock, "sockname": sock.getsockname(), "peername": peer})
        self.peer: Address = (peer[0], peer[1])
        self._sock = sock
        self._on_datagram = on_datagram
        self._on_lost = on_lost
        self._pace = pace
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._closing = False
        self._heard_s = self._loop.time()
        self.blocked = False
        """True while packets wait for the connection."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._loop.add_reader(sock.fileno(), self._read)
        self._idle = self._loop.call_later(idle_s, self._check_idle)

    def _check_idle(self) -> None:
        left_s = self._heard_s + self._idle_s - self._loop.time()
        if left_s <= 0:
            self.close()
        else:
            self._idle = self._loop.call_later(left_s, self._check_idle)

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._heard_s = self._loop.time()
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        count = 0
        try:
            for packet in self._frames.feed(data):
                count += 1
                self._on_datagram(packet, self.peer, self._heard_s * 1000)
                if self._closing:
                    return
        except FramingError:
            self.close()
            return
        if self._pace.take(count, self._heard_s) < count:
            self._loop.remove_reader(self._sock.fileno())
            self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self._closing:
            self._loop.add_reader(self._sock.fileno(), self._read)

    @override
    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send one packet to the peer, whatever the address."""
        self.send_runs([one_datagram(data)], self.peer)

    def send_runs(self, runs: Iterable[Run], address: Address) -> None:
        """Send packets in order; drops them all while too much waits."""
        del address
        if self._closing or len(self._unsent) > UNSENT_MAX_BYTES:
            return
        had_unsent = bool(self._unsent)
        self._unsent += b"".join(framed(packet) for run in runs for packet in run.datagrams())
        if not had_unsent:
            self._flush()

    def _flush(self) -> None:
        try:
            del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._unsent and not self.blocked:
            self._loop.add_writer(self._sock.fileno(), self._flush)
        elif self.blocked and not self._unsent:
            self._loop.remove_writer(self._sock.fileno())
        self.blocked = bool(self._unsent)

    @override
    def is_closing(self) -> bool:
        return self._closing

    @override
    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._idle.cancel()
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._loop.call_soon(self._on_lost)

    @override
    def abort(self) -> None:
        self.close()
