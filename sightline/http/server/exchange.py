"""One request and its answer, as the application sees them: the HTTP half of ASGI 3.0."""

from collections.abc import Awaitable, Callable

import trio

from sightline.http.server.asgi import DISCONNECT, ClientGoneError, Message, Scope
from sightline.http.server.options import Fault
from sightline.http.server.parser import Request
from sightline.http.server.response import LAST_CHUNK, ResponseHead, chunk
from sightline.http.server.scope import Peer, make_scope
from sightline.http.server.shared import Shared
from sightline.http.server.transport import Transport


class Exchange:
    """One request and its answer, as the application sees them."""

    __slots__ = (
        "_given",
        "_head",
        "_patience",
        "_peer",
        "_request",
        "_sent",
        "_shared",
        "_transport",
        "_watch",
        "_watching",
        "broken",
        "complete",
        "keep_alive",
        "started",
    )

    def __init__(
        self,
        shared: Shared,
        transport: Transport,
        peer: Peer,
        request: Request,
        watch: Callable[[], Awaitable[None]],
    ) -> None:
        """`watch` returns when the client has closed the connection."""
        self._shared = shared
        self._transport = transport
        self._peer = peer
        self._request = request
        self._watch = watch
        self._watching: trio.CancelScope | None = None
        self._patience: trio.Event | None = None
        self._given = False
        self._head: ResponseHead | None = None
        self._sent = 0
        self.started = False
        self.complete = False
        self.broken = False
        self.keep_alive = request.keep_alive

    @property
    def endless(self) -> bool:
        """Whether the response is a stream without a declared length. A drain does not wait for it."""
        return self.started and not self.complete and self._head is not None and self._head.length is None

    def scope(self) -> Scope:
        """The ASGI connection scope."""
        return make_scope("http", self._request, self._peer)

    async def receive(self) -> Message:
        """Return the whole body at the first call, and the disconnect at the next."""
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        if self.complete or self.broken:
            return DISCONNECT
        if self._watching is not None:
            msg = "receive was called twice at the same time"
            raise RuntimeError(msg)
        with trio.CancelScope() as self._watching:
            # Most responses are sent within milliseconds: only a slow one is worth a task that watches the socket.
            self._patience = trio.Event()
            await self._patience.wait()
            await self._watch()
            self.broken = True
        self._watching = None
        return DISCONNECT

    def sweep(self) -> None:
        """Start to watch for a disconnect: this exchange already takes long."""
        if self._patience is not None:
            self._patience.set()

    async def send(self, message: Message) -> None:
        """Write one ASGI message of the application.

        Raises:
            ClientGoneError: If the client closed the connection.
            RuntimeError: If the order of the messages is invalid, or the body differs from the declared length.
        """
        kind = message["type"]
        if kind == "http.response.start":
            if self._head is not None:
                msg = "an answer was started twice"
                raise RuntimeError(msg)
            self._head = ResponseHead(message["status"], message.get("headers", []), method=self._request.method)
        elif kind == "http.response.body":
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            msg = f"a message of type {kind} has no place in an http exchange"
            raise RuntimeError(msg)

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        head = self._head
        if head is None or self.complete:
            msg = "a body was sent without a head, or after its end"
            raise RuntimeError(msg)
        if self.broken:
            raise ClientGoneError("the peer has gone")
        prefix = b"" if self.started else self._start(head, len(body), more=more)
        data = b""
        if not head.bodiless:
            self._sent += len(body)
            if head.length is not None and (self._sent > head.length or (not more and self._sent < head.length)):
                self.broken = self.started
                msg = "a body does not have its declared length"
                raise RuntimeError(msg)
            data = _encode_chunk(body, more=more) if head.chunked else body
        self.started = True
        if prefix or data:
            try:
                await self._transport.send(prefix + data if prefix else data)
            except ClientGoneError:
                self.broken = True
                raise
        if not more:
            self._finish()

    def _start(self, head: ResponseHead, size: int, *, more: bool) -> bytes:
        if head.length is None and not more:
            head.declare(size)
        elif head.length is None and not head.bodiless:
            if self._request.version == "1.1":
                head.chunked = True
            else:
                self.keep_alive = False
        if head.close or self._shared.draining:
            self.keep_alive = False
        return head.encode(date=self._shared.date, version=self._request.version, keep_alive=self.keep_alive)

    async def fail(self) -> None:
        """Send an error if no response was started; otherwise close the connection in mid-response."""
        if self.started or self.broken:
            self.broken = True
            return
        self.started = True
        self._finish()
        fault = Fault(500, "http:internal", self._request.request_id)
        if self._shared.draining:
            self.keep_alive = False
        data = self._shared.encode_fault(
            fault, method=self._request.method, keep_alive=self.keep_alive and self._request.version == "1.1"
        )
        try:
            await self._transport.send(data)
        except ClientGoneError:
            self.broken = True

    def _finish(self) -> None:
        self.complete = True
        if self._watching is not None:
            self._watching.cancel()


def _encode_chunk(body: bytes, *, more: bool) -> bytes:
    return (chunk(body) if body else b"") + (b"" if more else LAST_CHUNK)
