"""The only way to reach an actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import trio

from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.mailbox import Lane, Sent

if TYPE_CHECKING:
    from sightline.actors.kernel.kind import Kind
    from sightline.actors.kernel.waitfor import Key

_current_task = trio.lowlevel.current_task
_wait = trio.lowlevel.wait_task_rescheduled


@final
class Ref:
    """A name for one actor, whether it is in memory or not. Cheap; keep it or make a new one."""

    __slots__ = ("_kind", "id", "key")

    def __init__(self, kind: Kind, actor_id: str) -> None:
        self._kind = kind
        self.id = actor_id
        self.key: Key = (kind.name, actor_id)

    def __repr__(self) -> str:
        return f"<Ref {self._kind.name}/{self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def kind(self) -> str:
        """The name of the actor's kind."""
        return self._kind.name

    @property
    def snapshot(self) -> Any | None:
        """What the actor last published; None while it is not in memory, loading, or parked."""
        cell = self._kind.cells.get(self.id)
        return cell.snapshot if cell is not None else None

    def tell(self, message: Any, *, lane: Lane = Lane.DATA, conflate_key: object = None) -> Sent:
        """Send without waiting for an answer; never blocks.

        Args:
            lane: CONTROL overtakes DATA and is admitted up to the kind's `control_max`; DATA is refused when full.
            conflate_key: In a full data lane the oldest message with this key makes room for this one.

        Returns:
            What became of it. A message that is not admitted has no effect.
        """
        kind = self._kind
        envelope = Envelope(message, kind.now())
        envelope.conflate_key = conflate_key
        if kind.wire is not None:
            return kind.wire.carry(self, envelope, lane)
        return kind.post(self.id, envelope, lane)

    async def ask(
        self,
        message: Any,
        *,
        timeout_s: float,
        command_id: str | None = None,
        lane: Lane = Lane.DATA,
        conflate_key: object = None,
    ) -> Any:
        """Send and wait for the answer.

        Raises:
            OverloadedError, SupersededError, ActorStoppedError, ActorParkedError: The message had no effect.
            AskTimeoutError, TurnLostError: The outcome is unknown.
            Exception: Whatever the actor passed to `envelope.fail`.

        Cancellation: the message stays sent and has its turn; only the answer is lost.
        """
        kind = self._kind
        now = kind.now()
        envelope = Envelope(message, now, now + timeout_s, command_id, _current_task())
        envelope.conflate_key = conflate_key
        sent = kind.post_from_outside(self.id, envelope, lane)
        if sent is not Sent.ADMITTED and sent is not Sent.CONFLATED:
            raise kind.refusal(self.id, sent)
        kind.deadlines.add(envelope, kind.counters)
        if kind.wait_for is None:
            return await _wait(envelope.abandon)
        try:
            with kind.wait_for.waiting(self.key):
                return await _wait(envelope.abandon)
        finally:
            envelope.abandon(None)

    def receive(self, envelope: Envelope, lane: Lane) -> Sent:
        """Take a tell from a wire."""
        return self._kind.post(self.id, envelope, lane)

    def deliver(self, envelope: Envelope, lane: Lane) -> bool:
        """Put a message of the kernel itself into the mailbox, whatever its bound; false if nobody takes it."""
        return self._kind.post(self.id, envelope, lane, always=True) is Sent.ADMITTED
