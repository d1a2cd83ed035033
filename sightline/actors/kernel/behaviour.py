"""What the kernel needs from an actor (`Behaviour`) and what it offers to one (`Context`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from sightline.actors.kernel.mailbox import Lane

if TYPE_CHECKING:
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.ref import Directory, Ref
    from sightline.actors.kernel.timers import Timers
    from sightline.ports.clock import Clock

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


class Rng(Protocol):
    """The part of random.Random that the kernel needs."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class Behaviour(Protocol[M_contra, S_co]):
    """The memory and rules of one actor; the factory makes a new one for every life.

    Exceptions that escape from `load` and `handle` are treated as `supervision` says.
    """

    async def load(self) -> None:
        """Read the state from the store and set the timers; called once, before the first turn."""
        ...

    async def handle(self, envelope: Envelope[M_contra]) -> None:
        """Take one turn. An ask is answered by `envelope.reply`, in this turn or in a later one."""
        ...

    def snapshot(self) -> S_co | None:
        """A frozen view of the durable state, published after `load` and after every turn."""
        ...

    def may_passivate(self) -> bool:
        """Whether an idle actor may be removed from memory."""
        ...


class Context(Protocol[M]):
    """What the kernel offers to one actor for its life."""

    @property
    def id(self) -> str:
        """The actor's id within its kind."""
        ...

    @property
    def ref(self) -> Ref[M]:
        """The actor's own ref."""
        ...

    @property
    def registry(self) -> Directory:
        """Finds other actors."""
        ...

    @property
    def timers(self) -> Timers:
        """The timers of all actors."""
        ...

    @property
    def clock(self) -> Clock:
        """The wall clock."""
        ...

    @property
    def rng(self) -> Rng:
        """The injected source of randomness."""
        ...

    def spawn(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_value: Callable[[T], M | None],
        on_error: Callable[[Exception], M | None],
        lane: Lane = Lane.DATA,
    ) -> None:
        """Run slow work in the nursery of this life; its outcome is sent to this actor as a message.

        `on_value` or `on_error` makes the message of the outcome; None sends nothing. The message is admitted whatever
        the bound of the mailbox. A crash, a reload or a stop cancels the work, and its outcome is not delivered.

        Raises:
            InvariantError: If `KindOptions.helpers_max` helpers are running.
        """
        ...

    def take_following(self, accepts: Callable[[M], bool]) -> list[Envelope[M]]:
        """Take the asks that wait next in the data lane while `accepts` holds; the current turn must answer them."""
        ...

    def unpublish(self) -> None:
        """Publish no snapshot until the turn ends: reads then wait for the next turn."""
        ...

    def passivate(self) -> None:
        """Leave memory as soon as the mailbox is empty and no helper runs, without waiting to be idle."""
        ...


Factory: TypeAlias = Callable[[Context[M]], Behaviour[M, S]]
