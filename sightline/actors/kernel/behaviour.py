"""What an actor is to the kernel, and what the kernel is to an actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, final

from sightline.actors.kernel.mailbox import Lane

if TYPE_CHECKING:
    from sightline.actors.kernel.cell import Cell
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.ref import Ref
    from sightline.actors.kernel.registry import Registry
    from sightline.actors.kernel.timers import Timers
    from sightline.ports.clock import Clock

T = TypeVar("T")


class Rng(Protocol):
    """The part of random.Random that the kernel needs."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class Behaviour(Protocol):
    """One actor's memory and rules; a new one is made for every activation and every restart.

    What may escape from `load` and `handle`:

    - `UnavailableError`: surely nothing was written. The asker gets it; a tell is handled again after a load.
    - `OutcomeUnknownError`: it may have been written. The asker gets it; a tell is handled again after a load, which
      shows what is true.
    - `ReloadRequestedError`: see there. None of these three counts as a crash; each makes the actor load again.
    - any other Exception: a crash. The asker gets `TurnLostError`, the actor is restarted by its supervisor.
    """

    async def load(self) -> None:
        """Read the state from the store and arm the timers; called once, before the first turn."""
        ...

    async def handle(self, envelope: Envelope) -> None:
        """Take one turn. An ask is answered by `envelope.reply`, in this turn or in a later one."""
        ...

    def snapshot(self) -> object | None:
        """A frozen view of the durable state, published after `load` and after every turn."""
        ...

    def may_passivate(self) -> bool:
        """Whether the memory can be dropped when nothing has come for a while."""
        ...


Factory: TypeAlias = "Callable[[Context], Behaviour]"


@final
class Context:
    """What the kernel gives to one actor for its life in memory."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    @property
    def id(self) -> str:
        """The actor's id within its kind."""
        return self._cell.ref.id

    @property
    def ref(self) -> Ref:
        """The actor's own ref, for telling itself something and for timers."""
        return self._cell.ref

    @property
    def registry(self) -> Registry:
        """Where refs to other actors come from."""
        return self._cell.kind.registry

    @property
    def timers(self) -> Timers:
        """The heap of all timers."""
        return self._cell.kind.registry.timers

    @property
    def clock(self) -> Clock:
        """The wall clock."""
        return self._cell.kind.registry.clock

    @property
    def rng(self) -> Rng:
        """The injected source of randomness."""
        return self._cell.kind.registry.rng

    def spawn(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_value: Callable[[T], Any],
        on_error: Callable[[Exception], Any],
        lane: Lane = Lane.DATA,
    ) -> None:
        """Do slow work beside the turns; its outcome comes back as a message to this actor.

        The message is what `on_value` or `on_error` makes of the outcome; None sends nothing. It is admitted whatever
        the bound of the mailbox. A crash, a reload or a stop cancels the work, and no message of a cancelled one comes.

        Raises:
            InvariantError: If more than `KindOptions.helpers_max` are under way.
        """
        self._cell.spawn(work, on_value, on_error, lane)

    def passivate(self) -> None:
        """Leave memory as soon as the mailbox is empty and nothing is under way, without waiting to be idle."""
        self._cell.passivate_asked = True
