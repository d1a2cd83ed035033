"""The bus in memory: of a server that is alone, and of several servers in one process with faults on demand."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final, TypeAlias, final

import trio

from sightline.ports.bus import Arrival, BusStatistics, Interrupted, Received, Undelivered

FRAME_MAX: Final = 1_048_576

Route: TypeAlias = Callable[[str, str], float | None]
"""Called with sender and receiver for each frame: the delay in seconds, or None if the frame is lost."""


def at_once(_sender: str, _receiver: str) -> float:
    """A route without faults."""
    return 0.0


@final
class MemoryNetwork:
    """Connects the buses of several servers. Frames of one pair of servers keep their order whatever their delays."""

    def __init__(self, route: Route = at_once, *, queue_bytes_max: int = 16 * 1024 * 1024) -> None:
        """Create a network without servers.

        Args:
            queue_bytes_max: Limit of the frames that one server has not received yet; frames above it are refused.
        """
        self.route = route
        self._queue_bytes_max = queue_bytes_max
        self._buses: dict[str, MemoryBus] = {}
        self._order = count()
        self._latest: dict[tuple[str, str], float] = {}

    def join(self, incarnation: str) -> "MemoryBus":
        """Add a server; it is connected."""
        bus = MemoryBus(self, incarnation)
        self._buses[incarnation] = bus
        return bus

    def leave(self, incarnation: str) -> None:
        """Remove a server: frames to it are undelivered from now on."""
        bus = self._buses.pop(incarnation, None)
        if bus is not None:
            bus.disconnect()

    def carry(self, sender: "MemoryBus", to: str, frame: bytes, serial: int) -> bool:
        """Send a frame to one server; called by the buses."""
        receiver = self._buses.get(to)
        if receiver is None or not receiver.is_connected:
            delay_s = self.route(to, sender.incarnation)
            if delay_s is not None:
                self._put(sender, to, Undelivered(serial), 0, delay_s)
            return True
        if receiver.queued_bytes + len(frame) > self._queue_bytes_max:
            return False
        delay_s = self.route(sender.incarnation, to)
        if delay_s is not None:
            self._put(receiver, sender.incarnation, Received(frame, sender.incarnation), len(frame), delay_s)
        return True

    def _put(self, receiver: "MemoryBus", sender: str, arrival: Arrival, size: int, delay_s: float) -> None:
        pair = (sender, receiver.incarnation)
        due = max(self._latest.get(pair, 0.0), trio.current_time() + delay_s)
        self._latest[pair] = due
        receiver.put(due, next(self._order), arrival, size)


@final
class MemoryBus:
    """Implements `Bus`. Made by `MemoryNetwork.join`."""

    def __init__(self, network: MemoryNetwork, incarnation: str) -> None:
        self.incarnation = incarnation
        self.queued_bytes = 0
        self._network = network
        self._is_connected = True
        self._serial = 0
        self._inbox: list[tuple[float, int, Arrival, int]] = []
        self._changed = trio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether frames are carried now."""
        return self._is_connected

    @property
    def frame_max(self) -> int:
        """Maximum size of a frame in bytes."""
        return FRAME_MAX

    def statistics(self) -> BusStatistics:
        """Only whether it is connected."""
        return BusStatistics(is_connected=self._is_connected)

    def connect(self) -> None:
        """Connect again."""
        self._is_connected = True

    def disconnect(self) -> None:
        """Cut this server off: frames on their way to it are lost."""
        if not self._is_connected:
            return
        self._is_connected = False
        self._inbox.clear()
        self.queued_bytes = 0
        self.put(trio.current_time(), -1, Interrupted(), 0)

    def send(self, to: str, frame: bytes) -> int | None:
        """Send a frame to one server; None if it was surely not sent."""
        if not self._is_connected or len(frame) > FRAME_MAX:
            return None
        serial = self._serial
        if not self._network.carry(self, to, frame, serial):
            return None
        self._serial += 1
        return serial

    async def receive(self) -> Arrival:
        """Wait for the next arrival. Cancellation: no arrival is lost."""
        await trio.lowlevel.checkpoint()
        while not self._inbox or self._inbox[0][0] > trio.current_time():
            with trio.move_on_at(self._inbox[0][0] if self._inbox else float("inf")):
                await self._changed.wait()
        _, _, arrival, size = heapq.heappop(self._inbox)
        self.queued_bytes -= size
        return arrival

    def put(self, due: float, order: int, arrival: Arrival, size: int) -> None:
        """Let an arrival be received from `due` on; called by the network."""
        heapq.heappush(self._inbox, (due, order, arrival, size))
        self.queued_bytes += size
        self._changed.set()
        self._changed = trio.Event()
