"""A customer's webhook receiver: an HTTP server that records what it gets and answers as a test says."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import h11
import trio
from msgspec import field

from sightline.domain.value import Value


class Received(Value):
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> str:
        return self.content.decode()

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]


class Answer(Value):
    """What the receiver does: answer with a status, or close the connection without an answer."""

    status: int | None = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


DROP = Answer(status=None)
Decide: TypeAlias = Callable[[Received], Answer]


class Receiver:
    """Where the receiver listens, and what it got. `decide` may be replaced while it runs."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.received: list[Received] = []
        self.connections = 0
        self.port = 0
        self._changed = trio.Event()

    def url(self, path: str = "/hook", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def wait_until(self, is_done: Callable[["Receiver"], bool], within_s: float = 20) -> None:
        """Wait for requests until the condition holds."""
        with trio.fail_after(within_s):
            while not is_done(self):
                self._changed = trio.Event()
                await self._changed.wait()

    async def serve(self, stream: Any) -> None:
        """One connection."""
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        try:
            while await self._exchange(stream, connection):
                connection.start_next_cycle()
        except (trio.BrokenResourceError, h11.RemoteProtocolError, ssl.SSLError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _exchange(self, stream: Any, connection: h11.Connection) -> bool:
        """Serve one request; returns whether another may follow."""
        received = await _read(stream, connection)
        if received is None:
            return False
        answer = self.decide(received)
        self.received.append(received)
        self._changed.set()
        if answer.status is None:
            return False
        headers = {"content-length": str(len(answer.body)), **answer.headers}
        for event in (
            h11.Response(status_code=answer.status, headers=list(headers.items())),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        ):
            await stream.send_all(connection.send(event) or b"")
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def _read(stream: Any, connection: h11.Connection) -> Received | None:
    request, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(65_536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode(): value.decode() for name, value in request.headers}
            return Received(request.target.decode(), headers, body)
        else:
            return None


@asynccontextmanager
async def open_receiver(
    decide: Decide = lambda _: Answer(), *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver(decide)
    async with trio.open_nursery() as nursery:
        if tls is None:
            serve = partial(trio.serve_tcp, receiver.serve, 0, host="127.0.0.1")
        else:
            serve = partial(trio.serve_ssl_over_tcp, receiver.serve, 0, tls, host="127.0.0.1", https_compatible=True)
        listeners = await nursery.start(serve)
        socket = getattr(listeners[0], "transport_listener", listeners[0]).socket
        receiver.port = socket.getsockname()[1]
        yield receiver
        nursery.cancel_scope.cancel()
