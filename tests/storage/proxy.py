"""A TCP proxy in front of Postgres: cuts connections at a chosen event of the protocol, delays answers, or refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from urllib.parse import parse_qs, urlsplit

import trio


class Fault(Enum):
    """What happens to the request that carries the marker."""

    NOT_SENT = "cut before the server sees it"
    NOT_ANSWERED = "cut after the server has answered, before we see the answer"
    AFTER_ANSWER = "cut just after we have the answer"
    STALLED = "the server sees it, and its answer never comes"


@dataclass
class Wire:
    """A proxy on loopback; `plan` faults for requests that contain a marker, each used once.

    `delay_s` holds up every answer; `cut` drops all connections of this moment. While Postgres cannot be reached, new
    connections are closed at once.
    """

    upstream: str
    dsn: str = ""
    faults: list[tuple[bytes, Fault]] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    delay_s: float = 0.0
    _connections: set[trio.CancelScope] = field(default_factory=set)

    def cut(self) -> None:
        """Drop every connection."""
        for scope in self._connections:
            scope.cancel()

    def plan(self, marker: str, fault: Fault) -> None:
        self.faults.append((marker.encode(), fault))

    def _take(self, request: bytes) -> Fault | None:
        for number, (marker, fault) in enumerate(self.faults):
            if marker in request:
                del self.faults[number]
                self.struck.append(fault)
                return fault
        return None

    async def serve(self, client: trio.SocketStream) -> None:
        async with client:
            try:
                server = await trio.open_unix_socket(self.upstream)
            except OSError:
                return
            with trio.CancelScope() as scope:
                self._connections.add(scope)
                try:
                    await self._relay(client, server)
                finally:
                    self._connections.discard(scope)

    async def _relay(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        pending: list[Fault] = []
        async with server, trio.open_nursery() as nursery:

            async def requests() -> None:
                async for request in client:
                    fault = self._take(request)
                    if fault is Fault.NOT_SENT:
                        break
                    if fault is not None:
                        pending.append(fault)
                    await server.send_all(request)
                nursery.cancel_scope.cancel()

            async def answers() -> None:
                async for answer in server:
                    fault = pending.pop() if pending else None
                    if fault is Fault.STALLED:
                        await trio.sleep_forever()
                    if fault is Fault.NOT_ANSWERED:
                        break
                    if self.delay_s:
                        await trio.sleep(self.delay_s)
                    await client.send_all(answer)
                    if fault is Fault.AFTER_ANSWER:
                        break
                nursery.cancel_scope.cancel()

            nursery.start_soon(_until_broken, requests, nursery)
            nursery.start_soon(_until_broken, answers, nursery)


async def _until_broken(relay: object, nursery: trio.Nursery) -> None:
    try:
        await relay()  # type: ignore[operator]
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_wire(dsn: str) -> AsyncIterator[Wire]:
    """Put a wire in front of the database that `dsn` names."""
    parts = urlsplit(dsn)
    directory = parse_qs(parts.query)["host"][0]
    wire = Wire(f"{directory}/.s.PGSQL.5432")
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, wire.serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        wire.dsn = f"postgresql://postgres@127.0.0.1:{port}{parts.path}?sslmode=disable"
        yield wire
        nursery.cancel_scope.cancel()
