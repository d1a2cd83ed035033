"""Which calls count as failed because of the database, for how long, and when they make a server not ready."""

from dataclasses import dataclass

import pytest

from sightline.bootstrap.observability.readiness import calls_check
from sightline.domain.errors import (
    AuthzUnavailableError,
    DependencyRefusedError,
    InvariantError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
    VideoUnavailableError,
)
from sightline.domain.refusal import Code, Refusal
from sightline.http.recent_failures import RecentFailures, is_store_failure


@dataclass
class GivenClock:
    at_ms: int = 0

    def now_ms(self) -> int:
        return self.at_ms


def test_calls_count_for_ten_seconds() -> None:
    clock = GivenClock(at_ms=999)
    recent = RecentFailures(clock)
    recent.note(failed=True)
    clock.at_ms = 5_000
    recent.note(failed=False)
    recent.note(failed=True)
    assert recent.counts() == (3, 2)
    clock.at_ms = 9_999
    assert recent.counts() == (3, 2)
    clock.at_ms = 10_000
    assert recent.counts() == (2, 1)
    clock.at_ms = 15_000
    assert recent.counts() == (0, 0)


def test_what_is_kept_does_not_grow() -> None:
    clock = GivenClock()
    recent = RecentFailures(clock)
    for second in range(1_000):
        clock.at_ms = second * 1_000
        recent.note(failed=True)
    assert recent.counts() == (10, 10)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StoreUnavailableError("away"), True),
        (OutcomeUnknownError("lost"), True),
        (DependencyRefusedError("no table"), True),
        (ExceptionGroup("", [ValueError(), StoreUnavailableError()]), True),
        (VideoUnavailableError("away"), False),
        (AuthzUnavailableError("away"), False),
        (RefusedError(Refusal(Code.UNAVAILABLE)), False),
        (InvariantError("a bug"), False),
        (ExceptionGroup("", [ValueError()]), False),
    ],
)
def test_only_the_database_counts(error: Exception, expected: bool) -> None:
    assert is_store_failure(error) is expected


@pytest.mark.parametrize(
    ("calls", "failed", "is_ok"),
    [(0, 0, True), (9, 9, True), (10, 5, True), (10, 6, False), (1_000, 501, True), (100, 51, False)],
)
def test_a_server_is_not_ready_when_most_of_ten_calls_failed(calls: int, failed: int, is_ok: bool) -> None:
    check = calls_check(calls, failed)
    assert check.is_ok is is_ok
    assert check.figures == {"calls": calls, "failed": failed}
    assert f"{failed} of {calls} calls" in check.detail
