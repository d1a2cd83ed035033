"""HTTP/2 by Hypercorn, isolated so that an invalid packet ends its connection and not the server.

In Hypercorn 0.18 an exception in a connection task reaches the nursery of the server and stops the process (its issue
225). So its TCPServer runs inside `guarded`, which ends only the connection. It also writes under an unbounded shield;
`BoundedStream` limits the time of a write.
"""

import logging
from typing import Any, cast

import h2.errors
import h2.events
import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from sightline.http.server.asgi import Message, Receive, Scope, Send
from sightline.http.server.options import Fault, Limits
from sightline.http.server.parser import READ_BYTES
from sightline.http.server.shared import Shared

log = structlog.get_logger()

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


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
        return bytes(await self._stream.receive_some(max_bytes or READ_BYTES))

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
        self._app = ASGIWrapper(cast("Any", BoundedApp(shared)))

    async def drain(self) -> None:
        """Close idle connections; let the others finish their requests."""
        await self._context.terminated.set()

    async def run(self, stream: trio.abc.Stream, already_read: bytes = b"") -> None:
        """Serve one connection until it ends. Raises nothing but cancellation."""
        bounded = BoundedStream(stream, self._shared.options.limits.write_s, already_read)
        server = _GuardedServer(self._app, self._config, self._context, ConnectionState({}), cast("Any", bounded))
        server.limits = self._shared.options.limits
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

    async def _read_data(self) -> None:
        protocol = self.protocol
        if not isinstance(protocol.protocol, ResetLimitedProtocol):
            protocol.protocol = ResetLimitedProtocol(
                ResetBudget(self.limits.h2_resets_max, self.limits.h2_resets_per_s),
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


class ResetBudget:
    """A token bucket that counts the streams of one connection that were reset."""

    def __init__(self, burst: int, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._counted_at_s = trio.current_time()

    def take(self, resets: int) -> bool:
        """Count resets, and return whether they are within the budget."""
        now_s = trio.current_time()
        self._left = min(self._burst, self._left + (now_s - self._counted_at_s) * self._per_s) - resets
        self._counted_at_s = now_s
        return self._left >= 0


class ResetLimitedProtocol(H2Protocol):
    """Closes a connection whose streams are reset too often: GOAWAY with ENHANCE_YOUR_CALM.

    A client that opens streams and resets them at once makes the server start a request for each, and the limit on
    concurrent streams never counts them (CVE-2023-44487). Streams that the server resets after an invalid frame count
    as well (CVE-2025-8671).
    """

    def __init__(self, budget: ResetBudget, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._budget = budget
        self._last_stream = 0

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        resets = sum(isinstance(event, h2.events.StreamReset) for event in events)
        if resets and not self._budget.take(resets):
            log.info("http2_reset_too_often", resets=resets)
            # GOAWAY names the last stream whose request was started: the client can repeat the later ones safely.
            self.connection.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, last_stream_id=self._last_stream)
            await self._flush()
            await self.send(Closed())
            return
        opened = [event.stream_id or 0 for event in events if isinstance(event, h2.events.RequestReceived)]
        self._last_stream = max(opened, default=self._last_stream)
        await super()._handle_events(events)


class BoundedApp:
    """Wraps the application for Hypercorn: applies the limits of HTTP/1.1 and sends faults in the error envelope."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._run(scope, receive, send)
            return
        limits = self._shared.options.limits
        if len(scope["raw_path"]) + len(scope["query_string"]) > limits.target_bytes_max:
            await self._send_fault(scope, send, Fault(414, "http:targetTooLong"))
            return
        if len(scope["headers"]) > limits.header_count_max:
            await self._send_fault(scope, send, Fault(431, "http:tooManyHeaders"))
            return
        body = await self._read_body(scope, receive, send)
        if body is None:
            return
        given = False

        async def receive_whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._run(scope, receive_whole, send)

    async def _read_body(self, scope: Scope, receive: Receive, send: Send) -> bytes | None:
        limits = self._shared.options.limits
        pieces: list[bytes] = []
        size = 0
        with trio.move_on_after(limits.body_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limits.body_bytes_max:
                    await self._send_fault(scope, send, Fault(413, "http:bodyTooLarge"))
                    return None
                if not message.get("more_body", False):
                    return b"".join(pieces)
        await self._send_fault(scope, send, Fault(408, "http:bodyTimeout"))
        return None

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        failed = False
        try:
            await self._shared.app(scope, receive, watched_send)
        except* Exception:
            failed = True
            log.exception("http_application_failed", path=scope["path"])
        if failed and not started and scope["type"] == "http":
            await self._send_fault(scope, send, Fault(500, "http:internal"))

    async def _send_fault(self, scope: Scope, send: Send, fault: Fault) -> None:
        request_id = dict(scope["headers"]).get(b"x-request-id")
        rendered = self._shared.render(Fault(fault.status, fault.label, request_id))
        headers = [*rendered.headers, (b"content-length", b"%d" % len(rendered.body))]
        await send({"type": "http.response.start", "status": fault.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else rendered.body
        await send({"type": "http.response.body", "body": body, "more_body": False})


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
