"""One kind of actor: its factory, its limits, its cells and its counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from sightline.actors.kernel.cell import Cell, Phase
from sightline.actors.kernel.errors import ActorParkedError, ActorStoppedError, OverloadedError
from sightline.actors.kernel.mailbox import Sent
from sightline.actors.kernel.ref import Ref
from sightline.actors.kernel.statistics import Counters, KindStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.actors.kernel.behaviour import Factory
    from sightline.actors.kernel.deadlines import Deadlines
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.mailbox import Lane
    from sightline.actors.kernel.registry import Registry
    from sightline.actors.kernel.waitfor import WaitForGraph
    from sightline.actors.kernel.wire import Wire
    from sightline.domain.errors import UnavailableError


DEAD_LETTERS_LOGGED = 100


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KindOptions:
    """Limits of one kind of actor.

    Attributes:
        data_max: Messages that may wait in the data lane.
        control_max: Messages that may wait in the control lane; a guard against a runaway sender.
        helpers_max: Pieces of spawned work under way at once.
        idle_s: An actor that heard nothing for so long and may be passivated is.
        restarts_max, restart_window_s: One crash more than this within the window parks the actor.
        backoff_first_ms, backoff_max_ms: Pause before a restart; doubles, with jitter of half to one and a half.
        tell_retries_max: How often a tell is handled again after a turn that surely or possibly wrote nothing.
    """

    data_max: int = 64
    control_max: int = 256
    helpers_max: int = 64
    idle_s: float = 120.0
    restarts_max: int = 3
    restart_window_s: float = 5.0
    backoff_first_ms: int = 100
    backoff_max_ms: int = 5_000
    tell_retries_max: int = 8


@final
class Kind:
    """All actors of one kind."""

    def __init__(self, registry: Registry, name: str, factory: Factory, options: KindOptions) -> None:
        self.registry = registry
        self.name = name
        self.factory = factory
        self.options = options
        self.cells: dict[str, Cell] = {}
        self.counters = Counters()
        self.now: Callable[[], float] = registry.now
        self.deadlines: Deadlines = registry.deadlines
        self.wait_for: WaitForGraph | None = registry.wait_for
        self.wire: Wire | None = registry.wire

    def post(self, actor_id: str, envelope: Envelope, lane: Lane, *, always: bool = False) -> Sent:
        """Put a message into the actor's mailbox, bringing the actor into memory if needed."""
        if not self.registry.accepts_work:
            if not envelope.is_ask:
                self.dead_letter(actor_id, envelope, "stopped")
            return Sent.STOPPED
        cell = self.cells.get(actor_id)
        if cell is None:
            cell = self.cells[actor_id] = Cell(self, Ref(self, actor_id))
        return cell.admit(envelope, lane, always=always)

    def post_from_outside(self, actor_id: str, envelope: Envelope, lane: Lane) -> Sent:
        """As `post`, but refused once intake has stopped."""
        if not self.registry.accepts_asks:
            return Sent.STOPPED
        return self.post(actor_id, envelope, lane)

    def refusal(self, actor_id: str, sent: Sent) -> UnavailableError:
        """The error that tells an asker why its message was not admitted."""
        if sent is Sent.PARKED:
            return ActorParkedError(self.cells[actor_id].parked_reason or "")
        if sent is Sent.OVERLOADED:
            return OverloadedError(f"mailbox of {self.name}/{actor_id} is full")
        return ActorStoppedError(f"{self.name}/{actor_id} is stopping")

    def dead_letter(self, actor_id: str, envelope: Envelope, reason: str) -> None:
        """Count a message that nobody will handle and nobody waits for; log the first ones, then every hundredth."""
        self.counters.dead_letters += 1
        total = self.counters.dead_letters
        if total > DEAD_LETTERS_LOGGED and total % DEAD_LETTERS_LOGGED:
            return
        self.registry.log.warning(
            "dead_letter",
            kind=self.name,
            id=actor_id,
            message=type(envelope.message).__name__,
            reason=reason,
            total=total,
        )

    def forget(self, cell: Cell) -> None:
        """Drop a cell that nothing refers to; the next message makes a new one."""
        if self.cells.get(cell.ref.id) is cell:
            del self.cells[cell.ref.id]

    def passivate_if_idle(self, cell: Cell, idle_since: float) -> None:
        """Drop the cell if it did nothing since `idle_since` and agrees."""
        if cell.last_active <= idle_since and cell.is_quiet() and cell.agrees_to_passivate():
            self.passivate(cell)

    def passivate(self, cell: Cell) -> None:
        """Drop a quiet cell. There is no await between the check and this: no message can be lost."""
        self.counters.passivations += 1
        self.forget(cell)

    def statistics(self) -> KindStatistics:
        """Copy the counts; walks over all cells."""
        now = self.now()
        cells = list(self.cells.values())
        depths = [len(cell.mailbox) for cell in cells]
        oldest = min((e.enqueued_at for cell in cells for e in cell.mailbox), default=now)
        counters = self.counters
        return KindStatistics(
            active=len(cells),
            running=sum(cell.running for cell in cells),
            parked={cell.ref.id: cell.parked_reason or "" for cell in cells if cell.phase is Phase.PARKED},
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
