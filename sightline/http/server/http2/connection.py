"""Connections of HTTP/2 by Hypercorn, isolated so that an invalid packet ends its connection and not the server.

In Hypercorn 0.18 an exception in a connection task reaches the nursery of the server and stops the process (its issue
225). So its TCPServer runs inside `guarded`, which ends only the connection. It also writes under an unbounded shield;
`BoundedStream` limits the time of a write.
"""

import logging
from typing import Any, cast

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from sightline.http.server.http2.bounded_app import BoundedApp
from sightline.http.server.http2.protocol import GuardedProtocol, Unread
from sightline.http.server.options import Limits
from sightline.http.server.scope import Peer
from sightline.http.server.shared import Shared

log = structlog.get_logger()

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
READ_BYTES = 4_096
"""A read of small frames is parsed in one go: 450 of them take about 5 ms, for which no other task runs."""


class BoundedStream:
    """A stream whose writes time out. Its first reads return the bytes that were read before HTTP/2 was chosen."""

    def __init__(self, stream: trio.abc.Stream, write_s: float, already_read: bytes = b"") -> None:
        self._stream = stream
        self._write_s = write_s
        self._already_read = already_read

    def __getattr__(self, name: str) -> object:
        # Hypercorn asks for do_handshake, selected_alpn_protocol, transport_stream, socket, send_eof.
        return getattr(self._stream, name)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See trio.abc.ReceiveStream."""
        if self._already_read:
            data, self._already_read = self._already_read, b""
            return data
        return bytes(await self._stream.receive_some(min(max_bytes or READ_BYTES, READ_BYTES)))

    async def send_all(self, data: bytes) -> None:
        """See trio.abc.SendStream; raises BrokenResourceError when the peer does not read."""
        with trio.move_on_after(self._write_s) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError

    async def aclose(self) -> None:
        """See trio.abc.AsyncResource."""
        await trio.aclose_forcefully(self._stream)


class Http2Server:
    """Serves the HTTP/2 connections of one `serve` call; `drain` closes idle ones."""

    def __init__(self, shared: Shared) -> None:
        limits = shared.options.limits
        config = Config()
        config.errorlog = logging.getLogger("sightline.hypercorn")
        config.accesslog = None
        config.include_server_header = False
        config.include_date_header = False
        config.keep_alive_timeout = limits.idle_s
        config.keep_alive_max_requests = limits.h2_requests_max
        config.read_timeout = int(limits.idle_s) or 1
        config.h2_max_concurrent_streams = limits.h2_streams_max
        config.h2_max_header_list_size = limits.header_bytes_max
        config.websocket_max_message_size = limits.websocket_message_bytes_max
        config.websocket_ping_interval = limits.websocket_ping_s
        self._config = config
        self._context = WorkerContext(None)
        self._shared = shared
        self._unread = Unread(own_max=limits.h2_unread_bytes_max, all_max=limits.h2_unread_bytes_all_max)

    async def drain(self) -> None:
        """Close idle connections; let the others finish their requests."""
        await self._context.terminated.set()

    async def run(self, stream: trio.abc.Stream, peer: Peer, already_read: bytes = b"") -> None:
        """Serve one connection until it ends. Raises nothing but cancellation."""
        bounded = BoundedStream(stream, self._shared.options.limits.write_s, already_read)
        app = ASGIWrapper(cast("Any", BoundedApp(self._shared, peer)))
        server = _GuardedServer(app, self._config, self._context, ConnectionState({}), cast("Any", bounded))
        server.limits, server.unread = self._shared.options.limits, self._unread
        try:
            await server.run()
        except* Exception as group:  # noqa: BLE001 (logged, and there is nobody to tell)
            # An invalid packet ended the connection; the stack trace is Hypercorn's.
            log.info("http2_connection_failed", errors=[type(e).__name__ for e in _leaves(group)])
        finally:
            await trio.aclose_forcefully(stream)


class _GuardedServer(TCPServer):
    """A TCPServer that speaks HTTP/2 from the first byte, after ALPN or with prior knowledge."""

    limits: Limits
    unread: Unread

    async def _read_data(self) -> None:
        protocol = self.protocol
        if not isinstance(protocol.protocol, GuardedProtocol):
            protocol.protocol = GuardedProtocol(
                self.limits,
                self.unread,
                protocol.app,
                protocol.config,
                protocol.context,
                protocol.task_group,
                protocol.state,
                protocol.ssl,
                protocol.client,
                protocol.server,
                protocol.send,
            )
            await protocol.protocol.initiate()
        await super()._read_data()
        # The client closed the connection. Hypercorn would keep its tasks until the idle timeout.
        nursery = self._task_group._nursery  # noqa: SLF001 (pinned)
        assert nursery is not None
        nursery.cancel_scope.deadline = trio.current_time() + self.limits.linger_s


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
