"""A server on a real socket around an application, and a client that speaks bytes."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio

from sightline.config.addresses import read_networks
from sightline.http.server import (
    ASGIApp,
    Bound,
    ConnectionPassing,
    Fault,
    Limits,
    ListenerOptions,
    RenderedFault,
    ServerOptions,
    TlsOptions,
    TrustedProxies,
    serve,
)


@dataclass
class SetClock:
    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


def render_fault(fault: Fault) -> RenderedFault:
    body = {"statusCode": fault.status, "code": "INVALID_INPUT", "message": "m", "detail": fault.label}
    return RenderedFault(
        [(b"content-type", b"application/json"), (b"x-request-id", fault.request_id or b"made-up")],
        json.dumps(body).encode(),
    )


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Speaks bytes; reads answers by their framing."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def _more(self) -> bool:
        data = await self.stream.receive_some(65536)
        self.buffer += data
        return bool(data)

    async def line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            assert await self._more(), f"closed in a line after {self.buffer!r}"
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    async def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            assert await self._more(), f"closed after {len(self.buffer)} of {count} bytes"
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    async def head(self) -> Answer:
        status = int((await self.line()).split(b" ")[1])
        headers: dict[str, str] = {}
        while line := await self.line():
            name, _, value = line.decode().partition(": ")
            assert name not in headers, f"{name} twice"
            headers[name] = value
        return Answer(status, headers, b"")

    async def chunk(self) -> bytes:
        data = await self.exactly(int(await self.line(), 16))
        assert await self.line() == b""
        return data

    async def answer(self, *, to_head: bool = False) -> Answer:
        answer = await self.head()
        if to_head or answer.status in (204, 304) or answer.status < 200:
            return answer
        if "content-length" in answer.headers:
            answer.body = await self.exactly(int(answer.headers["content-length"]))
        elif answer.headers.get("transfer-encoding") == "chunked":
            while data := await self.chunk():
                answer.body += data
        else:
            answer.body = await self.rest()
        return answer

    async def rest(self) -> bytes:
        """Everything until the end; a reset counts as the end."""
        try:
            while await self._more():
                continue
        except trio.BrokenResourceError:
            pass
        data, self.buffer = self.buffer, b""
        return data

    async def closed(self) -> bool:
        return await self.rest() == b""

    async def get(self, path: str = "/", *extra: str) -> Answer:
        lines = [f"GET {path} HTTP/1.1", "Host: test", *extra, "", ""]
        await self.send("\r\n".join(lines).encode())
        return await self.answer()


@dataclass
class Running:
    bound: Bound
    shutdown: trio.Event
    stopped: trio.Event
    clock: SetClock

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        stream = await trio.open_tcp_stream(self.bound.host, self.bound.port)
        try:
            yield Client(stream)
        finally:
            await trio.aclose_forcefully(stream)


StartServer = Callable[..., AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def _running(
    app: ASGIApp,
    *,
    tls: TlsOptions | None = None,
    h2c: bool = False,
    drain_s: float = 5.0,
    trusted_proxies: tuple[str, ...] = (),
    limits: dict[str, Any] | None = None,
    lifespan: bool = False,
    patience_s: float = 60,
    passing: ConnectionPassing | None = None,
) -> AsyncIterator[Running]:
    async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        await app(scope, receive, send)

    clock = SetClock()
    options = ServerOptions(
        listeners=(
            ListenerOptions(
                port=0,
                tls=tls,
                h2c=h2c,
                trusted_proxies=TrustedProxies(read_networks(trusted_proxies)),
                passing=passing,
            ),
        ),
        render_fault=render_fault,
        clock=clock,
        limits=Limits(**(limits or {})),
        drain_s=drain_s,
        sweep_s=0.02,
        startup_s=5.0,
    )
    shutdown = trio.Event()
    stopped = trio.Event()

    async def run(task_status: trio.TaskStatus[list[Bound]]) -> None:
        await serve(app if lifespan else without_lifespan, options, shutdown=shutdown, task_status=task_status)
        stopped.set()

    async with trio.open_nursery() as nursery:
        bounds = await nursery.start(partial(run))
        with trio.fail_after(patience_s):
            yield Running(bounds[0], shutdown, stopped, clock)
        nursery.cancel_scope.cancel()


@pytest.fixture
def running() -> StartServer:
    """Start a server: `async with running(app, limits={...}) as server`."""
    return _running
