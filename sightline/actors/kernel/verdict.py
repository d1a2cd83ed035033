"""What an exception that escaped from a behaviour means."""

from __future__ import annotations

from enum import Enum

from sightline.actors.kernel.errors import ReloadRequestedError
from sightline.domain.errors import OutcomeUnknownError, UnavailableError


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
