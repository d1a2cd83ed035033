"""References to actors: the only way to send a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Never, Protocol, TypeAlias, TypeVar, cast, final

import trio

from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.mailbox import Lane, Sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.actors.kernel.deadlines import Deadlines
    from sightline.actors.kernel.message import Command, KindName
    from sightline.actors.kernel.statistics import Counters
    from sightline.domain.errors import UnavailableError

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")
S = TypeVar("S")

Key: TypeAlias = tuple[str, str]
"""Kind and id of an actor."""

_current_task = trio.lowlevel.current_task
_wait = trio.lowlevel.wait_task_rescheduled


class Post(Protocol):
    """Delivers messages to the actors of one kind."""

    name: str
    now: Callable[[], float]
    counters: Counters
    deadlines: Deadlines
    wire: Wire | None
    on_ask: Callable[[Key, Envelope[object]], None] | None

    def post(self, actor_id: str, envelope: Envelope[object], lane: Lane, *, is_bounded: bool = True) -> Sent:
        """Put a message into the actor's mailbox."""
        ...

    def post_ask(self, actor_id: str, envelope: Envelope[object], lane: Lane) -> Sent:
        """Put an ask into the actor's mailbox unless the kernel is draining."""
        ...

    def refusal(self, actor_id: str, sent: Sent) -> UnavailableError:
        """The error for an ask that was not admitted."""
        ...


@final
class Ref(Generic[M_contra]):
    """A name for one actor that accepts `M_contra`, in memory or not. Cheap; keep it or make a new one."""

    __slots__ = ("_post", "id")

    def __init__(self, post: Post, actor_id: str) -> None:
        self._post = post
        self.id = actor_id

    def __repr__(self) -> str:
        return f"<Ref {self._post.name}/{self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> Key:
        """Kind and id."""
        return self._post.name, self.id

    def tell(self, message: M_contra, *, lane: Lane = Lane.DATA, conflate_key: object = None) -> Sent:
        """Send without waiting for an answer; never blocks.

        Args:
            lane: CONTROL is handled before DATA. Each lane has a bound and refuses messages when full.
            conflate_key: In a full data lane this message replaces the oldest one with the same key.

        Returns:
            Whether the message was admitted. A message that was not admitted has no effect.
        """
        post = self._post
        envelope = Envelope(message, post.now())
        envelope.conflate_key = conflate_key
        if post.wire is not None:
            return post.wire.carry(self, envelope, lane)
        return post.post(self.id, envelope, lane)

    async def ask(
        self,
        command: Command[M_contra, R],
        *,
        timeout_s: float,
        lane: Lane = Lane.DATA,
        conflate_key: object = None,
    ) -> R:
        """Send and wait for the answer.

        Raises:
            OverloadedError, SupersededError, ActorStoppedError, ActorParkedError, ActorElsewhereError: The message had
                no effect.
            AskTimeoutError, TurnLostError: The outcome is unknown.
            Exception: The error that the actor passed to `envelope.fail`.

        Cancellation: the actor still handles the message; only the answer is lost.
        """
        post = self._post
        now = post.now()
        envelope = Envelope(command, now, now + timeout_s, _current_task())
        envelope.conflate_key = conflate_key
        sent = post.post_ask(self.id, envelope, lane)
        if sent is not Sent.ADMITTED and sent is not Sent.CONFLATED:
            raise post.refusal(self.id, sent)
        post.deadlines.add(envelope, post.counters)
        if post.on_ask is not None:
            post.on_ask(self.key, envelope)
        return cast("R", await _wait(envelope.abandon))  # `reply` takes an R for this command

    def receive(self, envelope: Envelope[object], lane: Lane) -> Sent:
        """Take a tell from a wire."""
        return self._post.post(self.id, envelope, lane)

    def deliver(self, envelope: Envelope[object], lane: Lane) -> bool:
        """Put a message of the kernel into the mailbox, whatever its bound; false if it is not admitted."""
        return self._post.post(self.id, envelope, lane, is_bounded=False) is Sent.ADMITTED


AnyRef: TypeAlias = Ref[Never]
"""A ref to an actor of any kind, which cannot be used to send."""


class Wire(Protocol):
    """Carries every tell between actors in a simulation that delays or duplicates them. Asks and timers bypass it."""

    def carry(self, ref: AnyRef, envelope: Envelope[object], lane: Lane) -> Sent:
        """Bring a message to `ref.receive`, now or later, once or more often."""
        ...


class Remote(Protocol):
    """Sends messages to actors that another server owns."""

    def forward(self, kind: str, actor_id: str, envelope: Envelope[object], lane: Lane) -> Sent:
        """Send a message to the actor's owner. An ask is answered by `envelope.reply` or `envelope.fail`."""
        ...


class Directory(Protocol):
    """Finds actors of every kind."""

    def ref(self, kind: KindName[M, S], actor_id: str) -> Ref[M]:
        """A ref to the actor, which need not be in memory; its first message loads it."""
        ...

    def peek(self, kind: KindName[M, S], actor_id: str) -> S | None:
        """The snapshot that the actor last published; None while it is not in memory, loading, parked or not owned."""
        ...
