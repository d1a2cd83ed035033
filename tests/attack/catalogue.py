"""The list of attacks. Each one is a function that raises AssertionError when it succeeds against the server."""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TypeAlias

from sightline.domain.value import Value
from tests.attack.target import Target

Run: TypeAlias = Callable[[Target], Awaitable[str]]


class Kind(Enum):
    """How an attack is run."""

    PROBE = auto()
    FLOOD = auto()
    """A second tenant calls while it runs, and memory is compared after it."""
    WAIT = auto()
    """It mostly waits: it runs beside the others."""
    APART = auto()
    """It has servers or processes of its own: it runs beside the others, after the one of this kind before it."""


class Attack(Value):
    """One attack: the finding of the audit that it replays, what the attacker tries, and the function that tries it.

    The function returns what was observed, in a few words.

    Attributes:
        before: What the same attack did to commit 17e87ec, which the third audit examined; empty if it had no effect.
    """

    finding: str
    title: str
    run: Run
    kind: Kind = Kind.PROBE
    before: str = ""


ATTACKS: list[Attack] = []


def attack(finding: str, title: str, kind: Kind = Kind.PROBE, *, before: str = "") -> Callable[[Run], Run]:
    """Add a function to the list."""

    def add(run: Run) -> Run:
        ATTACKS.append(Attack(finding, title, run, kind, before))
        return run

    return add
