"""Port of the wall clock."""

from typing import Protocol


class Clock(Protocol):
    """Reads the server's time."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch, UTC. May step; never charge by differences between processes."""
        ...
