"""One WebSocket connection (RFC 6455) between the application and the peer.

Bytes are read only when the application calls receive, so a slow application slows its client down and no queue grows.
wsproto encodes and decodes the frames. Compression is not offered: it would let a small packet become a large message.
"""

import base64
import binascii
from collections import deque
from enum import Enum, auto
from hashlib import sha1

import structlog
import trio
from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from sightline.http.server.asgi import ClientGoneError, Headers, Message
from sightline.http.server.messages import MessageReader
from sightline.http.server.options import Fault
from sightline.http.server.parser import Request
from sightline.http.server.response import ResponseHead
from sightline.http.server.scope import Peer, make_scope
from sightline.http.server.shared import Shared
from sightline.http.server.transport import Transport

log = structlog.get_logger()

_NEVER = float("inf")
# RFC 6455, 1.3.
_ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# Ping intervals without any bytes from the client after which the connection is closed.
_SILENT_PINGS = 3


class _Phase(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    REFUSING = auto()
    CLOSED = auto()


class WebSocketSession:
    """Serves one connection after the HTTP layer has parsed the request that asks for the upgrade."""

    __slots__ = (
        "_accepted",
        "_close_code",
        "_connect_given",
        "_deadline",
        "_heard_at",
        "_inbox",
        "_leftover",
        "_messages",
        "_peer",
        "_phase",
        "_pinged_at",
        "_protocol",
        "_reading",
        "_refusal",
        "_refusal_body",
        "_request",
        "_scope",
        "_send_lock",
        "_shared",
        "_transport",
    )

    def __init__(self, shared: Shared, transport: Transport, peer: Peer, request: Request, leftover: bytes) -> None:
        self._shared = shared
        self._transport = transport
        self._peer = peer
        self._request = request
        self._leftover = leftover
        self._protocol = FrameProtocol(client=False, extensions=[])
        self._messages = MessageReader(self._protocol, shared.options.limits.websocket_message_bytes_max)
        self._phase = _Phase.HANDSHAKE
        self._accepted = trio.Event()
        self._connect_given = False
        self._inbox: deque[Message] = deque()
        self._close_code: int = CloseReason.ABNORMAL_CLOSURE
        self._deadline = _NEVER
        self._heard_at = self._pinged_at = trio.current_time()
        self._reading = False
        self._refusal: ResponseHead | None = None
        self._refusal_body: list[bytes] = []
        self._send_lock = trio.Lock()
        self._scope: trio.CancelScope | None = None

    def sweep(self, now: float) -> None:
        """Ping a client that has been quiet for `websocket_ping_s`; close after three unanswered pings."""
        if now >= self._deadline:
            self._deadline = _NEVER
            self._cancel()
        elif self._phase is _Phase.OPEN and self._reading:
            every = self._shared.options.limits.websocket_ping_s
            if now - self._heard_at > every * _SILENT_PINGS:
                log.info("websocket_silent")
                self._cancel()
            elif now - max(self._heard_at, self._pinged_at) > every:
                self._pinged_at = now
                self._shared.spawn(self._ping)

    def drain(self) -> None:
        """Stop the application; `leave` then sends close code 1001."""
        self._close_code = CloseReason.GOING_AWAY
        self._cancel()

    async def _ping(self) -> None:
        try:
            await self._send_frame(self._protocol.ping())
        except ClientGoneError:
            self._cancel()

    async def leave(self) -> None:
        """Send a refusal or a close frame after the application was cancelled."""
        with trio.move_on_after(self._shared.options.limits.linger_s):
            if self._phase is _Phase.HANDSHAKE:
                await self._send_fault(Fault(503, "websocket:stopping"))
            elif self._phase is _Phase.OPEN:
                await self._close(
                    self._close_code if self._close_code == CloseReason.GOING_AWAY else CloseReason.INTERNAL_ERROR, ""
                )

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, scope: trio.CancelScope) -> None:
        """Serve until the connection ends; `scope` is cancelled when a deadline passes."""
        fault = self._check_handshake()
        if fault is not None:
            await self._say_no(self._shared.encode_fault(fault))
            return
        self._scope = scope
        self._deadline = trio.current_time() + self._shared.options.limits.handshake_s
        asgi_scope = make_scope("websocket", self._request, self._peer)
        asgi_scope["subprotocols"] = self._subprotocols()
        asgi_scope["extensions"] = {"websocket.http.response": {}}
        del asgi_scope["method"]
        code = CloseReason.NORMAL_CLOSURE
        try:
            await self._shared.app(asgi_scope, self.receive, self.send)
        except* ClientGoneError:
            self._phase = _Phase.CLOSED
        except* Exception:
            log.exception("websocket_application_failed", path=self._request.path)
            code = CloseReason.INTERNAL_ERROR
        await self._end(code)

    async def _end(self, code: int) -> None:
        if self._phase is _Phase.HANDSHAKE:
            status = 500 if code == CloseReason.INTERNAL_ERROR else 403
            await self._send_fault(Fault(status, "http:internal" if status == 500 else "websocket:refused"))
        elif self._phase is _Phase.OPEN:
            await self._close(code, "")
        if self._phase is not _Phase.CLOSED:
            return
        # RFC 6455, 7.1.1: wait a little for the peer's own close.
        with trio.move_on_after(self._shared.options.limits.linger_s):
            await self._transport.finish()
            while await self._transport.receive():
                continue

    def _check_handshake(self) -> Fault | None:
        headers = dict(self._request.headers)
        rid = self._request.request_id
        if headers.get(b"sec-websocket-version") != b"13":
            return Fault(426, "websocket:version", rid)
        key = headers.get(b"sec-websocket-key", b"")
        try:
            valid = len(base64.b64decode(key, validate=True)) == 16
        except (binascii.Error, ValueError):
            valid = False
        return None if valid else Fault(400, "websocket:key", rid)

    def _subprotocols(self) -> list[str]:
        offered = [v for n, v in self._request.headers if n == b"sec-websocket-protocol"]
        return [p.strip().decode("latin-1") for value in offered for p in value.split(b",") if p.strip()]

    # Called by the application.

    async def receive(self) -> Message:
        """`websocket.connect`, then messages, then `websocket.disconnect` at each further call."""
        if not self._connect_given:
            self._connect_given = True
            return {"type": "websocket.connect"}
        await self._accepted.wait()
        while not self._inbox:
            if self._phase is not _Phase.OPEN:
                return {"type": "websocket.disconnect", "code": self._close_code, "reason": ""}
            await self._read()
        return self._inbox.popleft()

    async def _read(self) -> None:
        data, self._leftover = self._leftover, b""
        if not data:
            self._reading = True
            try:
                data = await self._transport.receive()
            finally:
                self._reading = False
        self._heard_at = trio.current_time()
        if not data:
            self._phase = _Phase.CLOSED
            return
        self._messages.feed(data)
        try:
            for frame in self._messages.frames():
                await self._on_frame(frame)
        except ParseFailed as error:
            await self._close(error.code, "")
        except ClientGoneError:
            # The connection broke while a pong or a close was written: report it like an end of file.
            self._phase = _Phase.CLOSED

    async def _on_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._inbox.append({"type": "websocket.receive", "text": frame.payload})
        elif frame.opcode is Opcode.BINARY:
            self._inbox.append({"type": "websocket.receive", "bytes": frame.payload})
        elif frame.opcode is Opcode.PING:
            assert isinstance(frame.payload, bytes)
            await self._send_frame(self._protocol.pong(frame.payload))
        elif frame.opcode is Opcode.CLOSE:
            assert isinstance(frame.payload, tuple)
            self._close_code = frame.payload[0]
            self._phase = _Phase.CLOSED
            await self._send_frame(self._protocol.close(self._close_code))

    async def send(self, message: Message) -> None:
        """Perform one ASGI message of the application.

        Raises:
            ClientGoneError: If the connection has ended.
            RuntimeError: If the message is not allowed in the current phase.
        """
        kind = message["type"]
        if kind == "websocket.accept" and self._phase is _Phase.HANDSHAKE:
            await self._accept(message)
        elif kind == "websocket.send":
            await self._send_message(message)
        elif kind == "websocket.close":
            if self._phase is _Phase.HANDSHAKE:
                await self._send_fault(Fault(403, "websocket:refused"))
            elif self._phase is _Phase.OPEN:
                await self._close(message.get("code") or CloseReason.NORMAL_CLOSURE, message.get("reason") or "")
        elif kind == "websocket.http.response.start" and self._phase is _Phase.HANDSHAKE:
            self._phase = _Phase.REFUSING
            self._refusal = ResponseHead(message["status"], message.get("headers", []), method="GET")
        elif kind == "websocket.http.response.body" and self._refusal is not None:
            await self._refuse(self._refusal, message)
        else:
            msg = f"{kind} is not allowed in phase {self._phase.name}"
            raise RuntimeError(msg)

    async def _accept(self, message: Message) -> None:
        key = dict(self._request.headers)[b"sec-websocket-key"]
        token = base64.b64encode(sha1(key + _ACCEPT_GUID, usedforsecurity=False).digest())
        headers: Headers = [(b"sec-websocket-accept", token)]
        if message.get("subprotocol"):
            headers.append((b"sec-websocket-protocol", message["subprotocol"].encode("ascii")))
        headers += [(bytes(name), bytes(value)) for name, value in message.get("headers") or []]
        head = ResponseHead(101, headers, method="GET")
        head.headers[:0] = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade")]
        data = head.encode(date=self._shared.date, version="1.1", keep_alive=True)
        self._phase = _Phase.OPEN
        self._deadline = _NEVER
        await self._transport.send(data)
        self._heard_at = trio.current_time()
        self._accepted.set()

    async def _refuse(self, head: ResponseHead, message: Message) -> None:
        self._refusal_body.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body = b"".join(self._refusal_body)
        head.length = None
        head.headers = [pair for pair in head.headers if pair[0] != b"content-length"]
        head.declare(len(body))
        data = head.encode(date=self._shared.date, version="1.1", keep_alive=False)
        await self._say_no(data if head.bodiless else data + body)

    async def _send_fault(self, fault: Fault) -> None:
        fault = Fault(fault.status, fault.label, self._request.request_id)
        await self._say_no(self._shared.encode_fault(fault))

    async def _say_no(self, data: bytes) -> None:
        self._phase = _Phase.CLOSED
        self._refusal = None
        try:
            await self._transport.send(data)
        finally:
            self._accepted.set()

    async def _send_message(self, message: Message) -> None:
        if self._phase is _Phase.CLOSED:
            raise ClientGoneError("the websocket has ended")
        if self._phase is not _Phase.OPEN:
            msg = "a message was sent before the websocket was accepted"
            raise RuntimeError(msg)
        text = message.get("text")
        await self._send_frame(self._protocol.send_data(message["bytes"] if text is None else text))

    async def _send_frame(self, frame: bytearray) -> None:
        """Write one whole frame; the lock keeps frames of several tasks from interleaving."""
        lock = self._send_lock
        try:
            lock.acquire_nowait()
        except trio.WouldBlock:
            await lock.acquire()
        try:
            await self._transport.send(bytes(frame))
        finally:
            lock.release()

    async def _close(self, code: int, reason: str) -> None:
        self._phase = _Phase.CLOSED
        self._close_code = code
        try:
            await self._send_frame(self._protocol.close(code, reason))
        except ClientGoneError:
            return
