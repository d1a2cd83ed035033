"""Determinism in one place: virtual time, a seeded scheduler, seeded ids.

trio runs the tasks of a batch in random order. A private switch, made for Hypothesis, takes the order from a generator
that can be seeded. The two private names are used only here, trio is pinned to a minor version, and the test suite has
a copy of trio's own test of the switch. With the switch, one seed gives one order of events.

Virtual time needs no sleeping: when no task can run, the clock jumps to the next deadline. Threads and sockets are not
allowed, because trio cannot see that a task waits for them.
"""

from __future__ import annotations

import logging
import random  # noqa: TID251  (generators seeded from the world's seed only)
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, TypeVar, final
from uuid import UUID

import structlog
import trio
import trio.abc
from trio._core import _run as scheduler

T = TypeVar("T")

STALL_LIMIT: Final = 300_000
"""Far more than the largest burst of a world needs at one instant."""

EPOCH_MS: Final = 1_767_225_600_000
"""Wall-clock time at which every world starts: 2026-01-01T00:00:00Z."""


@final
class VirtualClock(trio.abc.Clock):
    """Virtual time: stops while a task can run, and jumps to the next deadline when none can.

    Tasks that never wait would stop virtual time. After `STALL_LIMIT` readings without a jump the clock advances by
    itself,
    so that a waiting task can check `has_stalled`.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._looks = 0

    def start_clock(self) -> None:
        """Do nothing; the clock needs no start."""

    def current_time(self) -> float:
        """Return the seconds since the world began."""
        self._looks += 1
        if self._looks > STALL_LIMIT:
            self._now += 0.001
        return self._now

    @property
    def has_stalled(self) -> bool:
        """Whether tasks keep running without virtual time advancing."""
        return self._looks > STALL_LIMIT

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the deadline. The run loop calls this only when no task is ready."""
        if deadline == inf:
            return 999_999.0
        if deadline > self._now:
            self._now = deadline
            if not self.has_stalled:
                self._looks = 0
        return 0.0


@final
class SimWallClock:
    """Wall-clock time derived from virtual time."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return EPOCH_MS + round(trio.current_time() * 1000)


@final
class SeededIds:
    """Ids and secrets that are equal for equal seeds."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> str:
        """Return a UUID of version 4."""
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def token_bytes(self, count: int) -> bytes:
        """Return random bytes; not suitable as secrets outside a simulation."""
        return self._rng.randbytes(count)


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Order ready tasks by the seed."""
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


@contextmanager
def silenced_logs() -> Iterator[None]:
    """Suppress the logs of simulated servers; the world itself reports bugs."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
