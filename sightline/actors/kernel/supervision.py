"""The supervision policy: what a failure means, how often an actor may crash, and how long to wait before a load.

| failure of a turn or a load | the asker gets | the actor |
|---|---|---|
| `ReloadRequestedError` | `TurnLostError`, or the message is handled again | loads again at once |
| `UnavailableError` | that error | loads again with backoff |
| `OutcomeUnknownError` | that error | loads again with backoff |
| another error of a dependency, such as `OSError` or an error of a database driver | `TurnLostError` | the same |
| a bug: `InvariantError` or a Python error such as `ValueError` | `TurnLostError` | restarts; parks after too many |

A failed dependency never parks an actor: an actor that was in use retries its load until the dependency answers. What
a dependency refused (`DependencyRefusedError`) does park it, and it is loaded again after `parked_pause_s`: somebody
may have repaired the dependency.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, final

from sightline.actors.kernel.errors import ReloadRequestedError
from sightline.domain.errors import DependencyRefusedError, InvariantError, OutcomeUnknownError, UnavailableError

if TYPE_CHECKING:
    from sightline.actors.kernel.behaviour import Rng
    from sightline.actors.kernel.kind import KindOptions

PARKED_FIRST_S: Final = 30.0
PARKED_MAX_S: Final = 600.0

BUGS: Final = (
    InvariantError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors of our own code. Any other error comes from outside the actors: the system, a driver, a peer."""


class Verdict(IntEnum):
    """How to continue after a failed turn or load; the worst of several failures decides."""

    RELOAD = 0
    UNAVAILABLE = 1
    UNKNOWN = 2
    CRASH = 3


def classify_failure(error: BaseException) -> tuple[Verdict, Exception]:
    """Judge an exception or the leaves of a group.

    Returns:
        The worst verdict and the leaf that caused it.
    """
    if isinstance(error, BaseExceptionGroup):
        leaves = [
            classify_failure(leaf) for leaf in error.exceptions if isinstance(leaf, Exception | BaseExceptionGroup)
        ]
        return max(leaves, key=lambda leaf: leaf[0])
    assert isinstance(error, Exception), "a cancellation is never judged"
    return _verdict(error), error


def _verdict(error: Exception) -> Verdict:
    if isinstance(error, ReloadRequestedError):
        return Verdict.RELOAD
    if isinstance(error, UnavailableError):
        return Verdict.UNAVAILABLE
    if isinstance(error, OutcomeUnknownError):
        return Verdict.UNKNOWN
    return Verdict.CRASH if isinstance(error, BUGS) else Verdict.UNKNOWN


def parked_pause_s(error: Exception, parkings: int, rng: Rng) -> float | None:
    """How long a parked actor waits for its next load; None: until `Registry.revive`.

    Args:
        parkings: How often it was parked before, in a row.
    """
    if not isinstance(error, DependencyRefusedError):
        return None
    return min(PARKED_FIRST_S * 2.0 ** min(parkings, 16), PARKED_MAX_S) * (0.5 + rng.random())


@final
class Strikes:
    """The recent failures of one actor."""

    __slots__ = ("_crashes", "_options", "_reloads", "_rng", "pause_s")

    def __init__(self, options: KindOptions, rng: Rng) -> None:
        self._options = options
        self._rng = rng
        self._crashes: list[float] = []
        self._reloads = 0
        self.pause_s = 0.0
        """Pause before the next load."""

    def note_crash(self, now: float) -> bool:
        """Count a crash; false if the window has one too many."""
        horizon = now - self._options.restart_window_s
        self._crashes = [at for at in self._crashes if at > horizon]
        self._crashes.append(now)
        self.pause_s = self._backoff_s(len(self._crashes))
        return len(self._crashes) <= self._options.restarts_max

    def note_reload(self) -> None:
        """Count a reload that is no crash; the first one in a row has no pause."""
        self.pause_s = self._backoff_s(self._reloads) if self._reloads else 0.0
        self._reloads += 1

    def calm(self) -> None:
        """Reset the backoff after a turn that succeeded."""
        self._reloads = 0
        self.pause_s = 0.0

    def _backoff_s(self, attempt: int) -> float:
        doubled_ms = self._options.backoff_first_ms << min(attempt - 1, 16)
        return min(doubled_ms, self._options.backoff_max_ms) * (0.5 + self._rng.random()) / 1000
