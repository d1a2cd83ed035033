"""A TCP proxy in front of Postgres: cuts connections at a chosen message, delays answers, or makes the server raise."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from urllib.parse import parse_qs, urlsplit

import trio

from sightline.storage.embedded.postgres_child import SOCKET_NAME


class Fault(Enum):
    """What happens to the request that carries the marker."""

    NOT_SENT = "cut before the server sees it"
    NOT_ANSWERED = "cut after the server has answered, before we see the answer"
    AFTER_ANSWER = "cut just after we have the answer"
    STALLED = "the server sees it, and its answer never comes"


class At(Enum):
    """Which requests the server answers with an error."""

    STATEMENT = "every statement but those that begin, commit or roll back a transaction"
    COMMIT = "every COMMIT"


@dataclass
class Wire:
    """A proxy on loopback.

    `plan` cuts the connection at a request that contains a marker, once. `refuse` has the server raise an SQLSTATE in
    place of each request of a kind, until `accept`: the error is a real one, raised by Postgres in the state that the
    connection is in. `delay_s` holds up every answer; `cut` drops all connections of this moment. Between `block` and
    `unblock` nothing passes in either direction and no connection is closed, as with a firewall that drops packets.
    While Postgres cannot be reached, new connections are closed at once.
    """

    upstream: str
    dsn: str = ""
    faults: list[tuple[bytes, Fault]] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    delay_s: float = 0.0
    refused: int = 0
    rewritten: list[tuple[bytes, bytes]] = field(default_factory=list)
    """What is replaced in requests and answers, for each pair of equal length."""
    _refusal: tuple[str, At] | None = None
    _connections: set[trio.CancelScope] = field(default_factory=set)
    _passes: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self._passes.set()

    def block(self) -> None:
        """Let nothing pass until `unblock`."""
        self._passes = trio.Event()

    def unblock(self) -> None:
        self._passes.set()

    def rewrite(self, text: str, other: str) -> None:
        """Replace a text in every request and answer by another one of the same length."""
        assert len(text) == len(other)
        self.rewritten.append((text.encode(), other.encode()))

    def _translate(self, message: bytes) -> bytes:
        for text, other in self.rewritten:
            message = message.replace(text, other)
        return message

    def cut(self) -> None:
        """Drop every connection."""
        for scope in self._connections:
            scope.cancel()

    def plan(self, marker: str, fault: Fault) -> None:
        self.faults.append((marker.encode(), fault))

    def refuse(self, sqlstate: str, at: At) -> None:
        self._refusal = (sqlstate, at)

    def accept(self) -> None:
        self._refusal = None

    def _rewrite(self, request: bytes) -> bytes:
        """The request, or one in its place that raises."""
        kind = _kind_of(request)
        if self._refusal is None or kind is not self._refusal[1]:
            return request
        self.refused += 1
        text = f"DO $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{self._refusal[0]}'; END $$".encode() + b"\0"
        return b"Q" + (4 + len(text)).to_bytes(4, "big") + text

    def _take(self, request: bytes) -> Fault | None:
        for number, (marker, fault) in enumerate(self.faults):
            if marker in request:
                del self.faults[number]
                self.struck.append(fault)
                return fault
        return None

    async def serve(self, client: trio.SocketStream) -> None:
        async with client:
            await self._passes.wait()
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
                splitter = _Splitter()
                async for chunk in client:
                    for request in splitter.feed(chunk):
                        fault = self._take(request)
                        if fault is Fault.NOT_SENT:
                            nursery.cancel_scope.cancel()
                            return
                        if fault is not None:
                            pending.append(fault)
                        await self._passes.wait()
                        await server.send_all(self._translate(self._rewrite(request)))
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
                    await self._passes.wait()
                    await client.send_all(self._translate(answer))
                    if fault is Fault.AFTER_ANSWER:
                        break
                nursery.cancel_scope.cancel()

            nursery.start_soon(_until_broken, requests, nursery)
            nursery.start_soon(_until_broken, answers, nursery)


class _Splitter:
    """Cuts what the client sends into requests: all messages up to a Sync, a Flush or a simple query."""

    def __init__(self) -> None:
        self._buffer = b""
        self._is_startup = True

    def feed(self, chunk: bytes) -> list[bytes]:
        self._buffer += chunk
        requests, place = [], 0
        while True:
            header = place + (0 if self._is_startup else 1)
            end = header + int.from_bytes(self._buffer[header : header + 4], "big")
            if len(self._buffer) < max(header + 4, end):
                return requests
            is_whole = self._is_startup or self._buffer[place : place + 1] in {b"S", b"H", b"Q", b"X", b"p"}
            self._is_startup, place = False, end
            if is_whole:
                requests.append(self._buffer[:end])
                self._buffer, place = self._buffer[end:], 0


def _kind_of(request: bytes) -> At | None:
    if request[:1] == b"Q":
        text = request[5:-1].decode().strip()
        if text in {"", "BEGIN", "ROLLBACK"}:
            return None
        return At.COMMIT if text == "COMMIT" else At.STATEMENT
    # Bind and Execute. Preparing a statement (Parse, Describe) raises nothing here.
    return At.STATEMENT if request[:1] == b"B" else None


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
    wire = Wire(f"{directory}/{SOCKET_NAME}")
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, wire.serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        wire.dsn = f"postgresql://postgres@127.0.0.1:{port}{parts.path}?sslmode=disable"
        yield wire
        nursery.cancel_scope.cancel()
