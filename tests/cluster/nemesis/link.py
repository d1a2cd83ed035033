"""A TCP proxy between one server and Postgres or NATS: delays, loses or resets what passes."""

import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

import trio

CHUNKS_MAX: Final = 10_000
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing the socket sends a reset."""


class Way(Enum):
    """A direction of the connections of one server."""

    OUT = "from the server"
    BACK = "to the server"


@dataclass
class Link:
    """A proxy on loopback. Between `block` and `unblock` nothing passes and no connection is closed."""

    dial: Callable[[], Awaitable[trio.SocketStream]]
    """Connects to Postgres or NATS."""
    port: int = 0
    delay_s: float = 0.0
    """How long each answer takes longer."""
    _blocked: dict[Way, trio.Event] = field(default_factory=dict)
    _connections: dict[trio.CancelScope, trio.SocketStream] = field(default_factory=dict)

    def block(self, *ways: Way) -> None:
        """Let nothing pass in these directions, as a firewall that drops packets."""
        for way in ways:
            self._blocked[way] = trio.Event()

    def unblock(self) -> None:
        """Let everything pass that has gathered."""
        blocked, self._blocked = self._blocked, {}
        for event in blocked.values():
            event.set()

    def reset(self) -> None:
        """Reset every connection."""
        for scope, client in self._connections.items():
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            scope.cancel()

    async def serve(self, client: trio.SocketStream) -> None:
        async with client:
            try:
                upstream = await self.dial()
            except OSError:
                return
            async with upstream, trio.open_nursery() as nursery:
                scope = nursery.cancel_scope
                self._connections[scope] = client
                try:
                    nursery.start_soon(self._pump, client, upstream, Way.OUT, scope)
                    await self._pump(upstream, client, Way.BACK, scope)
                finally:
                    del self._connections[scope]

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, way: Way, connection: trio.CancelScope
    ) -> None:
        send, receive = trio.open_memory_channel[tuple[float, bytes]](CHUNKS_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, source, send, way, connection)
            async for due, chunk in receive:
                await trio.sleep_until(due)
                while (blocked := self._blocked.get(way)) is not None:
                    await blocked.wait()
                try:
                    await sink.send_all(chunk)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    break
            connection.cancel()

    async def _read(
        self,
        source: trio.SocketStream,
        send: trio.MemorySendChannel[tuple[float, bytes]],
        way: Way,
        connection: trio.CancelScope,
    ) -> None:
        async with send:
            try:
                async for chunk in source:
                    delay_s = self.delay_s if way is Way.BACK else 0.0
                    await send.send((trio.current_time() + delay_s, chunk))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                connection.cancel()


async def open_link(nursery: trio.Nursery, dial: Callable[[], Awaitable[trio.SocketStream]]) -> Link:
    """Open a proxy on a free port. It ends with the nursery."""
    link = Link(dial)
    listeners = await nursery.start(partial(trio.serve_tcp, link.serve, 0, host="127.0.0.1"))
    link.port = listeners[0].socket.getsockname()[1]
    return link
