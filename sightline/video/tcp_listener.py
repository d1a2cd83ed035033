"""The TCP port for media: accepts connections and passes each to the worker whose ICE agent its first packet names.

One port serves all workers. The ufrag of an agent begins with the index of its worker (`NetOptions.ufrag_prefix`).
"""

import errno
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final, final

import structlog
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.video.options import NetOptions
from sightline.video.rtc.tcp_frames import LENGTH_BYTES, FramingError, frame_length, named_agent

FIRST_PACKET_S: Final = 5.0
"""How long a connection may take until its first packet is here."""
WAITING_MAX: Final = 256
"""Most connections that may wait for their first packet; further ones are closed at once."""
WAITING_PER_ADDRESS_MAX: Final = 32
BIND_ATTEMPTS: Final = 8
log = structlog.get_logger()


def open_tcp_port(net: NetOptions) -> list[trio.SocketListener]:
    """Listen on the port of `net` at each address of this machine, or on a free one if it is 0; nothing if it is -1.

    Raises:
        VideoUnavailableError: The port is taken.
    """
    if net.tcp_port < 0:
        return []
    addresses = net.bind_addresses or (("0.0.0.0", "::") if net.ipv6 else ("0.0.0.0",))  # noqa: S104  as UDP does
    for attempt in range(BIND_ATTEMPTS):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                port = sockets[0].getsockname()[1] if sockets else net.tcp_port
                try:
                    sockets.append(_listening(address, port))
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
                    # Not this machine's: the check of the UDP addresses logs it.
        except OSError as error:
            for sock in sockets:
                sock.close()
            # A free port of the first address may be taken at the second.
            if net.tcp_port or error.errno != errno.EADDRINUSE or attempt == BIND_ATTEMPTS - 1:
                reason = error.strerror or str(error)
                raise VideoUnavailableError(f"TCP port {net.tcp_port} for media cannot be opened: {reason}.") from error
        else:
            return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]
    raise AssertionError("unreachable")


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(WAITING_MAX)
    except OSError:
        sock.close()
        raise
    return sock


def port_of(listeners: list[trio.SocketListener]) -> int:
    """The port of the listeners; -1 without any."""
    return int(listeners[0].socket.getsockname()[1]) if listeners else -1


@final
class TcpRouter:
    """Reads the first packet of each connection, and passes the connection on with it.

    Args:
        pass_on: Takes (index of the worker, descriptor of the connection, first packet). The descriptor is closed here
            afterwards: the worker must have got a copy.
    """

    def __init__(self, pass_on: Callable[[int, int, bytes], None]) -> None:
        self._pass_on = pass_on
        self._waiting: Counter[str] = Counter()

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        """Accept until cancelled."""
        if listeners:
            await trio.serve_listeners(self._accept, listeners)

    async def _accept(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                address = str(stream.socket.getpeername()[0])
            except OSError:
                return  # it is gone
            if self._waiting.total() >= WAITING_MAX or self._waiting[address] >= WAITING_PER_ADDRESS_MAX:
                return
            self._waiting[address] += 1
            try:
                with trio.move_on_after(FIRST_PACKET_S):
                    await self._route(stream)
            finally:
                self._waiting[address] -= 1
                self._waiting += Counter()  # drops addresses that have none left

    async def _route(self, stream: trio.SocketStream) -> None:
        try:
            packet = await _exactly(stream, frame_length(await _exactly(stream, LENGTH_BYTES)))
        except (trio.BrokenResourceError, FramingError):
            return
        ufrag = named_agent(packet) or ""
        if ufrag[:2].isascii() and ufrag[:2].isdigit():
            self._pass_on(int(ufrag[:2]), stream.socket.fileno(), packet)


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    """Read so many bytes and no more: the rest belongs to the worker.

    Raises:
        trio.BrokenResourceError: The connection ended before.
    """
    data = b""
    while len(data) < count:
        more = await stream.receive_some(count - len(data))
        if not more:
            raise trio.BrokenResourceError("closed before its first packet")
        data += more
    return data
