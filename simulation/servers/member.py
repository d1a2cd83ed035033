"""One server's part in a simulated service of several: leases in the world's database, and messages to the others."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

import trio

from sightline.cluster.membership import ServiceMember
from sightline.cluster.peers.peers import QUESTIONS
from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError, UnavailableError
from sightline.ports.leases import ServerIdentity, ServiceHeldError
from simulation.adapters.store import NO_ANSWER_S
from simulation.memory.leases import TrioLeaseKeeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from sightline.cluster.bus.memory import MemoryBus, MemoryNetwork
    from sightline.ports.bus import Arrival, BusStatistics
    from sightline.ports.clock import Clock
    from sightline.ports.leases import ServerState
    from simulation.adapters.store import Process
    from simulation.memory.leases import MemoryShardLeases

T = TypeVar("T")

ENTER_AGAIN_S: Final = 1.0


class Network(Protocol):
    """The database and the network of a world, as its servers use them."""

    clock: Clock
    shards: Collection[int]
    leases: MemoryShardLeases
    bus: MemoryNetwork

    def note(self, kind: str, *facts: object) -> None:
        """Add a line to the trace."""
        ...

    def send(self, travel: Callable[[], Awaitable[None]]) -> None:
        """Carry a request, whatever becomes of its sender."""
        ...

    def latency_s(self) -> float:
        """How long one message to or from the database travels."""
        ...

    def loses_answer(self) -> bool:
        """Whether the answer to a call is lost."""
        ...

    def free(self) -> frozenset[int]:
        """The shards whose owner gave them up or was ended."""
        ...

    def taken(self, incarnation: str, epochs: Mapping[int, int], free: Collection[int]) -> None:
        """A server took shards; `free` is what was free before."""
        ...

    def released(self, incarnation: str, shards: Collection[int]) -> None:
        """A server gave shards up."""
        ...


@final
class SimMachine:
    """What stays when a process is started again: the place, its clock and its access to the database."""

    def __init__(self, number: int, boot_offset_ms: int) -> None:
        self.number = number
        self.boot_offset_ms = boot_offset_ms
        """How far its boot clock is from the clock of the world."""
        self.cuts = 0
        """Faults that keep it from the database now; they may overlap."""

    def reaches_database(self) -> bool:
        """Whether messages pass between this machine and the database."""
        return self.cuts == 0


@final
class DatabaseLink:
    """Calls of one process to the database: slow, lost, or cut off."""

    def __init__(self, network: Network, machine: SimMachine, process: Process) -> None:
        self._network = network
        self._machine = machine
        self._process = process

    async def call(self, act: Callable[[], Awaitable[T]]) -> T:
        """Let the database do something. What was sent is done, even if the caller does not wait for the answer.

        Raises:
            StoreUnavailableError: The database was not reached.
            OutcomeUnknownError: The answer was lost.
            ServiceHeldError: As `act` raises it.
        """
        await self._process.pass_through()
        if not self._machine.reaches_database():
            await trio.sleep(NO_ANSWER_S)
            raise StoreUnavailableError("simulated: the database cannot be reached")
        answered = trio.Event()
        results: list[T] = []
        refused: list[ServiceHeldError] = []

        async def travel() -> None:
            await trio.sleep(self._network.latency_s())
            try:
                results.append(await act())
            except ServiceHeldError as error:
                refused.append(error)
            await trio.sleep(self._network.latency_s())
            answered.set()

        self._network.send(travel)
        with trio.move_on_after(NO_ANSWER_S):
            await answered.wait()
        await self._process.pass_through()
        if not answered.is_set() or not self._machine.reaches_database() or self._network.loses_answer():
            raise OutcomeUnknownError("simulated: the answer was lost")
        if refused:
            raise refused[0]
        return results[0]


@final
class SimMember:
    """The membership of one process: the real one, over the database and the network of a world."""

    def __init__(
        self,
        network: Network,
        machine: SimMachine,
        name: str,
        process: Process,
        *,
        is_alone: bool = False,
        questions: Collection[type] = QUESTIONS,
    ) -> None:
        """Create the part of a process that has not entered.

        Args:
            name: The incarnation.
            is_alone: It has no bus; if another server has a lease, it waits.
            questions: Commands that may be handled twice.
        """
        self.name = name
        self.link = DatabaseLink(network, machine, process)

        def boot_now_ms() -> int:
            """A clock that has nothing to do with that of another server or of the database."""
            return network.clock.now_ms() + machine.boot_offset_ms

        leases = RemoteLeases(self.link, network)
        self.membership = ServiceMember(
            leases,
            TrioLeaseKeeper(leases, name, boot_now_ms),
            PausingBus(network.bus.join(name), process),
            ServerIdentity(incarnation=name, host=name, directory_id=str(machine.number), is_alone=is_alone),
            now_ms=boot_now_ms,
            shards=network.shards,
            questions=questions,
        )
        self.owned, self.peers = self.membership.owned, self.membership.peers

    async def join(self) -> None:
        """Get a lease, however long that takes."""
        while True:
            try:
                await self.membership.join(patience_s=inf)
            except (UnavailableError, OutcomeUnknownError):
                await trio.sleep(ENTER_AGAIN_S)
            else:
                return

    def is_serving(self, shard: int) -> bool:
        """Whether this process answers for the shard."""
        return self.membership.is_valid() and shard in self.owned.epochs


@final
class PausingBus:
    """The bus as a process reaches it: while the process is paused it neither sends nor receives."""

    def __init__(self, bus: MemoryBus, process: Process) -> None:
        self._bus = bus
        self._process = process

    @property
    def is_connected(self) -> bool:
        """Whether frames are carried now."""
        return self._bus.is_connected

    @property
    def frame_max(self) -> int:
        """Maximum size of a frame in bytes."""
        return self._bus.frame_max

    def send(self, to: str, frame: bytes) -> int | None:
        """Send a frame. A paused process sends nothing: what it computes meanwhile in the simulation is lost."""
        return None if self._process.is_stopped else self._bus.send(to, frame)

    def statistics(self) -> BusStatistics:
        """Counts since the start."""
        return self._bus.statistics()

    async def receive(self) -> Arrival:
        """Wait for the next arrival, and for the end of a pause."""
        arrival = await self._bus.receive()
        await self._process.pass_through()
        return arrival


@final
class RemoteLeases:
    """The leases of the world's database, as one server reaches them."""

    def __init__(self, link: DatabaseLink, network: Network) -> None:
        self._call = link.call
        self._inner = network.leases
        self._network = network

    async def enter(self, server: ServerIdentity) -> None:
        """Get a lease without shards."""
        await self._call(lambda: self._inner.enter(server))

    async def renew(self, incarnation: str) -> Mapping[int, int] | None:
        """Extend the lease."""
        return await self._call(lambda: self._inner.renew(incarnation))

    async def database_ms(self) -> int:
        """What the database's clock shows."""
        return await self._call(self._inner.database_ms)

    async def report(self, incarnation: str, *, clock_offset_ms: int, is_connected: bool) -> None:
        """Say how far this server's clock is off."""
        report = partial(self._inner.report, clock_offset_ms=clock_offset_ms, is_connected=is_connected)
        await self._call(lambda: report(incarnation))

    async def take(self, incarnation: str, shards: Collection[int]) -> Mapping[int, int]:
        """Take shards that are free."""

        async def act() -> Mapping[int, int]:
            free = self._network.free()
            taken = await self._inner.take(incarnation, shards)
            self._network.taken(incarnation, taken, free)
            return taken

        return await self._call(act)

    async def release(self, incarnation: str, shards: Collection[int], *, to: str | None = None) -> None:
        """Give shards up."""

        async def act() -> None:
            await self._inner.release(incarnation, shards, to=to)
            self._network.released(incarnation, shards)

        await self._call(act)

    async def leave(self, incarnation: str) -> None:
        """Give everything up."""

        async def act() -> None:
            await self._inner.leave(incarnation)
            self._network.released(incarnation, self._network.shards)

        await self._call(act)

    async def servers(self) -> Sequence[ServerState]:
        """Every server that has entered."""
        return await self._call(self._inner.servers)
