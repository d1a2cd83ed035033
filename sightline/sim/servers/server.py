"""One server of a world of several: the real kernel and the real host of shards, over a network that fails."""

from __future__ import annotations

import random  # noqa: TID251  (generators seeded from the world's seed only)
from typing import TYPE_CHECKING, Protocol, TypeVar, final

import trio

from sightline.actors.kernel import KernelOptions, Registry
from sightline.actors.messages import ShardsReleased
from sightline.actors.ownership.owned_shards import OwnedShards, shard_of
from sightline.actors.ownership.routes import Routes
from sightline.actors.ownership.shard_host import LeaseEndedError, ShardHost
from sightline.actors.remote import codec
from sightline.actors.remote.peers import Peers
from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError, UnavailableError
from sightline.ports.leases import ServerIdentity
from sightline.sim.adapters.store import Line
from sightline.sim.servers.counter import COUNTER, Add, Counter, Get

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from sightline.bus.memory import MemoryBus, MemoryNetwork
    from sightline.ports.bus import Arrival
    from sightline.ports.leases import ServerState
    from sightline.ports.store import HeartbeatWrite
    from sightline.sim.runtime import SimWallClock
    from sightline.storage.memory.leases import MemoryShardLeases

T = TypeVar("T")

codec.extend({900: Add, 901: Get})

QUESTIONS = {Get}
ASK_TIMEOUT_S = 10.0
NO_ANSWER_S = 5.0
"""After this time a call to an unreachable database fails."""
RESTART_S = 1.0


class Network(Protocol):
    """The database and the network of a world, as its servers use them."""

    clock: SimWallClock
    shards: Collection[int]
    leases: MemoryShardLeases
    bus: MemoryNetwork

    def rng(self, name: str) -> random.Random:
        """A generator for one part of the world."""
        ...

    def note(self, kind: str, *facts: object) -> None:
        """Add a line to the trace."""
        ...

    def send(self, travel: Callable[[], Awaitable[None]]) -> None:
        """Carry a request, whatever becomes of its sender."""
        ...

    def latency_s(self) -> float:
        """How long one message travels."""
        ...

    def loses_answer(self) -> bool:
        """Whether the answer to a call is lost."""
        ...

    async def value_of(self, counter: str) -> int:
        """The stored value of a counter."""
        ...

    async def append(self, owner: str, write: HeartbeatWrite) -> bool:
        """Store a write; False if its lease is lost."""
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
class SimServer:
    """One place: a process that is started again after it ended, each time with a new incarnation."""

    def __init__(self, world: Network, number: int) -> None:
        self._world = world
        self._number = number
        self._rng = world.rng(f"server {number}")
        self._clock_offset_ms = self._rng.randrange(-3_600_000, 3_600_000)
        self._starts = 0
        self.name = ""
        """The incarnation."""
        self.line = Line()
        self.cuts = 0
        """Faults that keep this server from the database now; they may overlap."""
        self.owned = OwnedShards()
        self._host: ShardHost | None = None
        self._registry: Registry | None = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    # The life of the process.

    async def run(self) -> None:
        """Start the process again whenever it has ended."""
        while True:
            self._starts += 1
            self.name, self.line, self.owned = f"{self._number}.{self._starts}", Line(), OwnedShards()
            self._scope, self._ended = trio.CancelScope(), trio.Event()
            self._world.note("start", self.name)
            with self._scope:
                await self._live()
            self._host = None
            self._ended.set()
            await trio.sleep(RESTART_S)

    async def _live(self) -> None:
        world = self._world
        routes = Routes(self.name)
        peers = Peers(PausingBus(world.bus.join(self.name), self.line), routes, questions=QUESTIONS)
        registry = self._registry = Registry(
            clock=world.clock,
            rng=random.Random(self.name),
            options=KernelOptions(sweep_every_s=3_600, clock_check_s=3_600),
            owns=self.owned.owns,
            remote=peers,
        )
        registry.register(COUNTER, lambda context: Counter(context, self.owned, self._load, self._write))
        identity = ServerIdentity(incarnation=self.name, host=self.name, place=str(self._number))
        async with trio.open_nursery() as nursery:
            await nursery.start(registry.run)
            host = ShardHost(
                RemoteLeases(self, world),
                identity,
                self.owned,
                registry,
                recover=self._recover,
                now_ms=self._boot_now_ms,
                shards=world.shards,
                routes=routes,
                on_taken=peers.announce,
                on_released=lambda: peers.tell_all(ShardsReleased()),
            )
            peers.attach(registry, lambda counter: self.owned.owns(counter) and host.is_valid())
            peers.on_stale = host.look
            await nursery.start(peers.run)
            try:
                while True:
                    try:
                        self._host = host
                        await host.run()
                    except (UnavailableError, OutcomeUnknownError):
                        await trio.sleep(RESTART_S)
            except* LeaseEndedError:
                world.note("ended", self.name)
            nursery.cancel_scope.cancel()

    async def _recover(self, shards: Collection[int]) -> None:
        self._world.note("taken", self.name, *sorted(shards))

    def _boot_now_ms(self) -> int:
        """A clock that has nothing to do with that of another server or of the database."""
        return self._world.clock.now_ms() + self._clock_offset_ms

    async def kill(self) -> None:
        """Kill the process, without any clean-up that has an effect."""
        self.line.cut()
        self._world.note("kill", self.name)
        self._scope.cancel()
        await self._ended.wait()
        self._world.bus.leave(self.name)

    async def stop(self) -> None:
        """Stop the process as SIGTERM does: its shards are given up."""
        self._world.note("stop", self.name)
        host = self._host
        if host is not None:
            with trio.move_on_after(10):
                try:
                    await host.leave()
                except (UnavailableError, OutcomeUnknownError):
                    self._world.note("not left", self.name)
        await self.kill()

    # What callers see.

    async def add(self, counter: str) -> int:
        """Count one more.

        Raises:
            UnavailableError: Nothing was counted.
            OutcomeUnknownError: It may have been counted.
        """
        await self._admit()
        return await self._require_registry().ref(COUNTER, counter).ask(Add(), timeout_s=ASK_TIMEOUT_S)

    async def read(self, counter: str) -> int:
        """The value, from memory if possible.

        Raises:
            UnavailableError, OutcomeUnknownError: It cannot be read here now.
        """
        await self._admit()
        registry = self._require_registry()
        known = registry.peek(COUNTER, counter)
        return known if known is not None else await registry.ref(COUNTER, counter).ask(Get(), timeout_s=ASK_TIMEOUT_S)

    async def _admit(self) -> None:
        """Check the lease once for each call, before it reads anything, as the HTTP pipeline does."""
        await self.line.pass_through()
        host = self._host
        if host is None or not host.is_valid():
            raise StoreUnavailableError("the lease was not renewed")
        # What the pipeline awaits between this check and the handler.
        await trio.sleep(self._rng.random() * 0.01)
        await self.line.pass_through()

    def _require_registry(self) -> Registry:
        assert self._registry is not None
        return self._registry

    # The database, as this server reaches it.

    async def _load(self, counter: str) -> int:
        return await self.call(lambda: self._world.value_of(counter))

    async def _write(self, write: HeartbeatWrite) -> bool:
        owner = self.name
        return await self.call(lambda: self._world.append(owner, write))

    def reaches_database(self) -> bool:
        """Whether messages pass between this server and the database."""
        return self.cuts == 0

    async def call(self, act: Callable[[], Awaitable[T]]) -> T:
        """Let the database do something. What was sent is done, even if the caller does not wait for the answer."""
        await self.line.pass_through()
        if not self.reaches_database():
            await trio.sleep(NO_ANSWER_S)
            raise StoreUnavailableError("simulated: the database cannot be reached")
        answered = trio.Event()
        results: list[T] = []

        async def travel() -> None:
            await trio.sleep(self._world.latency_s())
            results.append(await act())
            await trio.sleep(self._world.latency_s())
            answered.set()

        self._world.send(travel)
        with trio.move_on_after(NO_ANSWER_S):
            await answered.wait()
        await self.line.pass_through()
        if not answered.is_set() or not self.reaches_database() or self._world.loses_answer():
            raise OutcomeUnknownError("simulated: the answer was lost")
        return results[0]

    def is_serving(self, shard: int) -> bool:
        """Whether this server answers for the shard."""
        host = self._host
        return host is not None and host.is_valid() and shard in self.owned.epochs


