"""A small real HTTP/1.1 server, so that the video tests import no other package of Sightline."""

from collections.abc import Awaitable, Callable
from functools import partial

import h11
import trio

Reply = tuple[int, list[tuple[str, str]], bytes]
Handler = Callable[[str, str, dict[str, str], bytes], Awaitable[Reply]]
"""(method, target, headers with lower-case names, body) -> (status, headers, body)."""


async def _serve_one(handler: Handler, stream: trio.SocketStream) -> None:
    connection = h11.Connection(h11.SERVER)
    request: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(65536))
        elif isinstance(event, h11.Request):
            request, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode().lower(): value.decode() for name, value in request.headers}
            status, fields, payload = await handler(request.method.decode(), request.target.decode(), headers, body)
            answer = [*fields, ("Content-Length", str(len(payload)))]
            await stream.send_all(connection.send(h11.Response(status_code=status, headers=answer)) or b"")
            if request.method != b"HEAD":
                await stream.send_all(connection.send(h11.Data(data=payload)) or b"")
            await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
            if connection.our_state is h11.MUST_CLOSE:
                return
            connection.start_next_cycle()
        else:
            return


async def _serve(handler: Handler, stream: trio.SocketStream) -> None:
    async with stream:
        try:
            await _serve_one(handler, stream)
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            return


async def listen(host: str = "127.0.0.1", port: int = 0) -> tuple[list[trio.SocketListener], str]:
    """Bind a port, by default a free one on loopback; returns the listener and its URL."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    authority = f"[{host}]" if ":" in host else host
    return listeners, f"http://{authority}:{listeners[0].socket.getsockname()[1]}"


def serve(nursery: trio.Nursery, listeners: list[trio.SocketListener], handler: Handler) -> None:
    """Answer requests until the nursery is cancelled."""
    nursery.start_soon(partial(trio.serve_listeners, partial(_serve, handler), listeners))
