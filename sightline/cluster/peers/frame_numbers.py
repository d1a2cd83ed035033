"""The numbers of frames between this server and each other one, by which a lost frame is noticed.

They are kept for each incarnation and not only while it has a lease: both sides go on counting when a server is missing
from one reading of the leases.
"""

from collections import OrderedDict, deque
from typing import Final, final

from msgspec import Struct, field

SERVERS_MAX: Final = 4_096
"""Incarnations; then the one that was used longest ago is forgotten."""
MISSED_MAX: Final = 1_024
"""Numbers of missed frames that are remembered, for each sender."""


@final
class _Numbers(Struct):
    sent: int = 0
    received: int = 0
    missed: deque[int] = field(default_factory=lambda: deque(maxlen=MISSED_MAX))


@final
class FrameNumbers:
    """What was sent to other servers and received from them."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, _Numbers] = OrderedDict()

    def next_to(self, server: str) -> int:
        """The number of the next frame to a server."""
        return self._of(server).sent + 1

    def sent(self, server: str) -> None:
        """Count a frame: the next one has the next number."""
        self._of(server).sent += 1

    def take(self, sender: str, number: int) -> int | None:
        """Note that a frame was received. Returns the number that was expected if frames before it are missing."""
        numbers = self._of(sender)
        expected = numbers.received + 1
        numbers.received = max(number, numbers.received)
        if number == expected:
            return None
        numbers.missed.extend(range(max(expected, number - MISSED_MAX), number))
        return expected

    def has(self, sender: str, number: int) -> bool:
        """Whether a frame of this number has been received. True also if it was missed too long ago to say."""
        numbers = self._of(sender)
        return 0 < number <= numbers.received and number not in numbers.missed

    def _of(self, server: str) -> _Numbers:
        numbers = self._servers.get(server)
        if numbers is None:
            numbers = self._servers[server] = _Numbers()
            if len(self._servers) > SERVERS_MAX:
                self._servers.popitem(last=False)
        self._servers.move_to_end(server)
        return numbers
