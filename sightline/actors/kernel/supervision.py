"""Supervision: what a failure means, how often an actor may fail, and how long to wait before the next load."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, final

from sightline.actors.kernel.errors import ReloadRequestedError
from sightline.domain.errors import OutcomeUnknownError, UnavailableError

if TYPE_CHECKING:
    from sightline.actors.kernel.behaviour import Rng
    from sightline.actors.kernel.kind import KindOptions


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
        """How long to wait before the next load."""

    def note_crash(self, now: float) -> bool:
        """Count a crash; false if it was one too many within the window."""
        horizon = now - self._options.restart_window_s
        self._crashes = [at for at in self._crashes if at > horizon]
        self._crashes.append(now)
        self.pause_s = self._backoff_s(len(self._crashes))
        return len(self._crashes) <= self._options.restarts_max

    def note_reload(self) -> None:
        """Count a reload that is no crash; the first one in a row goes without a pause."""
        self.pause_s = self._backoff_s(self._reloads) if self._reloads else 0.0
        self._reloads += 1

    def calm(self) -> None:
        """Note a turn that went well."""
        self._reloads = 0
        self.pause_s = 0.0

    def _backoff_s(self, attempt: int) -> float:
        doubled_ms = self._options.backoff_first_ms << min(attempt - 1, 16)
        return min(doubled_ms, self._options.backoff_max_ms) * (0.5 + self._rng.random()) / 1000


class Verdict(Enum):
    """How to go on after a failed turn or load."""

    RELOAD = "reload"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    CRASH = "crash"


def judge(group: BaseExceptionGroup[BaseException]) -> tuple[Verdict, Exception]:
    """Judge a group by its leaves: the worst one decides.

    Returns:
        The verdict and the leaf that decided it.
    """
    worst: tuple[int, Verdict, Exception] | None = None
    for leaf in _leaves(group):
        rank, verdict = _rank(leaf)
        if worst is None or rank > worst[0]:
            worst = (rank, verdict, leaf)
    assert worst is not None, "an exception group has leaves"
    return worst[1], worst[2]


def _rank(leaf: Exception) -> tuple[int, Verdict]:
    if isinstance(leaf, ReloadRequestedError):
        return 0, Verdict.RELOAD
    if isinstance(leaf, UnavailableError):
        return 1, Verdict.UNAVAILABLE
    if isinstance(leaf, OutcomeUnknownError):
        return 2, Verdict.UNKNOWN
    return 3, Verdict.CRASH


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[Exception]:
    leaves: list[Exception] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            leaves.extend(_leaves(error))
        elif isinstance(error, Exception):
            leaves.append(error)
    return leaves
