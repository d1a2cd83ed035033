"""Determinism in one place: virtual time, a seeded scheduler, seeded ids.

trio orders the tasks of a batch at random. It has a private switch, made for Hypothesis, that takes the order from a
generator which can be seeded; both names are used here and nowhere else, trio is pinned to a minor version, and a copy
of trio's own test of the switch stands in the suite. With it one seed is one order of events, and another seed another.

Virtual time needs no sleeping: when no task can run, the clock is already at the next deadline. There must be no thread
and no socket inside, since trio cannot see that somebody is waiting for them.
"""

from __future__ import annotations

import random  # noqa: TID251  (generators made of the seed only)
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, TypeVar, final
from uuid import UUID

import trio
import trio.abc
from trio._core import _run as scheduler

T = TypeVar("T")

STALL_LIMIT: Final = 300_000
"""Far above what the largest burst of a world does at one instant."""

EPOCH_MS: Final = 1_767_225_600_000
"""Where the wall clock of every world starts: 2026-01-01T00:00:00Z."""


@final
class VirtualClock(trio.abc.Clock):
    """Time that stands still while a task can run and jumps to the next deadline when none can.

    Tasks that keep each other busy for ever would stop time for good. After `STALL_LIMIT` looks at the clock without a
    jump it is set going by itself, so that whoever waits gets to see `has_stalled`.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._looks = 0

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Seconds since the world began."""
        self._looks += 1
        if self._looks > STALL_LIMIT:
            self._now += 0.001
        return self._now

    @property
    def has_stalled(self) -> bool:
        """Whether tasks run and run and time does not pass."""
        return self._looks > STALL_LIMIT

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump. The run loop asks only when no task is ready."""
        if deadline == inf:
            return 999_999.0
        if deadline > self._now:
            self._now = deadline
            if not self.has_stalled:
                self._looks = 0
        return 0.0


@final
class SimWallClock:
    """Wall time that follows virtual time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return EPOCH_MS + round(trio.current_time() * 1000)


@final
class SeededIds:
    """Ids and secrets that are the same for the same seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> str:
        """A UUID of version 4."""
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def token_bytes(self, count: int) -> bytes:
        """Not fit for secrets outside of a simulation."""
        return self._rng.randbytes(count)


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Let the seed decide the order in which ready tasks run."""
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    state = scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        scheduler._r.setstate(state)


def run_virtual(seed: int, main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function on virtual time, scheduled by the seed."""
    with seeded_scheduler(seed):
        return trio.run(main, clock=VirtualClock())
