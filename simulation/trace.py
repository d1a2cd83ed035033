"""The trace of a simulated world: what happened, line by line, and the first broken promise."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Final, final

from sightline.domain.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.ports.clock import Clock

TAIL: Final = 60
"""Number of trace lines in a failure report."""


@final
class Violation(Value):
    """A broken promise and its time."""

    checker: str
    text: str
    at_ms: int

    def __str__(self) -> str:
        return f"{self.checker}: {self.text} (at {self.at_ms} ms)"


class Trace:
    """Records what happens in a world. Equal seeds give equal hashes."""

    def __init__(self, clock: Clock, on_violation: Callable[[], None]) -> None:
        """Create an empty trace. `on_violation` ends the world."""
        self._clock = clock
        self.counts: dict[str, int] = {}
        self.violation: Violation | None = None
        self._on_violation = on_violation
        self._hash = hashlib.sha256()
        self._tail: deque[str] = deque(maxlen=TAIL)

    @property
    def trace_hash(self) -> str:
        """The hash of everything that has happened, in order."""
        return self._hash.hexdigest()

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of the trace."""
        return tuple(self._tail)

    def note(self, kind: str, *facts: object) -> None:
        """Add a line to the trace."""
        line = f"{self._clock.now_ms()} {kind} {' '.join(map(str, facts))}"
        self._hash.update(line.encode())
        self._tail.append(line)
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def violate(self, checker: str, text: str) -> None:
        """Report a broken promise; the first one ends the world."""
        self.note("violation", checker, text)
        if self.violation is None:
            self.violation = Violation(checker, text, self._clock.now_ms())
            self._on_violation()
