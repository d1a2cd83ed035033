"""Circuit breaker: after consecutive failures, stop calling a dependency for a while, then let one caller probe it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import trio

from sightline.domain.errors import AuthzUnavailableError, OutcomeUnknownError


@final
class Breaker:
    """Counts consecutive failures. When open it refuses calls immediately; after the pause it allows one probe.

    Args:
        failures_max: Consecutive failures that open it.
        pause_ms: How long it refuses calls.
    """

    def __init__(self, *, failures_max: int, pause_ms: int) -> None:
        self._failures_max = failures_max
        self._pause_s = pause_ms / 1_000
        self._failures = 0
        self._open_until = 0.0
        self._is_probing = False

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Count the outcome of the block. Failures are AuthzUnavailableError and a cancelled probe.

        Raises:
            AuthzUnavailableError: The breaker is open.
        """
        is_probe = self._enter()
        try:
            yield
        except (AuthzUnavailableError, OutcomeUnknownError):
            self._failed()
            raise
        except trio.Cancelled:
            if is_probe:
                self._failed()
            raise
        except Exception:
            self._failures = 0
            raise
        else:
            self._failures = 0
        finally:
            if is_probe:
                self._is_probing = False

    def _enter(self) -> bool:
        """Admit or refuse a caller; returns whether the caller is the probe."""
        if self._failures < self._failures_max:
            return False
        if self._is_probing or trio.current_time() < self._open_until:
            raise AuthzUnavailableError("the authorization graph is not answering")
        self._is_probing = True
        return True

    def _failed(self) -> None:
        self._failures += 1
        self._open_until = trio.current_time() + self._pause_s
