"""The embedded video backend: WHIP, WHEP and frames from supervised worker processes.

A worker that dies is restarted with its inputs; its publishers and viewers reconnect with new offers to the same URLs.
Nothing is stored: the tokens in the URLs derive from one secret and the session's id.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, final

import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.ports.clock import Clock
from sightline.ports.video import (
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    MediaEvent,
    SignalReply,
    SignalRequest,
    VideoInput,
)
from sightline.video import signalling
from sightline.video.ipc import messages
from sightline.video.ipc.framing import Header
from sightline.video.options import IceServer, Options
from sightline.video.tokens import TokenMint, ref_of, session_of_ref
from sightline.video.worker_pool import WorkerPool


@final
class EmbeddedBackend:
    """Implements `ports.video.VideoBackend`. Made by `open_embedded`."""

    def __init__(self, options: Options, *, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._mint = TokenMint(options.secret)
        self._pool = WorkerPool(options, clock=clock)

    def describe_input(self, session_id: str) -> VideoInput:
        """The input of a session; pure."""
        base = self._options.public_url
        return VideoInput(
            ref=ref_of(session_id),
            whip_url=f"{base}/whip/{self._mint.token('whip', session_id)}",
            whep_url=f"{base}/whep/{self._mint.token('whep', session_id)}",
        )

    async def create_input(self, session_id: str) -> VideoInput:
        """Open the input of a session. Idempotent."""
        described = self.describe_input(session_id)
        await self._pool.open(session_id, described.ref)
        return described

    async def reopen_input(self, session_id: str) -> VideoInput:
        """Open the input of a session. Idempotent."""
        return await self.create_input(session_id)

    def has_input(self, session_id: str) -> bool:
        """Whether the session's input is open."""
        return self._pool.has(session_id)

    def session_of_signal(self, request: SignalRequest) -> str | None:
        """The session that a WHIP or WHEP request names; None if its token is not valid."""
        return self._mint.session_of(request.kind, request.token)

    async def close_input(self, ref: str) -> None:
        """Disconnect all peers and remove the input. Idempotent."""
        session_id = session_of_ref(ref)
        if session_id is not None:
            await self._pool.close(session_id)

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Media events of all inputs, for one reader."""
        return self._pool.events()

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        """The newest frame that satisfies the query."""
        session_id = session_of_ref(ref)
        if session_id is None:
            return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        return await self._pool.frame(session_id, query)

    async def signal(self, request: SignalRequest) -> SignalReply:
        """Answer one WHIP or WHEP request."""
        session_id = self.session_of_signal(request)
        if session_id is None or not self._pool.has(session_id):
            if request.method.upper() == "OPTIONS":  # a CORS preflight must succeed; ICE servers need a valid token
                return signalling.options_reply(request, ())
            return signalling.problem(404, "No such live input")
        fixed = signalling.static_reply(request, self._ice_servers(session_id))
        if fixed is not None:
            return fixed
        fields, body = messages.request_to_wire(request)
        header: Header = {"op": "signal", "session": session_id, "request": fields}
        try:
            reply, reply_body = await self._pool.ask(session_id, header, body)
        except VideoUnavailableError:
            return signalling.problem(503, "The media worker is restarting", headers=[("Retry-After", "2")])
        return messages.reply_from_wire(reply, reply_body)

    def _ice_servers(self, session_id: str) -> tuple[IceServer, ...]:
        options = self._options
        return signalling.with_turn_credentials(
            options.ice_servers,
            secret=options.turn_secret,
            ttl_s=options.turn_ttl_s,
            now_ms=self._clock.now_ms(),
            user=ref_of(session_id),
        )

    def worker_counts(self) -> tuple[int, int]:
        """How many workers are ready, and how many there should be."""
        return self._pool.worker_counts()

    async def stats(self) -> list[dict[str, Any]]:
        """Counts per worker that is up."""
        return await self._pool.stats()

    async def self_test(self) -> list[dict[str, Any]]:
        """Check the media addresses; one row each: bind, advertised, ok, problem."""
        return await self._pool.self_test()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the workers until cancelled; reports started when all are up."""
        await self._pool.run(task_status)


@asynccontextmanager
async def open_embedded(options: Options, *, clock: Clock) -> AsyncIterator[EmbeddedBackend]:
    """Run the embedded backend during the block.

    Raises:
        VideoUnavailableError: The workers did not start (raised inside an exception group).
    """
    backend = EmbeddedBackend(options, clock=clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(backend.run)
        try:
            yield backend
        finally:
            nursery.cancel_scope.cancel()
