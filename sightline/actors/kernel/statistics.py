"""Counts of the kernel, per kind of actor. Counting costs an integer addition; reading makes a frozen copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from msgspec import Struct, field

from sightline.domain.value import Value

BUCKETS = 28
"""Bucket i counts durations under 2**i microseconds; the last one is everything over about two minutes."""


@final
class Histogram(Value):
    """Durations by powers of two of a microsecond."""

    counts: tuple[int, ...]
    total_s: float

    @property
    def count(self) -> int:
        """How many were measured."""
        return sum(self.counts)

    def quantile_s(self, share: float) -> float:
        """An upper bound, within a factor of two, of the given share (0..1) of the durations."""
        rank = share * self.count
        seen = 0
        for index, count in enumerate(self.counts):
            seen += count
            if seen >= rank and seen:
                return (1 << index) / 1e6
        return 0.0


@final
class Recorder:
    """A histogram while it is being filled."""

    __slots__ = ("_counts", "_total_s")

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._total_s = 0.0

    def add(self, duration_s: float) -> None:
        """Count one duration; a negative one (the clock of a test) counts as zero."""
        if duration_s <= 0.0:
            self._counts[0] += 1
            return
        self._total_s += duration_s
        index = int(duration_s * 1e6).bit_length()
        self._counts[index if index < BUCKETS else BUCKETS - 1] += 1

    def freeze(self) -> Histogram:
        """Copy what was counted so far."""
        return Histogram(tuple(self._counts), self._total_s)


@final
class Counters(Struct):
    """The running counts of one kind."""

    handled: int = 0
    overloaded: int = 0
    conflated: int = 0
    expired: int = 0
    ask_timeouts: int = 0
    dead_letters: int = 0
    activations: int = 0
    passivations: int = 0
    restarts: int = 0
    reloads: int = 0
    load_failures: int = 0
    wait: Recorder = field(default_factory=Recorder)
    handle: Recorder = field(default_factory=Recorder)


@final
class KindStatistics(Value, kw_only=True):
    """One kind of actor at one instant. Counts are totals since the start.

    Attributes:
        active: Actors in memory, parked ones included.
        running: Actors with a turn, a load or a backoff in progress.
        helpers: Helpers of all actors in progress.
        parked: Actors that crashed too often, by id, with the reason; they wait for `revive`.
        retrying: Actors that a failed dependency keeps from loading, by id, with the reason; they retry with backoff.
        depth: Messages waiting in all mailboxes; `depth_max` in the fullest one.
        oldest_wait_s: How long the oldest waiting message has waited.
        expired: Asks whose deadline passed before they were handled.
        dead_letters: Tells that were not handled.
        restarts: Crashes followed by a load; `reloads` are the orderly ones.
        load_failures: Loads that a dependency made fail.
        wait: From sending to the turn; `handle` is the turn itself.
    """

    active: int
    running: int
    helpers: int
    parked: Mapping[str, str]
    retrying: Mapping[str, str]
    depth: int
    depth_max: int
    oldest_wait_s: float
    handled: int
    overloaded: int
    conflated: int
    expired: int
    ask_timeouts: int
    dead_letters: int
    activations: int
    passivations: int
    restarts: int
    reloads: int
    load_failures: int
    wait: Histogram
    handle: Histogram


@final
class KernelStatistics(Value, kw_only=True):
    """The whole kernel at one instant."""

    kinds: Mapping[str, KindStatistics]
    timers: int
    timer_heap: int
