"""A simulated video engine without media: inputs, publishers that prove media, and late or duplicate events."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from sightline.domain.access import Holder
from sightline.domain.errors import VideoUnavailableError
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

if TYPE_CHECKING:
    from sightline.ports.clock import Clock
    from simulation.adapters.store import Process
    from simulation.faults import Faults

EVENTS_MAX = 100_000


@final
class SimVideo:
    """The VideoBackend port of one server process. Its inputs are lost with the process."""

    def __init__(self, faults: Faults, process: Process, clock: Clock, nursery: trio.Nursery) -> None:
        self._faults = faults
        self._process = process
        self._clock = clock
        self._nursery = nursery
        self._inputs: set[str] = set()
        self._send, self._receive = trio.open_memory_channel[MediaEvent](EVENTS_MAX)

    async def create_input(self, session_id: str) -> VideoInput:
        """Open the input of a session."""
        await self._process.pass_through()
        await trio.sleep(self._faults.latency_s())
        if self._faults.hits(self._faults.rates.video_hangs):
            await trio.sleep_forever()
        if self._faults.hits(self._faults.rates.video_refused):
            raise VideoUnavailableError("simulated: the engine is down")
        await self._process.pass_through()
        self._inputs.add(session_id)
        return self.describe_input(session_id)

    async def reopen_input(self, session_id: str) -> VideoInput:
        """Open the input of a session again."""
        return await self.create_input(session_id)

    async def close_input(self, ref: str) -> None:
        """Remove the input."""
        await self._process.pass_through()
        self._inputs.discard(ref.removeprefix("vid-"))

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The URL as it is: nobody watches."""
        del holder
        return whep_url

    def describe_input(self, session_id: str) -> VideoInput:
        """Describe the input of a session."""
        ref = f"vid-{session_id}"
        return VideoInput(ref=ref, whip_url=f"sim:whip/{ref}", whep_url=f"sim:whep/{ref}")

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        """Yield the media events of all inputs."""
        return self._receive

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        """Report that there is no frame."""
        await trio.lowlevel.checkpoint()
        return FrameMissing(reason=FrameMissingReason.NOT_DECODED)

    async def clip(self, ref: str, seconds: int) -> ClipReply:
        """Report that there is no clip."""
        await trio.lowlevel.checkpoint()
        return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)

    async def signal(self, request: SignalRequest) -> SignalReply:
        """Answer 404: a simulated input has no WebRTC endpoint."""
        await trio.lowlevel.checkpoint()
        return SignalReply(status=404)

    def has_input(self, session_id: str) -> bool:
        """Whether the input of a session exists here."""
        return session_id in self._inputs

    def publish(self, session_id: str, kind: MediaKind) -> bool:
        """Publish frames, or stop publishing. Returns False if the input does not exist."""
        if session_id not in self._inputs or self._process.is_dead:
            return False
        ref = f"vid-{session_id}"
        event = MediaEvent(ref=ref, session_id=session_id, kind=kind, at_ms=self._clock.now_ms())
        faults = self._faults
        times = 2 if faults.hits(faults.rates.duplicate) else 1
        for _ in range(times):
            if kind is MediaKind.FRAMES and faults.hits(faults.rates.late):
                self._nursery.start_soon(self._send_late, event)
            else:
                self._send.send_nowait(event)
        return True

    async def _send_late(self, event: MediaEvent) -> None:
        await trio.sleep(self._faults.random() * self._faults.rates.late_s)
        self._send.send_nowait(event)
