"""Behind the ports in these tests: a video engine whose pictures the test shows, a chain without contracts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from sightline.domain.access import Holder
from sightline.domain.errors import AuthzUnavailableError, ChainUnavailableError, VideoUnavailableError
from sightline.domain.value import replace
from sightline.ports.chain import CALL_GAS_DEFAULT, ChainConfig
from sightline.ports.clock import Clock
from sightline.ports.relations import ObjectRef, Relations, RelationTuple, Staged, TupleUpdate
from sightline.ports.video import (
    Clip,
    ClipMissing,
    ClipMissingReason,
    ClipReply,
    Frame,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    MediaEvent,
    MediaKind,
    PictureState,
    SignalReply,
    SignalRequest,
    VideoInput,
)
from sightline.system.clock import SystemClock

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffd9")

CHAIN = ChainConfig(
    environment="TEST",
    chain_id=31337,
    chain_name="Sightline test chain",
    rpc_url="http://127.0.0.1:1",
    rpc_is_private=True,
    explorer_url="http://127.0.0.1:1/explorer",
    usdc_address="0x5FbDB2315678afecb367f032d93F642f64180aa3",
    settlement_address="0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512",
    is_escrow=False,
)


@dataclass
class MovableClock:
    """The machine's clock, set forward by the test."""

    ahead_ms: int = 0
    base: Clock = field(default_factory=SystemClock)

    def now_ms(self) -> int:
        return self.base.now_ms() + self.ahead_ms

    def advance(self, seconds: float) -> None:
        self.ahead_ms += round(seconds * 1_000)


@dataclass
class PlainChain:
    """A chain on which no contract lives, which can be out of reach."""

    is_down: bool = False

    async def call(
        self, to: str | None, data: bytes, *, gas_cap: int = CALL_GAS_DEFAULT, block: str = "latest"
    ) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise ChainUnavailableError
        return b""

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        return await self.call(address, b"")


def a_clip(now_ms: int, video: bytes) -> Clip:
    """A clip of the second before."""
    return Clip(
        video=video,
        media_type="video/mp4",
        started_at_ms=now_ms - 1_000,
        ended_at_ms=now_ms,
        captured_by_rtcp=False,
        received_at_ms=now_ms,
        age_ms=12,
        frames=25,
        width=64,
        height=64,
        publisher_epoch=7,
    )


