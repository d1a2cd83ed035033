"""What all connections of one `serve` call have in common."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Protocol

import structlog
import trio

from sightline.http.server.asgi import ASGIApp
from sightline.http.server.options import Fault, RenderedFault, ServerOptions
from sightline.http.server.response import ResponseHead

log = structlog.get_logger()


class Swept(Protocol):
    """Something with deadlines that the sweeper looks at."""

    def sweep(self, now: float) -> None:
        """Act if a deadline has passed. Must not wait."""
        ...

    def drain(self) -> None:
        """The server is stopping: end what has nothing in flight. Must not wait."""
        ...


@dataclass(slots=True)
class Shared:
    """The application, the options, and the connections that are open."""

    app: ASGIApp
    options: ServerOptions
    open: set[Swept] = field(default_factory=set)
    draining: bool = False
    date: bytes = b""
    # Tasks that belong to no connection's scope. Set before the first connection is accepted.
    nursery: trio.Nursery | None = None

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a small task beside the connections; what it raises is logged."""
        assert self.nursery is not None
        self.nursery.start_soon(_logged, task)

    def read_clock(self) -> None:
        """Renew the Date header; called once per sweep, not per answer."""
        seconds = self.options.clock.now_ms() // 1000
        self.date = b"date: " + formatdate(seconds, usegmt=True).encode("ascii") + b"\r\n"

    def render(self, fault: Fault) -> RenderedFault:
        """Word a fault. A renderer that fails must not take the connection with it."""
        try:
            return self.options.render_fault(fault)
        except Exception:
            log.exception("http_fault_render_failed", status=fault.status, label=fault.label)
            return RenderedFault([(b"content-type", b"application/json")], b"{}")

    def encode_fault(self, fault: Fault, *, method: str = "GET", keep_alive: bool = False) -> bytes:
        """A whole answer for a fault."""
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
