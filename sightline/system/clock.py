"""Server time: the wall clock, but never going back.

CLOCK_BOOTTIME runs at the rate of the wall clock and is never set, so a change of their difference is a step of the
wall clock. A step forward is followed, because usually the clock was late. A step back is not followed, because
sessions are charged by differences of server time: server time then continues from its last value, ahead of the wall
clock, and runs one percent slower until both are equal.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, final

import structlog

CHECK_MS: Final = 1_000
"""Interval in which the wall clock is compared."""
STEP_MS: Final = 500
"""A difference of this size between two checks is a step; a smaller one is an adjustment, for example by NTP."""
SLOWER_BY: Final = 100
"""While server time is ahead of the wall clock, it runs slower by one part in this many."""

_boot_ns: Final = partial(time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

log = structlog.get_logger()


def utc_now() -> datetime:
    """The wall clock, for the timestamps of log lines. It is not server time, which never goes back."""
    return datetime.now(UTC)


def boot_now_ms() -> int:
    """Milliseconds since the machine booted, suspended time included. Equal in all processes of the machine."""
    return _boot_ns() // 1_000_000


@final
class SystemClock:
    """Reads server time. Create one per process. A step of the wall clock is detected at the first reading after it."""

    __slots__ = ("_ahead_ms", "_boot_ns", "_check_at_ms", "_checked_ms", "_last_ms", "_offset_ms", "_wall_ns")

    def __init__(self, *, wall_ns: Callable[[], int] = time.time_ns, boot_ns: Callable[[], int] = _boot_ns) -> None:
        """Start at the wall clock's time.

        Args:
            wall_ns: The wall clock.
            boot_ns: Nanoseconds since the machine booted, suspended time included.
        """
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns
        boot_ms = boot_ns() // 1_000_000
        self._offset_ms = wall_ns() // 1_000_000 - boot_ms
        self._ahead_ms = 0
        self._checked_ms = boot_ms
        self._check_at_ms = boot_ms + CHECK_MS
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch; never less than an earlier result."""
        boot_ms = self._boot_ns() // 1_000_000
        if boot_ms >= self._check_at_ms:
            self._compare(boot_ms)
        now_ms = boot_ms + self._offset_ms
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms

    def advance_to(self, at_ms: int, *, at_most_ms: int) -> None:
        """Continue from this time if server time is behind it: another process or the database knows a later time.

        Args:
            at_ms: Server time according to the other source.
            at_most_ms: A larger difference is ignored, because one of the clocks must be wrong.
        """
        behind_ms = at_ms - self.now_ms()
        if behind_ms <= 0:
            return
        if behind_ms > at_most_ms:
            log.critical("wall_clock_far_behind_database", behind_ms=behind_ms)
            return
        self._offset_ms += behind_ms
        self._ahead_ms += behind_ms
        if behind_ms >= STEP_MS:
            log.error("wall_clock_behind_database", behind_ms=behind_ms)

    def _compare(self, boot_ms: int) -> None:
        """Follow a forward step of the wall clock at once, and a backward step by running slower."""
        ahead_ms = boot_ms + self._offset_ms - self._wall_ns() // 1_000_000
        stepped_ms = self._ahead_ms - ahead_ms
        if ahead_ms <= 0:
            self._offset_ms -= ahead_ms
            ahead_ms = 0
        else:
            lost_ms = min(ahead_ms, max(1, (boot_ms - self._checked_ms) // SLOWER_BY))
            self._offset_ms -= lost_ms
            ahead_ms -= lost_ms
        self._ahead_ms = ahead_ms
        self._checked_ms = boot_ms
        self._check_at_ms = boot_ms + CHECK_MS
        if abs(stepped_ms) >= STEP_MS:
            log.error("wall_clock_stepped", step_ms=stepped_ms, server_time_ahead_ms=ahead_ms)
