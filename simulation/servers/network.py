"""The database's leases and the bus between the servers of a world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, final

import trio

from sightline.actors.shards import EVERY_SHARD
from sightline.cluster.bus.memory import MemoryNetwork, Route, at_once
from simulation.memory.leases import MemoryShardLeases

if TYPE_CHECKING:
    from sightline.ports.clock import Clock
    from simulation.history import History
    from simulation.memory.store import MemoryStore


@final
class WorldNetwork:
    """Implements `Network` for a world with the actors of a service. `run` it."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: MemoryStore,
        history: History,
        latency_s: Callable[[], float],
        loses_answer: Callable[[], bool] = lambda: False,
        route: Route = at_once,
    ) -> None:
        """Create a network.

        Args:
            latency_s: Draws how long one message to or from the database travels.
            loses_answer: Draws whether the answer to a call is lost.
            route: Of the frames between servers.
        """
        self.clock = clock
        self.shards: Collection[int] = EVERY_SHARD
        self.leases = MemoryShardLeases(store, clock.now_ms)
        self.bus = MemoryNetwork(route)
        self.moves = 0
        """How often shards were taken or given up."""
        self._history = history
        self.latency_s = latency_s
        self.loses_answer = loses_answer
        self._requests: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry requests until cancelled."""
        async with trio.open_nursery() as self._requests:
            task_status.started()
            await trio.sleep_forever()

    def note(self, kind: str, *facts: object) -> None:
        """Add a line to the trace."""
        self._history.note(kind, *facts)

    def send(self, travel: Callable[[], Awaitable[None]]) -> None:
        """Carry a request, whatever becomes of its sender."""
        assert self._requests is not None
        self._requests.start_soon(travel)

    def free(self) -> frozenset[int]:
        """Not used here: theft is checked by the worlds of counters."""
        return frozenset()

    def taken(self, incarnation: str, epochs: Mapping[int, int], free: Collection[int]) -> None:
        """A server took shards."""
        if epochs:
            self.moves += 1
            self._history.shards_taken(incarnation, epochs)

    def released(self, incarnation: str, shards: Collection[int]) -> None:
        """A server gave shards up."""
        self.moves += 1
        self.note("release", incarnation, len(shards))
