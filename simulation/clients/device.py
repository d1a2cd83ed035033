"""A simulated operator with its device: sends heartbeats, starts, publishes, and misbehaves as devices do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from sightline.actors.types import Answer, Caller, HeartbeatReport, NewWorkspace, SessionListing
from sightline.domain.errors import OutcomeUnknownError, RefusedError, SightlineError, UnavailableError
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, Workspace, WorkspaceRole
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.value import Value
from sightline.ports.store import SessionView
from sightline.ports.video import MediaKind
from simulation.clients.client import Client

if TYPE_CHECKING:
    from sightline.actors.service.broker import Broker
    from simulation.world import World

CITY_LAT: Final = 52.52
CITY_LNG: Final = 13.405
RADIUS_M: Final = 20_000.0
IDLE_LOOK_S: Final = 60.0
FAR_DEGREES: Final = 0.02
"""Degrees for about two kilometres: outside every fence."""


@final
class Habits(Value, kw_only=True):
    """How a device behaves. Probabilities are per heartbeat or per occasion.

    Attributes:
        beat_s: Seconds between heartbeats in a session; `idle_beat_s` while waiting.
        looks_s: Mean seconds between reads of its assignments; None: informed at once, as by a live stream.
        flaps: Sends nothing for up to `flap_s` seconds.
        jumps: Reports one fix far away; `wanders`: leaves the fence for a while.
        mumbles: Reports a fix that is too inaccurate to prove a position.
        ignores: Lets an assignment expire; `drops`: cancels or declines it; `hangs_up`: ends a session.
        grabs: Accepts an open request, even while it has a session.
        stutters: Stops publishing for up to `flap_s` seconds.
        duplicates: Sends a heartbeat twice.
    """

    beat_s: float = 2.0
    idle_beat_s: float = 2.0
    looks_s: float | None = 1.5
    flaps: float = 0.0
    flap_s: float = 30.0
    jumps: float = 0.0
    wanders: float = 0.0
    mumbles: float = 0.0
    ignores: float = 0.0
    drops: float = 0.0
    hangs_up: float = 0.0
    grabs: float = 0.0
    stutters: float = 0.0
    duplicates: float = 0.0


STEADY: Final = Habits()


@final
class Device:
    """A simulated operator. It runs as several tasks of the world."""

    def __init__(self, world: World, name: str, habits: Habits) -> None:
        self.world = world
        self.name = name
        self.habits = habits
        self.rng = world.rng(f"device/{name}")
        self.client = Client(world, name)
        self.live_session: str | None = None
        self._sequence = 0
        self._away_until = 0.0
        self._ignored: dict[str, bool] = {}

    async def run(self) -> None:
        """Sign up, go ONLINE and work until the world ends."""
        await self.sign_up()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat)
            nursery.start_soon(self._work)
            nursery.start_soon(self._publish)

    async def sign_up(self) -> None:
        """Create the workspace and go ONLINE."""
        self.client.workspace_id = await create_workspace(self.world, self.name, WorkspaceRole.SUPPLIER)
        patch = Patch(
            availability=Availability.ONLINE,
            coverage_lat=CITY_LAT,
            coverage_lng=CITY_LNG,
            coverage_radius_m=RADIUS_M,
        )
        await self.patch(patch)

    async def patch(self, patch: Patch) -> None:
        """Change the workspace; a PATCH may be repeated."""
        workspace_id = self.client.workspace_id
        caller = Caller(workspace_id=workspace_id)
        for _ in range(20):
            try:
                await self.world.call("a patch", lambda broker: broker.patch_workspace(workspace_id, caller, patch))
            except RefusedError:
                return
            except SightlineError:
                await trio.sleep(0.5)
            else:
                return

    # Heartbeats.

    async def _beat(self) -> None:
        while True:
            if self.rng.random() < self.habits.flaps:
                await trio.sleep(self.rng.random() * self.habits.flap_s)
            await self.send_heartbeat()
            await trio.sleep(self.habits.beat_s if self.live_session else self.habits.idle_beat_s)

    async def send_heartbeat(self) -> bool:
        """Send a heartbeat; repeat the same sequence number while the outcome is unknown."""
        self._sequence += 1
        report = self._report(self._sequence)
        workspace_id = self.client.workspace_id
        for _ in range(3):
            known = self._known_beat()
            try:
                await self.world.call(
                    "a heartbeat", lambda broker: broker.heartbeat(workspace_id, report), by=self.name
                )
            except RefusedError as error:
                if error.refusal.detail == "location:sequence":
                    return False  # an earlier try was accepted after all
                self.world.history.note("beat refused", self.name, error.refusal.detail)
                return False
            except (OutcomeUnknownError, UnavailableError):
                await trio.sleep(0.2)
                continue
            self.world.history.heartbeat_acknowledged(workspace_id, report.sequence, known=known)
            if self.rng.random() < self.habits.duplicates:
                await self._send_again(report)
            return True
        return False

    async def _send_again(self, report: HeartbeatReport) -> None:
        workspace_id, known = self.client.workspace_id, self._known_beat()
        try:
            await self.world.call("a repeated heartbeat", lambda broker: broker.heartbeat(workspace_id, report))
        except SightlineError:
            return
        self.world.history.heartbeat_acknowledged(workspace_id, report.sequence, known=known)

    def _known_beat(self) -> int:
        return self.world.history.truth.acknowledged_beats.get(self.client.workspace_id, -1)

    def _report(self, sequence: int) -> HeartbeatReport:
        habits, now = self.habits, trio.current_time()
        if now >= self._away_until and self.rng.random() < habits.wanders:
            self._away_until = now + self.rng.random() * 60
        is_away = now < self._away_until or self.rng.random() < habits.jumps
        accuracy_m = 400.0 if self.rng.random() < habits.mumbles else 10.0
        if is_away or accuracy_m > 100:
            self.world.history.truth.odd_fix_ms[self.client.workspace_id] = self.world.clock.now_ms()
        lat = CITY_LAT + (FAR_DEGREES if is_away else 0.0)
        return HeartbeatReport(lat=lat, lng=CITY_LNG, sequence=sequence, accuracy_m=accuracy_m)

    # Work.

    async def _work(self) -> None:
        while True:
            if self.habits.looks_s is None:
                await self.world.history.until_news_of(self.client.workspace_id, patience_s=IDLE_LOOK_S)
                await trio.sleep(self.rng.random())
            else:
                await trio.sleep(self.habits.looks_s * (0.5 + self.rng.random()))
            for session in await self._mine():
                await self._attend(session)
            if self.rng.random() < self.habits.grabs:
                await self._grab()

    async def _mine(self) -> list[SessionStatus]:
        states = frozenset({SessionState.ASSIGNED, SessionState.LIVE})
        listing = SessionListing(view=SessionView.OPERATOR, limit=20, states=states)
        workspace_id = self.client.workspace_id
        page = await self.client.read(lambda broker: broker.reads.list_sessions(workspace_id, listing))
        sessions = page.items if page is not None else []
        live = [session.terms.id for session in sessions if session.state is SessionState.LIVE]
        if page is not None:
            self.live_session = live[0] if live else None
        return sessions

    async def _attend(self, session: SessionStatus) -> None:
        habits, session_id = self.habits, session.terms.id
        if session.state is SessionState.LIVE:
            if self.rng.random() < habits.hangs_up:
                await self.client.end(session_id)
        elif self.rng.random() < habits.drops:
            if self.rng.random() < 0.5:
                await self.client.decline(session_id)
            else:
                await self.client.cancel_all()
        elif not self._ignores(session_id):
            reply = await self.client.start(session_id)
            if reply.outcome == "ok":
                self.live_session = session_id

    def _ignores(self, session_id: str) -> bool:
        """Decide once per assignment whether to ignore it."""
        if session_id not in self._ignored:
            self._ignored[session_id] = self.rng.random() < self.habits.ignores
        return self._ignored[session_id]

    async def _grab(self) -> None:
        listing = SessionListing(view=SessionView.OPEN, limit=5)
        workspace_id = self.client.workspace_id
        page = await self.client.read(lambda broker: broker.reads.list_sessions(workspace_id, listing))
        if page is not None and page.items:
            await self.client.accept(self.rng.choice(page.items).terms.id)

    async def _publish(self) -> None:
        while True:
            await trio.sleep(1 if self.live_session else self.habits.idle_beat_s / 2)
            if self.live_session is not None and self.rng.random() < self.habits.stutters:
                self._leave()
                await trio.sleep(self.rng.random() * self.habits.flap_s)
            else:
                self.show_frames()

    def _leave(self) -> None:
        if self.live_session is not None:
            self.world.publish(self.live_session, MediaKind.DISCONNECTED)
            self.world.history.truth.odd_fix_ms[self.client.workspace_id] = self.world.clock.now_ms()

    def show_frames(self) -> None:
        """Publish for a moment, if a session is LIVE and a server accepts it."""
        session_id = self.live_session
        if session_id is not None and self.world.publish(session_id, MediaKind.FRAMES):
            shown = self.world.history.truth.media_ms.setdefault(session_id, [])
            shown.append(self.world.clock.now_ms())


async def create(new: NewWorkspace, broker: Broker) -> Answer[Workspace]:
    """Create a workspace whose wallet is taken as proved."""

    async def prove() -> NewWorkspace:
        return new

    return await broker.create_workspace(prove)


async def create_workspace(world: World, name: str, role: WorkspaceRole) -> str:
    """Create a workspace; if the answer was lost and the slug is now in use, retry with another slug."""
    rng = world.rng(f"sign-up/{name}")
    while True:
        slug = f"{name}-{rng.randrange(10**6)}"
        new = NewWorkspace(wallet_address=f"0x{rng.getrandbits(160):040x}", slug=slug, name=name, roles=(role,))
        try:
            answer = await world.call("a sign-up", partial(create, new))
        except SightlineError:
            await trio.sleep(0.5)
        else:
            return answer.value.id
