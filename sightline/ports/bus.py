"""The port through which the servers of one service send frames to each other.

At most once: a frame may be lost, and is never delivered twice. Frames of one sender to one receiver arrive in order.
"""

from typing import Protocol, TypeAlias, final

from sightline.domain.value import Value


@final
class Received(Value):
    """A frame that another server sent to this one."""

    frame: bytes
    sender: str
    """The server that surely sent it."""


@final
class Undelivered(Value):
    """The receiver of a frame did not exist: the frame was surely not delivered."""

    serial: int
    """What `send` returned for the frame."""


@final
class Interrupted(Value):
    """This server was disconnected: frames that were sent to it or by it before may be lost."""


Arrival: TypeAlias = Received | Undelivered | Interrupted


@final
class BusStatistics(Value, kw_only=True):
    """Counts since the start, for metrics."""

    is_connected: bool = True
    connections: int = 0
    frames_refused: int = 0
    """Frames that were not sent: not connected, too large, or too many waited."""
    frames_lost: int = 0
    """Frames that were dropped: too many had been received, or their connection ended before."""
    frames_not_authentic: int = 0
    """Messages that no server of this service has sealed for this one, or that came a second time or late."""


class Bus(Protocol):
    """Carries frames between servers. A server is named by its incarnation."""

    @property
    def is_connected(self) -> bool:
        """Whether frames are carried now."""
        ...

    @property
    def frame_max(self) -> int:
        """Maximum size of a frame in bytes."""
        ...

    def send(self, to: str, frame: bytes) -> int | None:
        """Send a frame to one server; never blocks.

        Returns:
            A number that identifies the frame in `Undelivered`, or None if it was surely not sent.
        """
        ...

    async def receive(self) -> Arrival:
        """Wait for the next arrival. For one reader."""
        ...

    def statistics(self) -> BusStatistics:
        """Counts since the start."""
        ...
