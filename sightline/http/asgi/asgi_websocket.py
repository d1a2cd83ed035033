"""WebSockets: the same checks as for every call, then messages between the client and the handler."""

from functools import partial
from typing import final

import structlog

from sightline.domain.refusal import Code
from sightline.http.pipeline.call import SocketClosedError
from sightline.http.pipeline.errors import ApiError, to_api_error
from sightline.http.pipeline.pipeline import Outgoing, Pipeline
from sightline.http.pipeline.router import SOCKET
from sightline.http.pipeline.routes import SocketRoute
from sightline.http.server import ClientGoneError, Receive, Scope, Send

log = structlog.get_logger()

_POLICY = 1008
_TRY_AGAIN = 1013
_INTERNAL = 1011


@final
class AsgiSocket:
    """See Socket in call.py."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._closed: int | None = None

    async def receive(self) -> str | bytes:
        """See Socket."""
        if self._closed is not None:
            raise SocketClosedError(self._closed)
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._closed = int(message.get("code") or 1005)
            raise SocketClosedError(self._closed)
        text: str | None = message.get("text")
        if text is not None:
            return text
        data: bytes = message["bytes"]
        return data

    async def send(self, text: str) -> None:
        """See Socket."""
        try:
            await self._send({"type": "websocket.send", "text": text})
        except ClientGoneError as error:
            raise SocketClosedError(1006) from error

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """See Socket."""
        if self._closed is None:
            self._closed = code
            await self._send({"type": "websocket.close", "code": code, "reason": reason})


async def serve_socket(pipeline: Pipeline, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one WebSocket: refuse it as an HTTP answer in the envelope, or accept it and run its handler."""
    await receive()
    request = pipeline.request_of(scope, b"")
    try:
        match = pipeline.router.match(SOCKET, request.raw_path)
        call = await pipeline.admit(request, match)
    except Exception as error:  # noqa: BLE001 (mapped, and logged if nobody foresaw it)
        outgoing = pipeline.failed(request, error)
        pipeline.finished(request, outgoing)
        await _refuse(send, outgoing)
        return
    assert isinstance(match.route, SocketRoute)
    await send({"type": "websocket.accept", "headers": [(b"x-request-id", request.request_id.encode("ascii"))]})
    socket = AsgiSocket(receive, send)
    code: Code | None = None
    try:
        await pipeline.while_authorized(request, partial(match.route.handler, call, socket))
    except SocketClosedError:
        pass
    except Exception as error:
        mapped = to_api_error(error, is_read=False)
        if mapped is None:
            log.exception("http_socket_failed", request_id=request.request_id, route=match.route.path)
            mapped = ApiError(Code.INTERNAL_ERROR)
        code = mapped.code
        await _close_quietly(socket, mapped)
    else:
        await socket.close()
    finally:
        pipeline.finished(request, Outgoing(101, [], b"", code))


async def _close_quietly(socket: AsgiSocket, error: ApiError) -> None:
    status = _INTERNAL if error.status == 500 else _TRY_AGAIN if error.status in (429, 503, 504) else _POLICY
    reason = error.code if error.detail is None else f"{error.code} {error.detail}"
    try:
        await socket.close(status, reason[:120])
    except ClientGoneError:
        return


async def _refuse(send: Send, outgoing: Outgoing) -> None:
    await send({"type": "websocket.http.response.start", "status": outgoing.status, "headers": outgoing.headers})
    await send({"type": "websocket.http.response.body", "body": outgoing.body})
