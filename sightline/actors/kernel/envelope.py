"""A message in flight: what was sent, until when its answer counts, and who waits for the answer."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio
from outcome import Error, Value

from sightline.actors.kernel.errors import AskTimeoutError
from sightline.actors.kernel.message import Command, M_co
from sightline.domain.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.actors.kernel.statistics import Counters

R = TypeVar("R")

_reschedule = trio.lowlevel.reschedule
_SUCCEEDED = trio.lowlevel.Abort.SUCCEEDED


@final
class Envelope(Generic[M_co]):
    """One message in a mailbox or in a turn.

    Attributes:
        message: What was sent.
        enqueued_at: Kernel time (seconds, monotonic) at which it was sent.
        deadline: Kernel time after which the asker stops waiting; infinite for a tell.
        conflate_key: In a full data lane a newer message with this key replaces this one.
        claim: Of a timer's message: whether the timer still counts. None for other messages.
        life: Of a helper's outcome: the nursery of the life that started the helper. None for other messages.
        retries: How often the message was put back after a failed turn.
        answered: Whether `reply` or `fail` was called.
    """

    __slots__ = (
        "__weakref__",
        "_bucket",
        "_held_in",
        "_task",
        "answered",
        "claim",
        "conflate_key",
        "deadline",
        "enqueued_at",
        "is_ask",
        "life",
        "message",
        "retries",
    )

    def __init__(
        self, message: M_co, enqueued_at: float, deadline: float = inf, task: trio.lowlevel.Task | None = None
    ) -> None:
        self.message = message
        self.enqueued_at = enqueued_at
        self.deadline = deadline
        self.is_ask = task is not None
        self.conflate_key: object = None
        self.claim: Callable[[], bool] | None = None
        self.life: trio.Nursery | None = None
        self.retries = 0
        self._task = task
        self.answered = False
        self._bucket: dict[Envelope[object], Counters] | None = None
        self._held_in: dict[Envelope[object], None] | None = None

    def __repr__(self) -> str:
        kind = "ask" if self.is_ask else "tell"
        return f"<Envelope {kind} {type(self.message).__name__} answered={self.answered}>"

    @property
    def awaited(self) -> bool:
        """Whether the asker still waits for the answer."""
        return self._task is not None

    def reply(self, command: Command[object, R], value: R) -> None:
        """Answer the asker; no effect for a tell or when the asker has given up.

        Args:
            command: This envelope's message; it determines the type of `value`.

        Raises:
            InvariantError: If this ask was answered before.
        """
        assert command is self.message, "an envelope answers its own message"
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
        if self.answered:
            message = f"{type(self.message).__name__} was answered twice"
            raise InvariantError(message)
        self.answered = True
        return self._release()

    def _release(self) -> trio.lowlevel.Task | None:
        """Take out the waiting task, so that it is woken only once, and leave all lists of unanswered asks."""
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

    # Used by the kernel only.

    def fail_if_open(self, error: Exception) -> None:
        """Answer with an exception unless already answered."""
        if self.is_ask and not self.answered:
            self.fail(error)

    def acknowledge(self) -> None:
        """Answer the kernel's own ask, which has no value."""
        task = self._settle()
        if task is not None:
            _reschedule(task, Value(None))

    def hold_in(self, held: dict[Envelope[object], None]) -> None:
        """Enter the list of asks that a later turn answers; leaves it when answered."""
        held[self] = None
        self._held_in = held

    def wait_in(self, bucket: dict[Envelope[object], Counters], counters: Counters) -> None:
        """Enter the deadline bucket that expires this ask."""
        bucket[self] = counters
        self._bucket = bucket

    def abandon(self, _raise_cancel: object = None) -> trio.lowlevel.Abort:
        """Release the cancelled asker; the message keeps its place and has its turn."""
        self._release()
        return _SUCCEEDED

    def expire(self) -> bool:
        """Wake the asker with `AskTimeoutError`; false if it no longer waits."""
        task = self._release()
        if task is None:
            return False
        _reschedule(task, Error(AskTimeoutError(f"no answer to {type(self.message).__name__} in time")))
        return True
