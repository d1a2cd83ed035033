"""How many of the last calls failed because of the database: one row that can be written proves little."""

from typing import Final, final

from sightline.domain.errors import DependencyRefusedError, OutcomeUnknownError, StoreUnavailableError
from sightline.ports.clock import Clock

WINDOW_S: Final = 10
SECOND_MS: Final = 1_000


@final
class RecentFailures:
    """Counts the calls of the last WINDOW_S seconds that need data, and those that failed because of the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[int, tuple[int, int]] = {}
        """Calls and failures by second; at most WINDOW_S + 1 of them."""

    def note(self, *, failed: bool) -> None:
        """Count a call."""
        now = self._clock.now_ms() // SECOND_MS
        if now not in self._seconds:
            self._forget(now)
        calls, failures = self._seconds.get(now, (0, 0))
        self._seconds[now] = (calls + 1, failures + failed)

    def counts(self) -> tuple[int, int]:
        """Return calls and failures."""
        self._forget(self._clock.now_ms() // SECOND_MS)
        return sum(calls for calls, _ in self._seconds.values()), sum(failed for _, failed in self._seconds.values())

    def _forget(self, now: int) -> None:
        for second in [each for each in self._seconds if each <= now - WINDOW_S]:
            del self._seconds[second]


def is_store_failure(error: BaseException) -> bool:
    """Return whether a call failed because the database did not answer, lost the answer, or refused a statement."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_store_failure(each) for each in error.exceptions)
    return isinstance(error, StoreUnavailableError | OutcomeUnknownError | DependencyRefusedError)
