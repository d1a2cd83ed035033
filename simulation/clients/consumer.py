"""A simulated consumer: requests a session, waits, watches, and may end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from sightline.actors.types import NewSession
from sightline.domain.errors import SightlineError
from sightline.domain.operator.model import WorkspaceRole
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.value import Value
from simulation.clients.client import Client
from simulation.clients.device import CITY_LAT, CITY_LNG, create_workspace

if TYPE_CHECKING:
    from simulation.world import World


@final
class Wishes(Value, kw_only=True):
    """How a consumer behaves. Probabilities are per session.

    Attributes:
        pause_s: Longest time between two sessions, in seconds; the consumer stops after `sessions_max` sessions.
        leases: Asks for a consumer lease; the polls renew it.
        quotes: Takes a quote first; `withdraws`: cancels while waiting; `hangs_up`: ends before the maximum duration.
        forgets: Never looks at the session again after the request.
        poll_s: Seconds between reads of a session.
    """

    pause_s: float = 5.0
    sessions_max: int = 1_000_000
    duration_s: tuple[int, int] = (10, 60)
    wait_s: tuple[int, int] = (5, 40)
    leases: float = 0.2
    quotes: float = 0.3
    withdraws: float = 0.1
    hangs_up: float = 0.5
    forgets: float = 0.0
    poll_s: float = 2.0


@final
class Consumer:
    """A simulated consumer."""

    def __init__(self, world: World, name: str, wishes: Wishes) -> None:
        self.world = world
        self.name = name
        self.wishes = wishes
        self.rng = world.rng(f"consumer/{name}")
        self.client = Client(world, name)

    async def run(self) -> None:
        """Sign up and request sessions until the quiet phase."""
        await self.sign_up()
        for _ in range(self.wishes.sessions_max):
            if self.world.is_over:
                return
            session_id = await self.request()
            is_forgotten = self.wishes.forgets > 0 and self.rng.random() < self.wishes.forgets
            if session_id is not None and not is_forgotten:
                await self.see_through(session_id)
            await trio.sleep(self.rng.random() * self.wishes.pause_s)

    async def sign_up(self) -> None:
        """Create the workspace."""
        self.client.workspace_id = await create_workspace(self.world, self.name, WorkspaceRole.CONSUMER)

    async def request(self) -> str | None:
        """Request a session. Returns its id, or None if it was refused."""
        wishes, duration_s = self.wishes, self.rng.randint(*self.wishes.duration_s)
        quote_id = await self._quote(duration_s) if self.rng.random() < wishes.quotes else None
        new = NewSession(
            lat=CITY_LAT,
            lng=CITY_LNG,
            max_duration_s=duration_s,
            wait_timeout_s=self.rng.randint(*wishes.wait_s),
            quote_id=quote_id,
            radius_m=500,
            instructions=None,
            metadata_json=None,
            consumer_lease_s=15 if self.rng.random() < wishes.leases else None,
        )
        return (await self.client.create(new)).session_id

    async def _quote(self, duration_s: int) -> str | None:
        workspace_id = self.client.workspace_id
        try:
            answer = await self.world.call(
                "a quote", lambda broker: broker.pricing.quote(workspace_id, CITY_LAT, CITY_LNG, duration_s)
            )
        except SightlineError:
            return None
        return answer.value.id

    async def see_through(self, session_id: str) -> None:
        """Dispatch, watch and possibly end the session, until it is over or the quiet phase begins."""
        hang_up_at = None
        while not self.world.is_over:
            session = await self._look(session_id)
            match session.state if session is not None else None:
                case "REQUESTED":
                    if self.rng.random() < self.wishes.withdraws:
                        await self.client.cancel(session_id)
                    else:
                        await self.client.dispatch(session_id)
                case "LIVE":
                    if hang_up_at is None:
                        early = self.rng.random() < self.wishes.hangs_up
                        hang_up_at = trio.current_time() + (self.rng.random() * 40 if early else 10_000)
                    if trio.current_time() >= hang_up_at:
                        await self.client.end(session_id)
                case "ENDED" | "CANCELLED" | "EXPIRED":
                    return
                case _:
                    pass
            await trio.sleep(self.wishes.poll_s * (0.5 + self.rng.random()))

    async def _look(self, session_id: str) -> SessionStatus | None:
        workspace_id, life = self.client.workspace_id, self.world.life
        answer = await self.client.read(lambda broker: broker.reads.read_session(session_id, workspace_id))
        if answer is None:
            return None
        session = answer.value
        if session.state is SessionState.LIVE and life == self.world.life:
            self.world.history.read_live(life, session_id, session.clean_seconds)
        return session
