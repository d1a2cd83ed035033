"""Supervises the actors of one kind: starts the task of each, restarts it, and removes it when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from sightline.actors.kernel.cell import Cell, Phase
from sightline.actors.kernel.errors import (
    ActorParkedError,
    OverloadedError,
    elsewhere,
    stopped,
)
from sightline.actors.kernel.mailbox import Sent
from sightline.actors.kernel.ref import Ref
from sightline.actors.kernel.statistics import KindStatistics
from sightline.actors.kernel.waitfor import turn_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sightline.actors.kernel.deadlines import Deadlines
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.kind import Kind
    from sightline.actors.kernel.mailbox import Lane
    from sightline.actors.kernel.ref import Key, Remote, Wire
    from sightline.domain.errors import UnavailableError


@final
class Supervisor:
    """All actors of one kind.

    Args:
        start: Starts a task in the kernel's nursery.
        accepts_asks, accepts_tells: Whether the kernel is running, and whether it is at least draining.
        owns: Whether the actor with this id may run here. Whoever gives actors up stops those that run.
        remote: Sends messages to actors that do not run here; None: they are refused.
    """

    def __init__(
        self,
        kind: Kind,
        deadlines: Deadlines,
        *,
        wire: Wire | None,
        on_ask: Callable[[Key, Envelope[object]], None] | None,
        start: Callable[[Callable[[Cell], Awaitable[None]], Cell], None],
        accepts_asks: Callable[[], bool],
        accepts_tells: Callable[[], bool],
        owns: Callable[[str], bool] | None = None,
        remote: Remote | None = None,
    ) -> None:
        self.kind = kind
        self.name = kind.name
        self.counters = kind.counters
        self.now = kind.now
        self.deadlines = deadlines
        self.wire = wire
        self.on_ask = on_ask
        self.cells: dict[str, Cell] = {}
        self._start = start
        self._accepts_asks = accepts_asks
        self._accepts_tells = accepts_tells
        self._owns = owns
        self._remote = remote

    # Delivering.

    def takes(self, actor_id: str) -> bool:
        """Whether new messages for the actor are handled here."""
        return self._owns is None or self._owns(actor_id)

    def post(self, actor_id: str, envelope: Envelope[object], lane: Lane, *, is_bounded: bool = True) -> Sent:
        """Put a message into the actor's mailbox, or send it to the server that owns the actor.

        Starts the actor if it is not in memory. A message of a timer (not bounded) stays here.
        """
        if self._remote is not None and is_bounded and self._owns is not None and not self._owns(actor_id):
            return self._remote.forward(self.name, actor_id, envelope, lane)
        if not self._accepts_tells():
            if not envelope.is_ask:
                self.kind.dead_letter(actor_id, envelope, "stopped")
            return Sent.STOPPED
        cell = self.cells.get(actor_id)
        if cell is None or cell.phase is Phase.LEFT:
            if self._owns is not None and not self._owns(actor_id):
                if not envelope.is_ask:
                    self.kind.dead_letter(actor_id, envelope, "elsewhere")
                return Sent.ELSEWHERE
            cell = self._add(actor_id)
        return cell.admit(envelope, lane, is_bounded=is_bounded)

    def post_ask(self, actor_id: str, envelope: Envelope[object], lane: Lane) -> Sent:
        """As `post`, but refused once the kernel drains."""
        return self.post(actor_id, envelope, lane) if self._accepts_asks() else Sent.STOPPED

    def refusal(self, actor_id: str, sent: Sent) -> UnavailableError:
        """The error for an ask that was not admitted."""
        if sent is Sent.PARKED:
            return ActorParkedError(self.cells[actor_id].reason or "")
        if sent is Sent.OVERLOADED:
            return OverloadedError(f"the mailbox of {self.name}/{actor_id} is full")
        if sent is Sent.ELSEWHERE:
            return elsewhere(self.name, actor_id)
        return stopped(self.name, actor_id)

    # Supervising.

    async def _supervise(self, cell: Cell) -> None:
        """The task of one actor: run lives until it is passivated, stopped or parked."""
        turn_of.set(cell.ref.key)
        try:
            while await cell.live():
                pass
        finally:
            cell.end()
            if cell.phase is not Phase.PARKED:
                self._forget(cell)

    def _add(self, actor_id: str) -> Cell:
        """Start the task of an actor."""
        ref: Ref[object] = Ref(self, actor_id)
        cell = self.cells[actor_id] = Cell(self.kind, ref)
        self._start(self._supervise, cell)
        return cell

    def _forget(self, cell: Cell) -> None:
        """Remove an actor from memory; its next message starts it again."""
        if self.cells.get(cell.ref.id) is cell:
            del self.cells[cell.ref.id]

    def passivate_if_idle(self, cell: Cell, idle_since: float) -> None:
        """Passivate an actor that has been idle since `idle_since` and agrees."""
        if cell.last_active <= idle_since and cell.is_quiet and cell.may_passivate():
            cell.leave()  # no await since the check: no message can be lost

    def unpark(self, actor_id: str) -> None:
        """Forget that an actor is parked; its next message starts it with a clean record."""
        cell = self.cells.get(actor_id)
        if cell is not None and cell.phase is Phase.PARKED:
            self._forget(cell)

    def retry_if_due(self, cell: Cell) -> None:
        """Load a parked actor again whose pause is over; it keeps its count of parkings."""
        is_due = cell.phase is Phase.PARKED and cell.retry_at is not None and cell.retry_at <= self.now()
        # It may have been revived, or moved to another server, since the sweep began.
        if is_due and self.cells.get(cell.id) is cell and self.takes(cell.id):
            following = self._add(cell.id)
            following.parkings = cell.parkings + 1
            following.was_active = True  # it was in use: if a dependency is away, the load is retried

    def statistics(self) -> KindStatistics:
        """Copy the counts; looks once at each actor in memory, and longer only at those that are not at rest."""
        now = self.now()
        cells = [cell for cell in self.cells.values() if not cell.is_resting]
        resting = len(self.cells) - len(cells)
        cells = [cell for cell in cells if cell.phase is not Phase.LEFT]
        depths = [len(cell.mailbox) for cell in cells]
        oldest = min((e.enqueued_at for cell in cells for e in cell.mailbox), default=now)
        counters = self.counters
        return KindStatistics(
            active=resting + len(cells),
            running=sum(cell.is_running for cell in cells),
            helpers=sum(cell.helpers for cell in cells),
            parked={cell.id: cell.reason or "" for cell in cells if cell.phase is Phase.PARKED},
            retrying={cell.id: cell.reason for cell in cells if cell.phase is Phase.LOADING and cell.reason},
            depth=sum(depths),
            depth_max=max(depths, default=0),
            oldest_wait_s=now - oldest,
            handled=counters.handled,
            overloaded=counters.overloaded,
            conflated=counters.conflated,
            expired=counters.expired,
            ask_timeouts=counters.ask_timeouts,
            dead_letters=counters.dead_letters,
            activations=counters.activations,
            passivations=counters.passivations,
            restarts=counters.restarts,
            reloads=counters.reloads,
            load_failures=counters.load_failures,
            wait=counters.wait.freeze(),
            handle=counters.handle.freeze(),
        )
