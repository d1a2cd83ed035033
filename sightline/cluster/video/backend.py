"""The video backend of a server in its service.

An input is opened on the server that owns the session when it starts, and stays there when another server becomes the
owner. The other servers forward WHIP and WHEP to it over the bus and read its frames over HTTP; media goes to its own
addresses. When it has ended, the owner opens the input on its own media workers.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar, final

import structlog
import trio

from sightline.cluster.peers.video_messages import HeldInput
from sightline.cluster.video import frames
from sightline.cluster.video.input_locations import InputLocations, servers_of
from sightline.cluster.video.peers import RemoteVideoPeers
from sightline.domain.access import Holder
from sightline.domain.errors import VideoUnavailableError
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.video import (
    ClipMissing,
    ClipMissingReason,
    ClipReply,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    LocalVideo,
    MediaEvent,
    MediaKind,
    SignalReply,
    SignalRequest,
    VideoInput,
)
from sightline.video import signalling
from sightline.video.ipc import messages
from sightline.video.tokens import ref_of, session_of_ref

CLOSE_RETRY_S: Final = 5.0
SETTLE_S: Final = 5.0
"""After servers have come or gone, sessions load and open their inputs within this time."""
NO_SERVER: Final = signalling.problem(
    503, "The server that has this live input does not answer, or has ended", headers=[("Retry-After", "2")]
)

R = TypeVar("R")
log = structlog.get_logger()


@final
class ClusterBackend:
    """Implements `VideoBackend` for a service, and answers the other servers. Made by `open_cluster_backend`."""

    def __init__(
        self, own: LocalVideo, peers: RemoteVideoPeers, *, url: str, secret: bytes, clock: Clock, ids: Ids
    ) -> None:
        """Create the backend of one server.

        Args:
            url: URL of this server's internal listener, as its lease says.
            secret: A secret that all servers of the service share, for frames.
        """
        self._own = own
        self._peers = peers
        self._clock = clock
        keys = frames.FrameKeys(secret)
        self._door = frames.FrameDoor(keys, url, clock, ids)
        self._frames = frames.FrameClient(keys, clock, ids)
        self._locations = InputLocations(peers)
        self._opening: Counter[str] = Counter()
        self._settled_at = 0.0
        self._unclosed: set[tuple[str, str]] = set()
        """Servers that may still hold an input that is to be closed, and its ref."""
        self._to_close_here, self._closed_here = trio.open_memory_channel[str](1_000)
        self._send, self._receive = trio.open_memory_channel[MediaEvent](0)
        peers.attach(
            held=self.held,
            close=self.close_held,
            signal=self.signal_held,
            hook=own.engine_hook,
            opened=self.opened_elsewhere,
        )

    # For this server.

    async def create_input(self, session_id: str) -> VideoInput:
        """Open the input of a session on this server."""
        is_new = not self._own.has_input(session_id)
        self._opening[session_id] += 1
        try:
            opened = await self._own.create_input(session_id)
        finally:
            self._opening -= Counter((session_id,))
        if is_new:
            self._locations.forget(session_id)
            self._peers.tell_opened(session_id)
        return opened

    async def reopen_input(self, session_id: str) -> VideoInput:
        """Find the input on this server or another one; open it on this one if no server has it."""
        if not self._is_here(session_id):
            found = await self._locations.find(session_id)
            if found is not None:
                return found[1].input
        return await self.create_input(session_id)

    async def close_input(self, ref: str) -> None:
        """Close the input wherever it is. Servers that do not answer are asked again until they have ended."""
        session_id = session_of_ref(ref)
        if session_id is None or self._is_here(session_id):
            await self._own.close_input(ref)
            return
        servers = servers_of(self._locations.known(session_id), self._peers.servers())
        self._locations.forget(session_id)
        self._unclosed.update((server, ref) for server in servers)
        await self._close_on(servers, ref)

    def describe_input(self, session_id: str) -> VideoInput:
        """The input of a session, without calling an engine or another server."""
        return self._own.describe_input(session_id)

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The play URL of an input for one credential. The server that has the input checks it."""
        return self._own.whep_url_for(whep_url, holder)

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Media events of the inputs of this server, and LOST for sessions that it owns."""
        return self._receive

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        """The newest frame that satisfies the query, from the server that has the input."""
        session_id = session_of_ref(ref)
        if session_id is None or self._is_here(session_id):
            return await self._own.frame(ref, query)
        reply = await self._fetch(session_id, lambda url: self._frames.fetch(url, ref, query))
        return reply or FrameMissing(reason=FrameMissingReason.NOT_DECODED)

    async def clip(self, ref: str, seconds: int) -> ClipReply:
        """The last seconds, from the server that has the input."""
        session_id = session_of_ref(ref)
        if session_id is None or self._is_here(session_id):
            return await self._own.clip(ref, seconds)
        reply = await self._fetch(session_id, lambda url: self._frames.fetch_clip(url, ref, seconds))
        return reply or ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)

    async def _fetch(self, session_id: str, read: Callable[[str], Awaitable[R]]) -> R | None:
        """Read from the server that has an input, at the URL that its lease says; None if no server has it."""
        found = self._locations.known(session_id)
        if found is not None and (reply := await read(self._url_of(found[0]))) is not None:
            return reply
        found = await self._locations.find(session_id)
        return None if found is None else await read(self._url_of(found[0]))

    def _url_of(self, server: str) -> str:
        url = self._peers.url_of(server)
        if url is None:
            raise VideoUnavailableError("the lease of the server that has the input says no URL")
        return url

    async def signal(self, request: SignalRequest) -> SignalReply:
        """Answer a WHIP or WHEP request, or let the server answer it that has the input."""
        session_id = self._own.session_of_signal(request)
        if session_id is None or self._is_here(session_id):
            return await self._own.signal(request)
        try:
            found = self._locations.known(session_id)
            reply = None if found is None else await self._peers.signal(found[0], request)
            if reply is None:
                found = await self._locations.find(session_id)
                reply = None if found is None else await self._peers.signal(found[0], request)
        except VideoUnavailableError:
            return NO_SERVER
        if reply is None and trio.current_time() < self._settled_at:
            return NO_SERVER  # and not 404, after which a publisher need not try again
        return reply or await self._own.signal(request)

    async def engine_hook(self, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Let every server handle an authentic callback: only the one that has opened the input knows it.

        A callback without its secret (401) is not passed on, so that a flood of them costs one server only.

        Returns:
            The first status below 300, else this server's own.
        """
        own = await self._own.engine_hook(engine, headers, body)
        statuses = [own]

        async def ask(server: str) -> None:
            try:
                statuses.append(await self._peers.hook(server, engine, headers, body))
            except VideoUnavailableError as error:
                log.warning("engine_hook_not_forwarded", error=str(error))

        async with trio.open_nursery() as nursery:
            for server in self._peers.servers() if own not in (401, 404) else ():
                nursery.start_soon(ask, server)
        return next((status for status in statuses if status < 300), own)

    # For the other servers.

    def held(self, session_ids: Collection[str]) -> tuple[HeldInput, ...]:
        """Those of these sessions whose input is open here, or is being opened."""
        here = (session_id for session_id in session_ids if self._is_here(session_id))
        return tuple(HeldInput(session_id, self._own.describe_input(session_id)) for session_id in here)

    async def close_held(self, ref: str) -> None:
        """Close an input. Idempotent."""
        await self._own.close_input(ref)

    async def signal_held(self, request: SignalRequest) -> SignalReply | None:
        """Answer a WHIP or WHEP request; None if the input is not open here."""
        session_id = self._own.session_of_signal(request)
        if session_id is None or not self._is_here(session_id):
            return None
        return await self._own.signal(request)

    def opened_elsewhere(self, session_id: str) -> None:
        """Close an input that another server has opened, unless this one has become the session's owner."""
        self._locations.forget(session_id)
        if self._own.has_input(session_id) and not self._peers.owns(session_id):
            log.warning("input_opened_elsewhere", session_id=session_id)
            with suppress(trio.WouldBlock):  # the sender's next opening tells of it again
                self._to_close_here.send_nowait(ref_of(session_id))

    async def answer_frame(self, ref: str, headers: Mapping[str, str]) -> SignalReply:
        """Answer another server's request for a frame or a clip."""
        proof = self._door.admit(ref, headers)
        if proof is None:
            return SignalReply(status=401)
        query, session_id = frames.query_of(headers), session_of_ref(ref)
        if query is None:
            return SignalReply(status=400)
        if session_id is None or not self._is_here(session_id):
            return SignalReply(status=404)
        try:
            if isinstance(query, frames.ClipQuery):
                return self._door.seal(proof, *messages.clip_to_wire(await self._own.clip(ref, query.clip_seconds)))
            return self._door.seal(proof, *messages.frame_to_wire(await self._own.frame(ref, query)))
        except VideoUnavailableError:
            return SignalReply(status=503)

    # Running.

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Search for inputs, pass events on and close what other servers hold, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._locations.run)
                nursery.start_soon(self._pass_events_on)
                nursery.start_soon(self._report_lost)
                nursery.start_soon(self._close_here)
                nursery.start_soon(self._close_elsewhere)
                task_status.started()
        finally:
            with trio.CancelScope(shield=True):
                await self._frames.close()

    def _is_here(self, session_id: str) -> bool:
        return self._own.has_input(session_id) or session_id in self._opening

    async def _pass_events_on(self) -> None:
        async for event in self._own.events():
            await self._send.send(event)

    async def _report_lost(self) -> None:
        """Report the inputs of sessions of this server that were on a server that has ended."""
        servers = self._peers.servers()
        while True:
            for session_id, held in self._locations.take_lost(servers):
                if self._peers.owns(session_id):
                    log.warning("input_lost", session_id=session_id)
                    now_ms = self._clock.now_ms()
                    await self._send.send(
                        MediaEvent(ref=held.input.ref, session_id=session_id, kind=MediaKind.LOST, at_ms=now_ms)
                    )
            servers = await self._peers.await_change(servers)
            self._settled_at = trio.current_time() + SETTLE_S

    async def _close_here(self) -> None:
        async for ref in self._closed_here:
            try:
                await self._own.close_input(ref)
            except VideoUnavailableError as error:
                log.warning("video_close_failed", error=str(error))

    async def _close_elsewhere(self) -> None:
        while True:
            await trio.sleep(CLOSE_RETRY_S)
            servers = self._peers.servers()
            self._unclosed = {(server, ref) for server, ref in self._unclosed if server in servers}
            for server, ref in tuple(self._unclosed):
                await self._close_on((server,), ref)

    async def _close_on(self, servers: Collection[str], ref: str) -> None:
        async def close(server: str) -> None:
            try:
                await self._peers.close(server, ref)
            except VideoUnavailableError as error:
                log.warning("video_close_failed", error=str(error))
            else:
                self._unclosed.discard((server, ref))

        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(close, server)


@asynccontextmanager
async def open_cluster_backend(
    own: LocalVideo, peers: RemoteVideoPeers, *, url: str, secret: bytes, clock: Clock, ids: Ids
) -> AsyncIterator[ClusterBackend]:
    """Run the video backend of a server during the block."""
    backend = ClusterBackend(own, peers, url=url, secret=secret, clock=clock, ids=ids)
    async with trio.open_nursery() as nursery:
        await nursery.start(backend.run)
        try:
            yield backend
        finally:
            nursery.cancel_scope.cancel()
