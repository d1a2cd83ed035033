"""The application's own start and stop (the lifespan protocol of ASGI)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
import trio

from sightline.http.server.asgi import ASGIApp, Message

log = structlog.get_logger()


class LifespanError(Exception):
    """The application could not start."""


@asynccontextmanager
async def lifespan(app: ASGIApp, startup_s: float) -> AsyncIterator[None]:
    """Run `app` with a lifespan scope around a block.

    An application without lifespan support returns or raises immediately, which is allowed. If the lifespan task fails
    while the block runs, the block continues.

    Raises:
        LifespanError: If the application reports a failed start, or is not ready within `startup_s`.

    Cancellation: the application still receives the shutdown event and has `startup_s` to handle it.
    """
    protocol = _Lifespan(app)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(protocol.run)
        with trio.move_on_after(startup_s):
            await protocol.started.wait()
        if not protocol.started.is_set():
            protocol.failure = "the application did not start in time"
        try:
            if protocol.failure is None:
                yield
        finally:
            protocol.stopping.set()
            with trio.CancelScope(shield=True), trio.move_on_after(startup_s):
                await protocol.stopped.wait()
            nursery.cancel_scope.cancel()
    if protocol.failure is not None:
        raise LifespanError(protocol.failure)


class _Lifespan:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.started = trio.Event()
        self.stopping = trio.Event()
        self.stopped = trio.Event()
        self.failure: str | None = None
        self._startup_given = False

    async def run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._app(scope, self._receive, self._send)
        except* Exception as group:
            if self.started.is_set():
                log.exception("http_lifespan_failed")
            else:
                log.debug("http_lifespan_unsupported", error=repr(group.exceptions[0]))
        finally:
            self.started.set()
            self.stopped.set()

    async def _receive(self) -> Message:
        if not self._startup_given:
            self._startup_given = True
            return {"type": "lifespan.startup"}
        await self.stopping.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.failed":
            self.failure = message.get("message") or "the application failed to start"
            self.started.set()
        elif kind == "lifespan.startup.complete":
            self.started.set()
        elif kind in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            self.stopped.set()
