"""A message on its way: what is asked, until when, and who waits for the answer."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, final

import trio
from outcome import Error, Value

from sightline.actors.kernel.errors import AskTimeoutError
from sightline.domain.errors import InvariantError

if TYPE_CHECKING:
    from sightline.actors.kernel.helpers import Helpers
    from sightline.actors.kernel.statistics import Counters
    from sightline.actors.kernel.timers import Timer

_reschedule = trio.lowlevel.reschedule
_SUCCEEDED = trio.lowlevel.Abort.SUCCEEDED


@final
class Envelope:
    """One message in a mailbox or in a turn.

    Attributes:
        message: What was sent.
        command_id: Names the command across repeats, or None.
        enqueued_at: Kernel time (seconds, monotonic) at which it was sent.
        deadline: Kernel time after which nobody waits any more; infinite for a tell.
    """

    __slots__ = (
        "_answered",
        "_bucket",
        "_held_in",
        "_task",
        "command_id",
        "conflate_key",
        "deadline",
        "enqueued_at",
        "is_ask",
        "message",
        "origin",
        "retries",
        "timer",
        "timer_generation",
    )

    def __init__(
        self,
        message: Any,
        enqueued_at: float,
        deadline: float = inf,
        command_id: str | None = None,
        task: trio.lowlevel.Task | None = None,
    ) -> None:
        self.message = message
        self.enqueued_at = enqueued_at
        self.deadline = deadline
        self.command_id = command_id
        self.is_ask = task is not None
        self.conflate_key: object = None
        self.timer: Timer | None = None
        self.timer_generation = 0
        self.origin: Helpers | None = None
        self.retries = 0
        self._task = task
        self._answered = False
        self._bucket: dict[Envelope, Counters] | None = None
        self._held_in: dict[Envelope, None] | None = None

    def __repr__(self) -> str:
        kind = "ask" if self.is_ask else "tell"
        return f"<Envelope {kind} {type(self.message).__name__} answered={self._answered}>"

    @property
    def answered(self) -> bool:
        """Whether `reply` or `fail` was called."""
        return self._answered

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the answer right now."""
        return self._task is not None

    def reply(self, value: Any) -> None:
        """Answer the asker; without effect for a tell, or when the asker has given up.

        Raises:
            InvariantError: If this ask was answered before.
        """
        task = self._settle()
        if task is not None:
            _reschedule(task, Value(value))

    def fail(self, error: Exception) -> None:
        """Answer the asker with an exception; otherwise as `reply`."""
        task = self._settle()
        if task is not None:
            _reschedule(task, Error(error))

    def _settle(self) -> trio.lowlevel.Task | None:
        if not self.is_ask:
            return None
        if self._answered:
            message = f"{type(self.message).__name__} was answered twice"
            raise InvariantError(message)
        self._answered = True
        return self._release()

    def _release(self) -> trio.lowlevel.Task | None:
        """Take the waiting task out, so that it can be woken only once, and leave all lists of the unanswered."""
        if self._held_in is not None:
            del self._held_in[self]
            self._held_in = None
        task = self._task
        if task is not None:
            self._task = None
            if self._bucket is not None:
                del self._bucket[self]
                self._bucket = None
        return task

    # The kernel's own side.

    def fail_if_open(self, error: Exception) -> None:
        """Answer with an exception unless already answered."""
        if self.is_ask and not self._answered:
            self.fail(error)

    def hold_in(self, held: dict[Envelope, None]) -> None:
        """Remember where unanswered asks of earlier turns are kept, to leave it when answered."""
        held[self] = None
        self._held_in = held

    def wait_in(self, bucket: dict[Envelope, Counters], counters: Counters) -> None:
        """Enter the deadline bucket that will expire this ask."""
        bucket[self] = counters
        self._bucket = bucket

    def abandon(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        """Let the asker go because it was cancelled; the message keeps its place and its turn."""
        self._release()
        return _SUCCEEDED

    def expire(self) -> bool:
        """Wake the asker with `AskTimeoutError`; false if nobody waited."""
        task = self._release()
        if task is None:
            return False
        _reschedule(task, Error(AskTimeoutError(f"no answer to {type(self.message).__name__} in time")))
        return True
