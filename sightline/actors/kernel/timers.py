"""Timers of all actors in one heap, driven by one task.

The common case is a deadline that every heartbeat postpones. Postponing a timer writes only its new due time; the heap
entry is moved when it reaches the top. Due times are wall-clock times in milliseconds. The task waits in kernel time,
at most `clock_check_s` at once, so it notices a step of the wall clock within that time.

A timer that was set again or cancelled is not delivered, even if its message already waits in the mailbox.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, TypeVar, final

import trio

from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.mailbox import Lane

if TYPE_CHECKING:
    from sightline.actors.kernel.ref import AnyRef, Key, Ref
    from sightline.ports.clock import Clock

M = TypeVar("M")

BURST = 256
"""Timers fired before other tasks get a chance to run."""


@final
class Timer:
    """One named timer of one actor; armed, or fired and waiting in the mailbox."""

    __slots__ = ("due_ms", "entry", "entry_ms", "generation", "lane", "message", "name", "ref")

    def __init__(self, ref: AnyRef, name: str) -> None:
        self.ref = ref
        self.name = name
        self.message: object = None
        self.lane = Lane.DATA
        self.due_ms: int | None = None
        self.entry = 0
        """Number of the heap entry that counts, 0 for none."""
        self.entry_ms = 0
        self.generation = 0


@final
class Timers:
    """Sends messages at wall-clock instants: at most one armed timer per actor and name."""

    def __init__(self, clock: Clock, *, clock_check_s: float) -> None:
        self._clock = clock
        self._clock_check_s = clock_check_s
        self._heap: list[tuple[int, int, Timer]] = []
        self._by_actor: dict[Key, dict[str, Timer]] = {}
        self._entries = 0
        self._armed = 0
        self._scope = trio.CancelScope()
        self._waiting_until_ms: float = -inf

    def __len__(self) -> int:
        """Number of armed timers."""
        return self._armed

    @property
    def heap_size(self) -> int:
        """Number of heap entries, including stale ones."""
        return len(self._heap)

    def set(self, ref: Ref[M], at_ms: int, message: M, *, name: str = "", lane: Lane = Lane.DATA) -> None:
        """Send `message` to `ref` at `at_ms`; replaces the timer of this name.

        A time in the past fires at once. The message is admitted to `lane` whatever its bound. The timer survives a
        passivation and wakes the actor; a crash, a reload and a stop cancel it, and `load` sets it again.
        """
        timers = self._by_actor.get(ref.key)
        if timers is None:
            timers = self._by_actor[ref.key] = {}
        timer = timers.get(name)
        if timer is None:
            timer = timers[name] = Timer(ref, name)
        if timer.due_ms is None:
            self._armed += 1
        timer.message = message
        timer.lane = lane
        timer.due_ms = at_ms
        timer.generation += 1
        if not timer.entry or at_ms < timer.entry_ms:
            self._push(timer, at_ms)

    def cancel(self, ref: AnyRef, name: str = "") -> None:
        """Cancel one timer; no error if it does not exist."""
        timers = self._by_actor.get(ref.key)
        if timers is not None and name in timers:
            self._drop(timers.pop(name))
            if not timers:
                del self._by_actor[ref.key]

    def cancel_all(self, ref: AnyRef) -> None:
        """Cancel all timers of one actor."""
        for timer in self._by_actor.pop(ref.key, {}).values():
            self._drop(timer)

    def due_ms(self, ref: AnyRef, name: str = "") -> int | None:
        """When the timer is due, or None if it is not armed."""
        timer = self._by_actor.get(ref.key, {}).get(name)
        return timer.due_ms if timer is not None else None

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            self._waiting_until_ms = -inf
            if self._fire_due(self._clock.now_ms()):
                await trio.lowlevel.checkpoint()
                continue
            with trio.CancelScope() as self._scope:
                self._wait_until(self._heap[0][0] if self._heap else inf)
                await trio.sleep_forever()

    def _wait_until(self, at_ms: float) -> None:
        self._waiting_until_ms = at_ms
        delay_s = min((at_ms - self._clock.now_ms()) / 1000, self._clock_check_s)
        self._scope.deadline = trio.current_time() + max(delay_s, 0.0)

    def _fire_due(self, now_ms: int) -> bool:
        """Fire what is due, a burst at most; true if the burst was used up."""
        for _ in range(BURST):
            if not self._heap or self._heap[0][0] > now_ms:
                return False
            _, entry, timer = heappop(self._heap)
            if entry != timer.entry:
                continue
            timer.entry = 0
            assert timer.due_ms is not None
            if timer.due_ms > now_ms:
                self._push(timer, timer.due_ms)
            else:
                self._fire(timer)
        return True

    def _fire(self, timer: Timer) -> None:
        timer.due_ms = None
        self._armed -= 1
        envelope = Envelope(timer.message, trio.current_time())
        envelope.claim = partial(self._claim, timer, timer.generation)
        if not timer.ref.deliver(envelope, timer.lane):
            self.cancel(timer.ref, timer.name)

    def _claim(self, timer: Timer, generation: int) -> bool:
        """Whether a fired timer still counts when its message is handled; called once."""
        if timer.generation != generation:
            return False
        self.cancel(timer.ref, timer.name)
        return True

    def _push(self, timer: Timer, at_ms: int) -> None:
        self._entries += 1
        timer.entry = self._entries
        timer.entry_ms = at_ms
        heappush(self._heap, (at_ms, timer.entry, timer))
        if len(self._heap) > 2 * self._armed + BURST:
            self._heap = [item for item in self._heap if item[1] == item[2].entry]
            heapify(self._heap)
        if at_ms < self._waiting_until_ms:
            self._wait_until(at_ms)

    def _drop(self, timer: Timer) -> None:
        if timer.due_ms is not None:
            timer.due_ms = None
            self._armed -= 1
        timer.entry = 0
        timer.generation += 1
