"""Interface of an external engine, and the backend that combines one with our WHEP readers."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, final

import trio
from msgspec import field

from sightline.domain.access import Holder
from sightline.domain.errors import VideoUnavailableError
from sightline.domain.value import Value, hiding
from sightline.ports.clock import Clock
from sightline.ports.video import (
    ClipMissing,
    ClipMissingReason,
    ClipReply,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    MediaEvent,
    MediaKind,
    SignalReply,
    SignalRequest,
    VideoInput,
)
from sightline.video import signalling
from sightline.video.options import Options
from sightline.video.worker_pool import WorkerPool
from sightline.video.worker_template import WorkerTemplate


@final
class EngineInput(Value, kw_only=True):
    """An input on an engine."""

    input: VideoInput
    read_url: str
    """WHEP endpoint from which our workers read it."""
    read_headers: dict[str, str] = field(default_factory=dict)

    __repr__ = hiding("read_url", "read_headers")


class Engine(Protocol):
    """An engine behind its own API. Runs on trio."""

    name: str
    """Name of the engine in the path of its callbacks."""

    async def open(self, session_id: str) -> EngineInput:
        """Create the input, or find an existing one. Idempotent.

        Raises:
            VideoUnavailableError: The engine did not answer, or refused.
        """
        ...

    async def close(self, session_id: str) -> None:
        """Disconnect all peers and remove the input. Idempotent.

        Raises:
            VideoUnavailableError: The engine did not answer.
        """
        ...

    def describe(self, session_id: str) -> VideoInput | None:
        """The input without calling the engine; None if only the engine knows it."""
        ...

    def session_of(self, ref: str) -> str | None:
        """The session of an open input, or of a ref that contains it."""
        ...

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The play URL for one credential; as it is if the engine does not ask who watches."""
        ...

    async def end_withdrawn_viewers(self) -> None:
        """Disconnect viewers whose access was withdrawn, until cancelled. Returns at once if the engine cannot."""
        ...

    async def hook(self, headers: Mapping[str, str], body: bytes, report: "PresenceReport") -> int:
        """Handle the engine's callback; returns the HTTP status to answer."""
        ...

    async def watch(self, report: "PresenceReport") -> None:
        """Report publishers that connect and disconnect, until cancelled. Returns at once if the engine cannot tell."""
        ...


class PresenceReport(Protocol):
    """Takes (session id, whether a publisher is connected, Unix time in ms)."""

    def __call__(self, session_id: str, connected: bool, at_ms: int) -> None:
        """One report; repeating the same state is harmless."""
        ...


@final
class ExternalBackend:
    """Implements `ports.video.VideoBackend` on an engine. Made by `open_external`.

    Presence comes from the first of three sources: our reader's connection, the engine's API (`watch`), its webhooks
    (`report`). Frames and FRAMES events come from our reader only.
    """

    def __init__(self, engine: Engine, options: Options, *, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._pool = WorkerPool(options, clock=clock)
        self._told: dict[str, MediaKind] = {}
        self._send, self._receive = trio.open_memory_channel[MediaEvent](0)

    async def create_input(self, session_id: str) -> VideoInput:
        """Open the input on the engine and start to read it."""
        opened = await self._engine.open(session_id)
        read = {"url": opened.read_url, "headers": opened.read_headers}
        await self._pool.open(session_id, opened.input.ref, read=read)
        return opened.input

    async def reopen_input(self, session_id: str) -> VideoInput:
        """Find the input on the engine and read it."""
        return await self.create_input(session_id)

    def has_input(self, session_id: str) -> bool:
        """Whether this process reads the session's input."""
        return self._pool.has(session_id)

    def session_of_signal(self, _request: SignalRequest) -> None:
        """None: publishers and viewers connect to the engine."""

    async def close_input(self, ref: str) -> None:
        """Stop reading and remove the input from the engine."""
        session_id = self._engine.session_of(ref)
        if session_id is not None:
            await self._pool.close(session_id)
            self._told.pop(session_id, None)
            await self._engine.close(session_id)

    def describe_input(self, session_id: str) -> VideoInput:
        """Describe the input from what is known in this process.

        Raises:
            VideoUnavailableError: Only the engine knows it; call `create_input`.
        """
        described = self._engine.describe(session_id)
        if described is None:
            raise VideoUnavailableError("the input has not been opened since the server started")
        return described

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The play URL for one credential, if the engine asks this server who watches."""
        return self._engine.whep_url_for(whep_url, holder)

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Media events of all inputs, for one reader."""
        return self._receive

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        """The newest frame that satisfies the query."""
        session_id = self._engine.session_of(ref)
        if session_id is None:
            return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        return await self._pool.frame(session_id, query)

    async def clip(self, ref: str, seconds: int) -> ClipReply:
        """The last seconds, as many as are kept."""
        session_id = self._engine.session_of(ref)
        if session_id is None:
            return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)
        return await self._pool.clip(session_id, seconds)

    async def signal(self, request: SignalRequest) -> SignalReply:
        """Refuse: publishers and viewers of this backend connect to the engine."""
        fixed = signalling.static_reply(request, ())
        if request.method.upper() == "OPTIONS" and fixed is not None:
            return fixed
        return signalling.problem(404, "No such live input", "this server's inputs are on an external engine")

    async def engine_hook(self, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Implements `ports.video.EngineHooks`."""
        if engine != self._engine.name:
            return 404
        return await self._engine.hook(headers, body, self.report)

    def report(self, session_id: str, connected: bool, at_ms: int) -> None:
        """Take a publisher's presence as the engine reports it. Repeats are dropped."""
        kind = MediaKind.CONNECTED if connected else MediaKind.DISCONNECTED
        if self._told.get(session_id, MediaKind.DISCONNECTED) is not kind:
            self._pool.report(session_id, kind, min(at_ms, self._clock.now_ms()))

    async def _merge(self) -> None:
        """Pass events on. Presence is reported by both engine and reader; only changes are passed on."""
        async for event in self._pool.events():
            if event.kind in (MediaKind.CONNECTED, MediaKind.DISCONNECTED):
                if self._told.get(event.session_id, MediaKind.DISCONNECTED) is event.kind:
                    continue
                self._told[event.session_id] = event.kind
            await self._send.send(event)

    async def run(
        self, template: WorkerTemplate, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Read and watch until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._pool.run, template)
            nursery.start_soon(self._merge)
            nursery.start_soon(self._engine.watch, self.report)
            nursery.start_soon(self._engine.end_withdrawn_viewers)
            task_status.started()


@asynccontextmanager
async def open_external(
    engine: Engine, options: Options, template: WorkerTemplate, *, clock: Clock
) -> AsyncIterator[ExternalBackend]:
    """Run a backend on an external engine during the block."""
    backend = ExternalBackend(engine, options, clock=clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(backend.run, template)
        try:
            yield backend
        finally:
            nursery.cancel_scope.cancel()
