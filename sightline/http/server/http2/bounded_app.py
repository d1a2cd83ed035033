"""What runs between Hypercorn and the application: the limits of HTTP/1.1, and faults in the error envelope."""

import structlog
import trio

from sightline.http.server.asgi import Message, Receive, Scope, Send
from sightline.http.server.options import Fault
from sightline.http.server.scope import Peer
from sightline.http.server.shared import Shared

log = structlog.get_logger()


class BoundedApp:
    """Wraps the application for one connection of Hypercorn.

    Applies the limits of HTTP/1.1, takes the client's address from a trusted proxy as HTTP/1.1 does, and sends faults
    in the error envelope.
    """

    def __init__(self, shared: Shared, peer: Peer) -> None:
        self._shared = shared
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if "client" in scope:
            is_socket = scope["type"] == "websocket"
            scheme, scope["client"] = self._peer.caller(scope["headers"], "https" if self._peer.secure else "http")
            scope["scheme"] = scheme.replace("http", "ws") if is_socket else scheme
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
