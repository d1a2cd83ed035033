"""One server of a world of several: the real kernel and the real host of shards, over a network that fails."""

from __future__ import annotations

import random  # noqa: TID251  (generators seeded from the world's seed only)
from typing import TYPE_CHECKING, Protocol, final

import trio

from sightline.actors.kernel import KernelOptions, Registry
from sightline.actors.shards import shard_of
from sightline.cluster.membership import LeaseEndedError
from sightline.cluster.peers import codec
from sightline.domain.errors import StoreUnavailableError
from simulation.adapters.store import Process
from simulation.servers.counter import COUNTER, Add, Counter, Get
from simulation.servers.member import Network, SimMachine, SimMember

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sightline.ports.store import HeartbeatWrite

codec.extend({900: Add, 901: Get})

QUESTIONS = {Get}
ASK_TIMEOUT_S = 10.0
RESTART_S = 1.0


class CounterNetwork(Network, Protocol):
    """The database and the network of a world with counters."""

    def rng(self, name: str) -> random.Random:
        """A generator for one part of the world."""
        ...

    async def value_of(self, counter: str) -> int:
        """The stored value of a counter."""
        ...

    async def append(self, owner: str, write: HeartbeatWrite) -> bool:
        """Store a write; False if its lease is lost."""
        ...


@final
class SimServer:
    """One place: a process that is started again after it ended, each time with a new incarnation."""

    def __init__(self, world: CounterNetwork, number: int) -> None:
        self._world = world
        self._rng = world.rng(f"server {number}")
        self.machine = SimMachine(number, self._rng.randrange(-3_600_000, 3_600_000))
        self._starts = 0
        self.name = ""
        """The incarnation."""
        self.process = Process()
        self._member: SimMember | None = None
        self._registry: Registry | None = None
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    # The life of the process.

    async def run(self) -> None:
        """Start the process again whenever it has ended."""
        while True:
            self._starts += 1
            self.name, self.process = f"{self.machine.number}.{self._starts}", Process()
            self._scope, self._ended = trio.CancelScope(), trio.Event()
            self._world.note("start", self.name)
            with self._scope:
                await self._live()
            self._member = None
            self._ended.set()
            await trio.sleep(RESTART_S)

    async def _live(self) -> None:
        member = SimMember(self._world, self.machine, self.name, self.process, questions=QUESTIONS)
        registry = self._registry = Registry(
            clock=self._world.clock,
            rng=random.Random(self.name),
            options=KernelOptions(sweep_every_s=3_600, clock_check_s=3_600),
            owns=member.owned.owns,
            remote=member.peers,
        )
        registry.register(COUNTER, lambda context: Counter(context, member.owned, self._load, self._write))
        async with trio.open_nursery() as nursery:
            await nursery.start(registry.run)
            member.membership.attach(registry, self._recover)
            await nursery.start(member.peers.run)
            self._member = member
            await member.join()
            nursery.start_soon(member.membership.run)
            try:
                await member.membership.keep()
            except LeaseEndedError:
                self._world.note("ended", self.name)
            nursery.cancel_scope.cancel()

    async def _recover(
        self, shards: Collection[int], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self._world.note("taken", self.name, *sorted(shards))
        task_status.started()

    async def kill(self) -> None:
        """Kill the process, without any clean-up that has an effect."""
        self.process.cut()
        self._world.note("kill", self.name)
        self._scope.cancel()
        await self._ended.wait()
        self._world.bus.leave(self.name)

    async def stop(self) -> None:
        """Stop the process as SIGTERM does: its shards are given up."""
        self._world.note("stop", self.name)
        try:
            if (member := self._member) is not None:
                await member.membership.hand_over()
                await member.membership.leave()
        except trio.Cancelled:
            self._scope.cancel()  # a server that has begun to stop does not serve again
            raise
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
        await self.process.pass_through()
        if self._member is None or not self._member.membership.is_valid():
            raise StoreUnavailableError("the lease was not renewed")
        # What the pipeline awaits between this check and the handler.
        await trio.sleep(self._rng.random() * 0.01)
        await self.process.pass_through()

    def _require_registry(self) -> Registry:
        assert self._registry is not None
        return self._registry

    def _require_member(self) -> SimMember:
        assert self._member is not None
        return self._member

    # The database, as this server reaches it.

    async def _load(self, counter: str) -> int:
        return await self._require_member().link.call(lambda: self._world.value_of(counter))

    async def _write(self, write: HeartbeatWrite) -> bool:
        owner = self.name
        return await self._require_member().link.call(lambda: self._world.append(owner, write))

    @property
    def epochs(self) -> Mapping[int, int]:
        """The shards that this server owns, with their epochs."""
        return self._member.owned.epochs if self._member is not None else {}

    def is_serving(self, shard: int) -> bool:
        """Whether this server answers for the shard."""
        return self._member is not None and self._member.is_serving(shard)


def counters_of(shards: Collection[int]) -> tuple[str, ...]:
    """Two counters in each shard."""
    made = tuple(f"{shard:02x}000000-0000-4000-8000-00000000000{number}" for shard in shards for number in (1, 2))
    assert {shard_of(counter) for counter in made} == set(shards)
    return made
