"""The embedded video backend: WHIP, WHEP and frames from supervised worker processes.

A worker that dies is restarted with its inputs; its publishers and viewers reconnect with new offers to the same URLs.
Nothing is stored: the tokens in the URLs derive from one secret and the session's id.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, final

import structlog
import trio

from sightline.domain.access import Holder
from sightline.domain.errors import UnavailableError, VideoUnavailableError
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
    SignalReply,
    SignalRequest,
    VideoInput,
    WatchAccess,
)
from sightline.video import signalling
from sightline.video.ipc import messages
from sightline.video.ipc.framing import Header
from sightline.video.options import IceServer, Options
from sightline.video.tcp_listener import TcpRouter, open_tcp_port, port_of
from sightline.video.tokens import TokenMint, ref_of, session_of_ref
from sightline.video.worker_pool import WorkerPool
from sightline.video.worker_template import WorkerTemplate

log = structlog.get_logger()


@final
class EmbeddedBackend:
    """Implements `ports.video.VideoBackend`. Made by `open_embedded`."""

    def __init__(self, options: Options, *, clock: Clock, access: WatchAccess | None = None) -> None:
        """`access` decides who may watch; without it every valid token may."""
        self._access = access
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

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The play URL with a token that names the credential."""
        base, _, token = whep_url.rpartition("/")
        session_id = self._mint.session_of("whep", token)
        return whep_url if session_id is None else f"{base}/{self._mint.viewer_token(session_id, holder)}"

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

    async def clip(self, ref: str, seconds: int) -> ClipReply:
        """The last seconds, as many as are kept."""
        session_id = session_of_ref(ref)
        if session_id is None:
            return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)
        return await self._pool.clip(session_id, seconds)

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
        if request.kind == "whep" and request.resource is None:
            refused = await self._refused(request.token)
            if refused is not None:
                return refused
        fields, body = messages.request_to_wire(request)
        holder = self._mint.holder_of(request.token)
        viewer = "" if holder is None else holder.workspace_id
        header: Header = {"op": "signal", "session": session_id, "request": fields, "viewer": viewer}
        try:
            reply, reply_body = await self._pool.ask(session_id, header, body)
        except VideoUnavailableError:
            return signalling.problem(503, "The media worker is restarting", headers=[("Retry-After", "2")])
        return messages.reply_from_wire(reply, reply_body)

    async def _refused(self, token: str) -> SignalReply | None:
        """The refusal of an offer to play; None if its sender may watch."""
        try:
            is_allowed = await self._is_allowed(token)
        except UnavailableError:
            return signalling.problem(503, "Access cannot be checked now", headers=[("Retry-After", "2")])
        return None if is_allowed else signalling.problem(403, "Access was withdrawn", "get a new viewer token")

    async def engine_hook(self, _engine: str, _headers: Mapping[str, str], _body: bytes) -> int:
        """No media server calls back: 404."""
        return 404

    async def _is_allowed(self, token: str) -> bool:
        if self._access is None:
            return True
        holder = self._mint.holder_of(token)
        return holder is not None and await self._access.is_allowed(holder)

    async def _is_still_allowed(self, token: str) -> bool:
        """Like `_is_allowed`. An unavailable dependency ends nothing: the next check decides."""
        try:
            return await self._is_allowed(token)
        except UnavailableError:
            return True

    async def _end_withdrawn_viewers(self) -> None:
        """Check the viewers that are connected, again and again."""
        while self._access is not None:
            await self._access.next_check(self._options.recheck_ms)
            try:
                ended = await self._pool.end_viewers_without(self._is_still_allowed)
            except VideoUnavailableError as error:
                log.warning("viewers_not_checked", error=str(error))
                continue
            if ended:
                log.info("viewers_ended", count=ended)

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

    async def run(
        self, template: WorkerTemplate, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the workers until cancelled; reports started when all are up."""
        listeners = open_tcp_port(self._options.net)
        self._pool.use_tcp(port_of(listeners))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_withdrawn_viewers)
                nursery.start_soon(TcpRouter(self._pool.pass_connection).serve, listeners)
                await self._pool.run(template, task_status)
        finally:
            for listener in listeners:
                listener.socket.close()


@asynccontextmanager
async def open_embedded(
    options: Options, template: WorkerTemplate, *, clock: Clock, access: WatchAccess | None = None
) -> AsyncIterator[EmbeddedBackend]:
    """Run the embedded backend during the block.

    Raises:
        VideoUnavailableError: The workers did not start (raised inside an exception group).
    """
    backend = EmbeddedBackend(options, clock=clock, access=access)
    async with trio.open_nursery() as nursery:
        await nursery.start(backend.run, template)
        try:
            yield backend
        finally:
            nursery.cancel_scope.cancel()
