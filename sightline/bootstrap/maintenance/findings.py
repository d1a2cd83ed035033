"""What a check of `sightline doctor` found."""

from enum import StrEnum
from typing import final

from sightline.domain.value import Value


class Level(StrEnum):
    """OK; WARNING: the server starts but something may go wrong; FAILED: it does not start, or does not work."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@final
class HostFinding(Value):
    """The result of one check."""

    check: str
    level: Level
    detail: str
    remedy: str = ""
    """What to do; empty if the check is ok."""


def ok(check: str, detail: str) -> HostFinding:
    """A check that passed."""
    return HostFinding(check, Level.OK, detail)


def warning(check: str, detail: str, remedy: str) -> HostFinding:
    """A check that found something that may go wrong."""
    return HostFinding(check, Level.WARNING, detail, remedy)


def failed(check: str, detail: str, remedy: str) -> HostFinding:
    """A check that failed."""
    return HostFinding(check, Level.FAILED, detail, remedy)