@final
class PausingBus:
    """The bus as a process reaches it: while the process is paused it neither sends nor receives."""

    def __init__(self, bus: MemoryBus, line: Line) -> None:
        self._bus = bus
        self._line = line

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
        return None if self._line.is_stopped else self._bus.send(to, frame)

    def broadcast(self, frame: bytes) -> bool:
        """Send a frame to every other server."""
        return not self._line.is_stopped and self._bus.broadcast(frame)

    async def receive(self) -> Arrival:
        """Wait for the next arrival, and for the end of a pause."""
        arrival = await self._bus.receive()
        await self._line.pass_through()
        return arrival


@final
class RemoteLeases:
    """The leases of the world's database, as one server reaches them."""

    def __init__(self, server: SimServer, world: Network) -> None:
        self._call = server.call
        self._inner = world.leases
        self._world = world

    async def enter(self, server: ServerIdentity) -> None:
        """Get a lease without shards."""
        await self._call(lambda: self._inner.enter(server))

    async def renew(self, incarnation: str) -> Mapping[int, int] | None:
        """Extend the lease."""
        return await self._call(lambda: self._inner.renew(incarnation))

    async def take(self, incarnation: str, shards: Collection[int]) -> Mapping[int, int]:
        """Take shards that are free."""

        async def act() -> Mapping[int, int]:
            free = self._world.free()
            taken = await self._inner.take(incarnation, shards)
            self._world.taken(incarnation, taken, free)
            return taken

        return await self._call(act)

    async def release(self, incarnation: str, shards: Collection[int], *, to: str | None = None) -> None:
        """Give shards up."""

        async def act() -> None:
            await self._inner.release(incarnation, shards, to=to)
            self._world.released(incarnation, shards)

        await self._call(act)

    async def leave(self, incarnation: str) -> None:
        """Give everything up."""

        async def act() -> None:
            await self._inner.leave(incarnation)
            self._world.released(incarnation, self._world.shards)

        await self._call(act)

    async def servers(self) -> Sequence[ServerState]:
        """Every server that has entered."""
        return await self._call(self._inner.servers)

    async def report_clock(self, incarnation: str, clock_ms: int) -> None:
        """Say what this server's clock shows now."""
        await self._call(lambda: self._inner.report_clock(incarnation, clock_ms))


def counters_of(shards: Collection[int]) -> tuple[str, ...]:
    """Two counters in each shard."""
    made = tuple(f"{shard:02x}000000-0000-4000-8000-00000000000{number}" for shard in shards for number in (1, 2))
    assert {shard_of(counter) for counter in made} == set(shards)
    return made
