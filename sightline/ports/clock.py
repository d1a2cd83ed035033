"""Wall-clock time as a need."""

from typing import Protocol


class Clock(Protocol):
    """Where the server reads what time it is."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC. May step; never bill by differences of two processes' clocks."""
        ...