class ShownVideo:
    """A video engine that shows the pictures it is handed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_down = False
        self.refused = trio.Event()
        self.missed = trio.Event()
        """Set when a frame was requested before the first one was decoded."""
        """A frame was asked for while it was down."""
        self.base_url = "http://video.test"
        self.inputs: dict[str, str] = {}
        self.signals: list[SignalRequest] = []
        self._newest: dict[str, Frame] = {}
        self._lost: set[str] = set()
        self._clips: dict[str, ClipReply] = {}
        self.clip_seconds: list[int] = []
        """What was asked for."""
        self.frames_after: list[int | None] = []
        """The sequences after which frames were asked for."""
        self._shown = trio.Event()
        self._send, self._receive = trio.open_memory_channel[MediaEvent](10_000)

    async def create_input(self, session_id: str) -> VideoInput:
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise VideoUnavailableError("the engine is down")
        made = self.describe_input(session_id)
        self.inputs[made.ref] = session_id
        return made

    async def reopen_input(self, session_id: str) -> VideoInput:
        return await self.create_input(session_id)

    async def close_input(self, ref: str) -> None:
        await trio.lowlevel.checkpoint()
        self.inputs.pop(ref, None)

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The URL with the credential in words."""
        return f"{whep_url}/{'key' if holder.is_key else 'sign-in'}/{holder.credential_id}/{holder.workspace_id}"

    def describe_input(self, session_id: str) -> VideoInput:
        return VideoInput(
            ref=f"vid-{session_id}",
            whip_url=f"{self.base_url}/whip/publish-secret-of-{session_id}",
            whep_url=f"{self.base_url}/whep/play-{session_id}",
        )

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        return self._receive

    async def frame(self, ref: str, query: FrameQuery) -> FrameReply:
        if self.is_down:
            self.refused.set()
            raise VideoUnavailableError("the engine is down")
        self.frames_after.append(query.after)
        with trio.move_on_after(query.wait_ms / 1_000):
            while not self._is_newer(ref, query):
                shown = self._shown
                await shown.wait()
        await trio.lowlevel.checkpoint()
        frame = self._newest.get(ref)
        if frame is None:
            self.missed.set()
            return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        age_ms = self.clock.now_ms() - frame.received_at_ms
        if age_ms > query.max_age_ms:
            self.missed.set()
            return FrameMissing(reason=FrameMissingReason.STALE, sequence=frame.sequence)
        if not self._is_newer(ref, query):
            return FrameMissing(reason=FrameMissingReason.NOT_NEWER, sequence=frame.sequence, is_lost=ref in self._lost)
        if ref in self._lost:
            frame = replace(frame, state=PictureState.LOST)
        width = min(query.width or frame.width, frame.width)
        return replace(frame, age_ms=age_ms, width=width, height=frame.height * width // frame.width)

    async def clip(self, ref: str, seconds: int) -> ClipReply:
        if self.is_down:
            raise VideoUnavailableError("the engine is down")
        await trio.lowlevel.checkpoint()
        self.clip_seconds.append(seconds)
        return self._clips.get(ref, ClipMissing(reason=ClipMissingReason.NOT_RECEIVED))

    def keep(self, session_id: str, clip: ClipReply) -> None:
        """The last seconds are these."""
        self._clips[f"vid-{session_id}"] = clip

    def _is_newer(self, ref: str, query: FrameQuery) -> bool:
        frame = self._newest.get(ref)
        return query.after is None or (frame is not None and frame.sequence > query.after)

    async def signal(self, request: SignalRequest) -> SignalReply:
        await trio.lowlevel.checkpoint()
        self.signals.append(request)
        headers = (("content-type", "application/sdp"), ("location", f"{request.base_url}/{request.kind}/t/r1"))
        return SignalReply(status=201, headers=headers, body=b"v=0 answer")

    def show(self, session_id: str, sequence: int, jpeg: bytes = JPEG) -> None:
        """A new frame was decoded."""
        now_ms = self.clock.now_ms()
        self._newest[f"vid-{session_id}"] = Frame(
            jpeg=jpeg,
            sequence=sequence,
            captured_at_ms=now_ms,
            received_at_ms=now_ms,
            age_ms=0,
            width=640,
            height=360,
            state=PictureState.LIVE,
            captured_by_rtcp=False,
            publisher_epoch=7,
        )
        self._shown.set()
        self._shown = trio.Event()
        self.tell(session_id, MediaKind.FRAMES)

    def lose(self, session_id: str) -> None:
        """No frame arrives any more."""
        self._lost.add(f"vid-{session_id}")

    def tell(self, session_id: str, kind: MediaKind) -> None:
        """A fact about the session's media."""
        event = MediaEvent(ref=f"vid-{session_id}", session_id=session_id, kind=kind, at_ms=self.clock.now_ms())
        self._send.send_nowait(event)


class BreakableRelations:
    """A graph that can be out of reach. Writes that ride on a store's commit go to the graph behind it."""

    def __init__(self, graph: Relations) -> None:
        self._graph = graph
        self.is_down = False

    def _look(self) -> Relations:
        if self.is_down:
            raise AuthzUnavailableError("the graph is down")
        return self._graph

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        return await self._look().write(updates, requires=requires)

    @property
    def is_external(self) -> bool:
        return self.is_down or self._graph.is_external  # only a separate graph can be down while the store answers

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        return await self._look().stage(updates)

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        return await self._look().check(resource, relation, subject, at_least=at_least)

    async def read(
        self,
        *,
        resource_type: str,
        resource_id: str | None = None,
        subject: ObjectRef | None = None,
        at_least: str | None = None,
    ) -> tuple[RelationTuple, ...]:
        return await self._look().read(
            resource_type=resource_type, resource_id=resource_id, subject=subject, at_least=at_least
        )

    def token_for(self, revision: int) -> str:
        return self._graph.token_for(revision)
