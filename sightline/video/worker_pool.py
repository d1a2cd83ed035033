"""The media workers of one backend: supervision, restart with their inputs, assignment of inputs to workers."""

import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, final

import structlog
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.domain.value import replace
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
)
from sightline.system.clock import boot_now_ms
from sightline.video.ipc import messages
from sightline.video.ipc.framing import Header
from sightline.video.media_events import MediaEventQueue
from sightline.video.options import Options
from sightline.video.worker_link import WorkerLink, start_worker
from sightline.video.worker_template import WorkerTemplate

CONFIGURE_S: Final = 60.0
"""Time limit for a new worker to open its ports and its inputs."""
RESTART_WAIT_S: Final = 4.0
"""How long a request waits for a worker that is being restarted."""
BACKOFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
CLOCKS_DIFFER_MS: Final = 100
"""Clock differences of two processes below this count as zero, because reading the clocks takes time."""
STEADY_S: Final = 30.0
"""A worker that ran for this long is restarted without backoff."""
log = structlog.get_logger()


@final
class _Slot:
    """A worker and the inputs assigned to it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.link: WorkerLink | None = None
        self.up = trio.Event()
        self.inputs: dict[str, Header] = {}
        self.refs: dict[str, str] = {}
        self.connected: set[str] = set()


@final
class WorkerPool:
    """Workers and their inputs. A hash of the session's id assigns an input to a worker."""

    def __init__(self, options: Options, *, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._tcp_port = -1
        self._events = MediaEventQueue()
        count = options.workers or os.cpu_count() or 1
        self._slots = [_Slot(index) for index in range(count)]

    # -- inputs

    def has(self, session_id: str) -> bool:
        """True if the session's input is open."""
        return session_id in self._slot(session_id).inputs

    async def open(self, session_id: str, ref: str, *, read: Header | None = None) -> None:
        """Open an input on its worker. Idempotent.

        Args:
            read: {url, headers} of a WHEP endpoint to read from; None for an input that is published to.

        Raises:
            VideoUnavailableError: The worker is down.
        """
        slot = self._slot(session_id)
        entry: Header = {"session": session_id, "read": read}
        await self.ask(session_id, {"op": "open", "inputs": [entry]})
        slot.inputs[session_id] = entry
        slot.refs[session_id] = ref

    async def close(self, session_id: str) -> None:
        """Close an input. Idempotent; does nothing on a worker that is down."""
        slot = self._slot(session_id)
        slot.inputs.pop(session_id, None)
        slot.refs.pop(session_id, None)
        slot.connected.discard(session_id)
        if slot.link is not None:
            try:
                await self.ask(session_id, {"op": "close", "session": session_id})
            except VideoUnavailableError:
                log.info("media_close_skipped", session_id=session_id)

    async def frame(self, session_id: str, query: FrameQuery) -> FrameReply:
        """The newest frame of an input."""
        if not self.has(session_id):
            return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        header: Header = {"op": "frame", "session": session_id, "query": messages.query_to_wire(query)}
        fields, body = await self.ask(session_id, header, extra_ms=query.wait_ms)
        return messages.frame_from_wire(fields, body)

    async def clip(self, session_id: str, seconds: int) -> ClipReply:
        """The last seconds of an input."""
        if not self.has(session_id):
            return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)
        header: Header = {"op": "clip", "session": session_id, "seconds": seconds}
        return messages.clip_from_wire(*await self.ask(session_id, header))

    # -- viewers

    async def end_viewers_without(self, is_allowed: Callable[[str], Awaitable[bool]]) -> int:
        """Disconnect the viewers whose token is not allowed any more; returns their number.

        Raises:
            VideoUnavailableError: A worker did not answer.
        """
        ended = 0
        for slot in self._slots:
            if slot.link is None:
                continue
            reply, _ = await self._ask_slot(slot, {"op": "viewer_tokens"})
            refused = [token for token in reply["tokens"] if not await is_allowed(token)]
            if refused:
                reply, _ = await self._ask_slot(slot, {"op": "end_viewers", "tokens": refused})
                ended += int(reply["ended"])
        return ended

    # -- TCP

    def use_tcp(self, port: int) -> None:
        """Have workers offer a TCP port, whose connections come by `pass_connection`. Call before `run`."""
        self._tcp_port = port

    def pass_connection(self, worker: int, descriptor: int, first_packet: bytes) -> None:
        """Give a worker a copy of a TCP connection; drops it if there is no such worker now."""
        if worker < len(self._slots) and (link := self._slots[worker].link) is not None:
            link.pass_connection(descriptor, first_packet)

    # -- events

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Media events of all inputs, for one reader."""
        return self._events.channel()

    def report(
        self, session_id: str, kind: MediaKind, at_ms: int, viewers: Sequence[str] = (), receiving: Sequence[str] = ()
    ) -> None:
        """Pass an event on if the input is open."""
        ref = self._slot(session_id).refs.get(session_id)
        if ref is not None:
            self._events.put(
                MediaEvent(
                    ref=ref,
                    session_id=session_id,
                    kind=kind,
                    at_ms=at_ms,
                    viewers=tuple(viewers),
                    receiving=tuple(receiving),
                )
            )

    # -- for operators of the service

    def worker_counts(self) -> tuple[int, int]:
        """How many workers are ready, and how many there should be."""
        return sum(slot.up.is_set() for slot in self._slots), len(self._slots)

    async def stats(self) -> list[dict[str, Any]]:
        """Counts per worker that is up."""
        rows: list[dict[str, Any]] = []
        for slot in self._slots:
            if slot.link is not None:
                reply, _ = await self._ask_slot(slot, {"op": "stats"})
                rows.append({"worker": slot.index, "pid": slot.link.pid, **reply["stats"]})
        return rows

    async def self_test(self) -> list[dict[str, Any]]:
        """Check the media addresses; one row each: bind, advertised, ok, problem."""
        reply, _ = await self._ask_slot(self._slots[0], {"op": "self_test"})
        checks: list[dict[str, Any]] = reply["checks"]
        for check in checks:
            if not check["ok"]:
                log.warning("media_address_unreachable", **check)
        return checks

    # -- workers

    def _slot(self, session_id: str) -> _Slot:
        digest = hashlib.blake2s(session_id.encode(), digest_size=4).digest()
        return self._slots[int.from_bytes(digest, "big") % len(self._slots)]

    async def ask(
        self, session_id: str, header: Header, body: bytes = b"", *, extra_ms: int = 0
    ) -> tuple[Header, bytes]:
        """Ask the worker of a session.

        Raises:
            VideoUnavailableError: It is down, failed, or did not answer in time.
        """
        return await self._ask_slot(self._slot(session_id), header, body, extra_ms=extra_ms)

    async def _ask_slot(
        self, slot: _Slot, header: Header, body: bytes = b"", *, extra_ms: int = 0
    ) -> tuple[Header, bytes]:
        if slot.link is None:
            with trio.move_on_after(RESTART_WAIT_S):
                await slot.up.wait()
        link = slot.link
        if link is None:
            raise VideoUnavailableError("the media worker is restarting")
        return await link.ask(header, body, within_ms=self._options.request_timeout_ms + extra_ms)

    def _on_events(self, slot: _Slot, events: list[list[Any]], clock_offset_ms: int) -> None:
        # A worker that was started after the wall clock was set back has a clock behind the server's.
        behind_ms = self._clock.now_ms() - boot_now_ms() - clock_offset_ms
        shift_ms = behind_ms if abs(behind_ms) > CLOCKS_DIFFER_MS else 0
        for session, value, at_ms, viewers, receiving in events:
            session_id, kind = str(session), MediaKind(value)
            if kind is MediaKind.CONNECTED:
                slot.connected.add(session_id)
            elif kind is MediaKind.DISCONNECTED:
                slot.connected.discard(session_id)
            if isinstance(at_ms, int):
                self.report(session_id, kind, at_ms + shift_ms, viewers, receiving)

    async def run(
        self, template: WorkerTemplate, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run all workers until cancelled; reports started when all are up."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._events.pump)
            async with trio.open_nursery() as starting:
                for slot in self._slots:
                    starting.start_soon(nursery.start, self._keep_worker, slot, template)
            task_status.started()
            nursery.start_soon(self._self_test_at_start)

    async def _self_test_at_start(self) -> None:
        """Log unreachable media addresses. A failure does not stop the server."""
        try:
            await self.self_test()
        except VideoUnavailableError as error:
            log.warning("media_self_test_failed", error=str(error))

    async def _keep_worker(
        self, slot: _Slot, template: WorkerTemplate, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        failures = 0
        while True:
            began = trio.current_time()
            try:
                async with start_worker(template, partial(self._on_events, slot)) as link:
                    if await self._prepare(slot, link):
                        if failures == 0:
                            task_status.started()
                        await self._until_dead(link)
                        self._lost(slot, link.pid)
                    elif failures == 0:
                        raise VideoUnavailableError("a media worker did not start")
            except VideoUnavailableError as error:
                if failures == 0:
                    raise
                log.error("media_worker_not_restarted", worker=slot.index, error=str(error))
            failures = 1 if trio.current_time() - began > STEADY_S else failures + 1
            await trio.sleep(BACKOFF_S[min(failures - 1, len(BACKOFF_S) - 1)])

    async def _until_dead(self, link: WorkerLink) -> None:
        """Wait until a worker has died or has stopped answering."""
        while not link.died.is_set():
            with trio.move_on_after(self._options.worker_check_ms / 1000):
                await link.died.wait()
                return
            try:
                await link.ask({"op": "stats"}, within_ms=self._options.worker_check_ms)
            except VideoUnavailableError as error:
                log.error("media_worker_stuck", pid=link.pid, error=str(error))
                return

    def _lost(self, slot: _Slot, pid: int) -> None:
        """Mark a worker as down and report its publishers as disconnected."""
        slot.link, slot.up = None, trio.Event()
        log.error("media_worker_died", worker=slot.index, pid=pid, inputs=len(slot.inputs))
        now_ms = self._clock.now_ms()
        for session_id in sorted(slot.connected & set(slot.inputs)):
            self.report(session_id, MediaKind.DISCONNECTED, now_ms)
        slot.connected.clear()

    async def _prepare(self, slot: _Slot, link: WorkerLink) -> bool:
        """Configure a new worker and open its inputs again."""
        try:
            net = replace(self._options.net, tcp_port=self._tcp_port, ufrag_prefix=f"{slot.index:02d}")
            options = messages.options_to_wire(replace(self._options, net=net))
            configure: Header = {"op": "configure", "options": options}
            await link.ask(configure, within_ms=int(CONFIGURE_S * 1000))
            if slot.inputs:
                await link.ask({"op": "open", "inputs": list(slot.inputs.values())}, within_ms=int(CONFIGURE_S * 1000))
        except VideoUnavailableError as error:
            log.error("media_worker_not_ready", worker=slot.index, error=str(error))
            return False
        slot.link = link
        slot.up.set()
        log.info("media_worker_ready", worker=slot.index, pid=link.pid)
        return True
