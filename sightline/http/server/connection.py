"""One HTTP/1.1 connection: reads requests and runs the application on each, in order.

The application runs in the connection's task, so a request starts no new task. While it runs, the socket is read only
if the application waits for the disconnect with `receive`. Deadlines are numbers that the server's sweeper compares,
which costs less than a cancel scope per read. A passed deadline cancels the connection's cancel scope; `_expired` then
decides the response.
"""

import structlog
import trio

from sightline.http.server.asgi import ClientGoneError
from sightline.http.server.exchange import Exchange
from sightline.http.server.options import Fault
from sightline.http.server.parser import READ_BYTES, Request, RequestParser
from sightline.http.server.response import CONTINUE
from sightline.http.server.scope import Peer
from sightline.http.server.shared import Shared
from sightline.http.server.transport import Transport
from sightline.http.server.websocket import WebSocketSession

log = structlog.get_logger()

_NEVER = float("inf")
_BACKLOG_BYTES_MAX = 2 * READ_BYTES
_LINGER_BYTES_MAX = 256 * 1024
LAST_REQUEST_S = 0.1
"""How long after its start, and after an answer without `Connection: close`, a connection waits for the client's next
request when the server stops: it may be on its way, and closing would reset it."""


class Connection:
    """See the module."""

    __slots__ = (
        "_active_at",
        "_backlog",
        "_deadline",
        "_exchange",
        "_expired",
        "_parser",
        "_scope",
        "_session",
        "_writing_fault",
        "peer",
        "shared",
        "transport",
    )

    def __init__(self, shared: Shared, transport: Transport, peer: Peer, already_read: bytes = b"") -> None:
        self.shared = shared
        self.transport = transport
        self.peer = peer
        self._parser = RequestParser(shared.options.limits)
        self._scope = trio.CancelScope()
        self._deadline = _NEVER
        self._expired: Fault | None = None
        self._exchange: Exchange | None = None
        self._session: WebSocketSession | None = None
        self._backlog = [already_read] if already_read else []
        self._writing_fault = False
        self._active_at = trio.current_time()

    async def run(self) -> None:
        """Serve requests until the connection ends. Raises nothing but cancellation."""
        self.shared.open.add(self)
        try:
            with self._scope:
                try:
                    await self._serve()
                except* ClientGoneError:
                    pass
                except* Exception:
                    log.exception("http_connection_failed")
            if self._session is not None:
                await self._session.leave()
            elif self._expired is not None and (self._exchange is None or not self._exchange.started):
                await self._refuse(self._expired)
        finally:
            self.shared.open.discard(self)
            self._parser.close()
            with trio.CancelScope(shield=True):
                await self.transport.close()

    def sweep(self, now: float) -> None:
        """See Swept."""
        if self._exchange is not None:
            self._exchange.sweep()
        elif self._session is not None:
            self._session.sweep(now)
        if now >= self._deadline:
            self._deadline = _NEVER
            if self._parser.begun and self._exchange is None:
                label = "http:bodyTimeout" if self._parser.in_body else "http:headTimeout"
                self._expired = Fault(408, label, self._parser.request_id)
            self._scope.cancel()
        elif now >= self.transport.write_deadline:
            log.info("http_write_timeout")
            self._scope.cancel()

    def drain(self) -> None:
        """See Swept."""
        if self._session is not None:
            self._session.drain()
        elif self._exchange is None:
            if self._is_between_requests() and not self._writing_fault:
                self._scope.cancel()
        elif self._exchange.endless:
            self._scope.cancel()

    async def _serve(self) -> None:
        parser = self._parser
        limits = self.shared.options.limits
        self._deadline = trio.current_time() + limits.idle_s
        while True:
            while parser.ready:
                request = parser.ready.popleft()
                if request.websocket:
                    await self._upgrade(request)
                    return
                if not await self._answer(request):
                    return
                if parser.ready:
                    await trio.lowlevel.checkpoint()
            if parser.fault is not None:
                await self._refuse(parser.fault)
                return
            if parser.finished or (self.shared.draining and self._is_between_requests()):
                return
            if not await self._read():
                return

    def _is_between_requests(self) -> bool:
        """Whether no request has begun, and the client has had time to send the next one."""
        has_begun = self._parser.begun or self._backlog
        return not has_begun and trio.current_time() >= self._active_at + LAST_REQUEST_S

    async def _read(self) -> bool:
        parser = self._parser
        limits = self.shared.options.limits
        before = (parser.begun, parser.in_body)
        data = self._backlog.pop(0) if self._backlog else await self.transport.receive()
        if not data:
            return False
        parser.feed(data)
        after = (parser.begun, parser.in_body)
        if after != before:
            if not parser.begun:
                self._deadline = _NEVER
            else:
                self._deadline = trio.current_time() + (limits.body_s if parser.in_body else limits.head_s)
        if parser.continue_due and parser.fault is None:
            parser.continue_due = False
            await self.transport.send(CONTINUE)
        return True

    async def _answer(self, request: Request) -> bool:
        """Run the application on one request, and return whether the connection can be reused."""
        self._deadline = _NEVER
        exchange = self._exchange = Exchange(self.shared, self.transport, self.peer, request, self.watch)
        try:
            await self.shared.app(exchange.scope(), exchange.receive, exchange.send)
        except* ClientGoneError:
            exchange.broken = True
        except* Exception:
            log.exception("http_application_failed", method=request.method, path=request.path)
            await exchange.fail()
        if not exchange.complete and not exchange.broken:
            log.error("http_application_stopped_early", method=request.method, path=request.path)
            await exchange.fail()
        self._exchange = None
        if exchange.broken or not exchange.keep_alive:
            await self._close_gently(exchange.broken)
            return False
        limits = self.shared.options.limits
        self._active_at = now = trio.current_time()
        self._deadline = now + (limits.head_s if self._parser.begun else limits.idle_s)
        return True

    async def _close_gently(self, broken: bool) -> None:
        if not broken and (self._parser.begun or self._backlog):
            await self._linger()

    async def _refuse(self, fault: Fault) -> None:
        """Answer a fault and close so that the peer can read the answer (RFC 9112, 9.6)."""
        log.info("http_fault", status=fault.status, label=fault.label)
        self._writing_fault = True
        self._deadline = _NEVER
        limits = self.shared.options.limits
        with trio.move_on_after(limits.linger_s):
            try:
                await self.transport.send(self.shared.encode_fault(fault))
                await self._linger()
            except ClientGoneError:
                return

    async def _linger(self) -> None:
        """Read what the client still sends: closing over unread bytes sends a reset, which can discard the response."""
        with trio.move_on_after(self.shared.options.limits.linger_s):
            await self.transport.finish()
            total = 0
            while total < _LINGER_BYTES_MAX:
                data = await self.transport.receive()
                if not data:
                    return
                total += len(data)

    async def watch(self) -> None:
        """Return when the client has closed the connection. Bytes read meanwhile are kept, up to a limit."""
        kept = 0
        while kept < _BACKLOG_BYTES_MAX:
            data = await self.transport.receive()
            if not data:
                return
            self._backlog.append(data)
            kept += len(data)
        await trio.sleep_forever()

    async def _upgrade(self, request: Request) -> None:
        self._deadline = _NEVER
        self._session = WebSocketSession(self.shared, self.transport, self.peer, request, self._parser.leftover)
        await self._session.run(self._scope)
