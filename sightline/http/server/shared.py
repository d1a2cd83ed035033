"""State shared by all connections of one `serve` call."""

from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Protocol

import structlog
import trio
from msgspec import Struct, field

from sightline.http.server.asgi import ASGIApp
from sightline.http.server.options import Fault, RenderedFault, ServerOptions
from sightline.http.server.response import ResponseHead

log = structlog.get_logger()


class Swept(Protocol):
    """An object whose deadlines the sweeper checks."""

    def sweep(self, now: float) -> None:
        """Act if a deadline has passed. Must not wait."""
        ...

    def drain(self) -> None:
        """The server is stopping: end what has nothing in flight. Must not wait."""
        ...


class Shared(Struct):
    """The application, the options, and the connections that are open."""

    app: ASGIApp
    options: ServerOptions
    open: set[Swept] = field(default_factory=set)
    draining: bool = False
    date: bytes = b""
    # Nursery for tasks that are not part of a connection. Set before the first connection is accepted.
    nursery: trio.Nursery | None = None

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a task that is not part of a connection; its exceptions are logged."""
        assert self.nursery is not None
        self.nursery.start_soon(_logged, task)

    def read_clock(self) -> None:
        """Renew the Date header; called once per sweep, and when the first connection opens."""
        seconds = self.options.clock.now_ms() // 1000
        self.date = b"date: " + formatdate(seconds, usegmt=True).encode("ascii") + b"\r\n"

    def render(self, fault: Fault) -> RenderedFault:
        """Render a fault; if the renderer fails, return a plain response."""
        try:
            return self.options.render_fault(fault)
        except Exception:
            log.exception("http_fault_render_failed", status=fault.status, label=fault.label)
            return RenderedFault([(b"content-type", b"application/json")], b"{}")

    def encode_fault(self, fault: Fault, *, method: str = "GET", keep_alive: bool = False) -> bytes:
        """Encode the complete response for a fault."""
        rendered = self.render(fault)
        headers = list(rendered.headers)
        if fault.status == 405:
            headers.append((b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"))
        head = ResponseHead(fault.status, headers, method=method)
        head.declare(len(rendered.body))
        data = head.encode(date=self.date, version="1.1", keep_alive=keep_alive)
        return data if head.bodiless else data + rendered.body


async def _logged(task: Callable[[], Awaitable[None]]) -> None:
    try:
        await task()
    except* Exception:
        log.exception("http_side_task_failed")
