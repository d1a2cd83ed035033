"""A world of three to five servers, callers that reach any of them, and faults.

Checked at each step: every epoch has one owner and epochs rise; every write is made by the owner at its epoch; no shard
is taken from a server that lost its database only together with all others; a read returns at least what was
acknowledged before it began; nothing acknowledged is lost, and no call has its effect twice, or at all after an answer
that says it had none. After the faults: within 15 s every shard is served by
exactly one server, and within a minute no server has much more than its share.
"""

from __future__ import annotations

import random  # noqa: TID251  (generators made of the seed only)
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from math import ceil
from typing import TYPE_CHECKING, Final, final

import trio

from sightline.actors.shards import shard_of
from sightline.cluster.bus.memory import MemoryNetwork
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.placement import IMBALANCE
from sightline.ports.leases import TTL_MS
from simulation.memory.identity import MemoryRelations
from simulation.memory.leases import MemoryShardLeases
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from simulation.runtime import SimWallClock, run_virtual, silenced_logs
from simulation.servers.server import SimServer, counters_of
from simulation.trace import Trace

if TYPE_CHECKING:
    from sightline.ports.clock import Clock
    from sightline.ports.store import HeartbeatWrite

SHARDS: Final = range(24)
CALLERS: Final = 4
SLOW_S: Final = 8.0
"""Longest time that a message travels."""
PATIENCE_S: Final = 12.0
"""How long a caller waits. The connections of a process that was killed break; here its calls never return."""
ACTIVE_S: Final = 45.0
HEALED_S: Final = 15.0
MOVE_S: Final = 3.0
"""A planned move takes less than this; nearly all of it is for turns in progress."""
SAMPLE_S: Final = 0.25
BALANCED_S: Final = 40.0


def simulate_servers(seed: int) -> ServersWorld:
    """Run the world of a seed."""
    worlds: list[ServersWorld] = []

    async def main() -> None:
        world = ServersWorld(seed)
        worlds.append(world)
        await world.run()

    with silenced_logs():
        run_virtual(seed, main)
    return worlds[0]


@final
class ServersWorld(Trace):
    """Everything that one seed determines. Create it and `run` it inside `run_virtual`."""

    def __init__(self, seed: int) -> None:
        self._scope = trio.CancelScope()
        self.clock: Clock = SimWallClock()
        super().__init__(self.clock, self._scope.cancel)
        self.seed = seed
        self.shards: Collection[int] = SHARDS
        self._store = MemoryStore(relations=MemoryRelations(token_key=b"simulation" * 4), ledger=MemoryLedger())
        self.leases = MemoryShardLeases(self._store, self.clock.now_ms)
        self.bus = MemoryNetwork(self._carry)
        self._silent: Counter[tuple[str, str]] = Counter()
        """Faults that keep the frames of one server from another one now."""
        self.steps = 0
        self._chance = self.rng("chance")
        self._latency_s = self._chance.choice((0.001, 0.02, 0.2))
        self._lost_frames = self._chance.choice((0.0, 0.01))
        self._lost_answers = self._chance.choice((0.0, 0.01, 0.05))
        self._is_quiet = False
        self._counters = counters_of(SHARDS)
        self._owners: dict[int, tuple[str, int]] = {}
        self._released: set[int] = set()
        self._acknowledged = dict.fromkeys(self._counters, 0)
        self._possible = dict.fromkeys(self._counters, 0)
        """Number of calls of `add` that may have had an effect."""
        self._outage_ended_ms = -TTL_MS
        self._network: trio.Nursery | None = None
        self.servers = [SimServer(self, number) for number in range(self._chance.randint(3, 5))]

    def rng(self, name: str) -> random.Random:
        """A generator for one part of the world."""
        return random.Random(f"{self.seed}/{name}")

    def require(self, holds: bool, checker: str, text: str) -> None:
        """Report a broken promise unless the condition is true; the first one ends the world."""
        if not holds and self.violation is None:
            self.violate(checker, text)

    # The network.

    def send(self, travel: Callable[[], Awaitable[None]]) -> None:
        """Carry a request, whatever becomes of its sender."""
        assert self._network is not None
        self._network.start_soon(travel)

    def latency_s(self) -> float:
        """How long one message travels; sometimes seconds."""
        if not self._is_quiet and self._chance.random() < 0.01:
            return self._chance.random() * SLOW_S
        return self._latency_s * (0.5 + self._chance.random())

    def loses_answer(self) -> bool:
        """Whether the answer to a call is lost."""
        return not self._is_quiet and self._chance.random() < self._lost_answers

    def _carry(self, sender: str, receiver: str) -> float | None:
        """The delay of a frame between two servers; None: it is lost."""
        if self._silent[sender, receiver]:
            return None
        if not self._is_quiet and self._chance.random() < self._lost_frames:
            return None
        return self.latency_s() / 10

    # The database: each step is checked when it is made.

    async def value_of(self, counter: str) -> int:
        """The stored value of a counter."""
        newest = await self._store.latest_heartbeat(counter)
        return newest.sequence if newest is not None else 0

    async def append(self, owner: str, write: HeartbeatWrite) -> bool:
        """Store a write; False if its lease is lost."""
        lost = await self._store.append_heartbeats([write])
        shard, beat = write.lease.shard, write.heartbeats[0]
        self.note("rejected" if lost else "write", owner, shard, write.lease.epoch, beat.sequence)
        if not lost:
            self.steps += 1
            holder = self._owners.get(shard)
            text = f"{owner} wrote shard {shard} at epoch {write.lease.epoch} while {holder} owns it"
            self.require(holder == (owner, write.lease.epoch), "epochs", text)
        return not lost

    def free(self) -> frozenset[int]:
        """The shards whose owner gave them up or was ended."""
        ended = {shard for shard, (owner, _) in self._owners.items() if owner not in self.leases._leases}
        return frozenset(ended | self._released)

    def taken(self, incarnation: str, epochs: Mapping[int, int], free: Collection[int]) -> None:
        """A server took shards; `free` is what was free before."""
        if epochs:
            self.note("take", incarnation, *(f"{shard}:{epoch}" for shard, epoch in epochs.items()))
        for shard, epoch in epochs.items():
            owner, before = self._owners.get(shard, ("", 0))
            self.require(epoch > before, "epochs", f"epoch of shard {shard} went from {before} to {epoch}")
            is_alive = any(server.name == owner and not server.process.is_dead for server in self.servers)
            after_outage = self.clock.now_ms() - self._outage_ended_ms < TTL_MS
            is_stolen = is_alive and after_outage and shard not in free
            self.require(not is_stolen, "no theft", f"{incarnation} took shard {shard} of {owner} after an outage")
            self._owners[shard] = (incarnation, epoch)
            self._released.discard(shard)

    def released(self, incarnation: str, shards: Collection[int]) -> None:
        """A server gave shards up."""
        self.note("release", incarnation, *sorted(shards))
        self._released |= {shard for shard in shards if self._owners.get(shard, ("", 0))[0] == incarnation}

    # Running.

    async def run(self) -> None:
        """Run the active phase with faults, then the quiet phase; `violation` says what broke first."""
        with self._scope:
            async with trio.open_nursery() as self._network, trio.open_nursery() as nursery:
                for server in self.servers:
                    nursery.start_soon(server.run)
                for number in range(CALLERS):
                    nursery.start_soon(self._call_forever, self.rng(f"caller {number}"))
                with trio.move_on_after(ACTIVE_S):
                    await self._disturb()
                await self._heal()
                nursery.cancel_scope.cancel()
                self._network.cancel_scope.cancel()

    async def _heal(self) -> None:
        self._is_quiet = True
        self.note("quiet")
        self._silent.clear()
        for server in self.servers:
            server.machine.cuts = 0
        await trio.sleep(HEALED_S - MOVE_S)
        # A shard that is being handed over is served by none for a moment.
        unserved = set(self.shards)
        for _ in range(int(MOVE_S / SAMPLE_S)):
            for shard in self.shards:
                serving = [server.name for server in self.servers if server.is_serving(shard)]
                self.require(len(serving) < 2, "healed", f"shard {shard} is served by {serving}")
                if serving:
                    unserved.discard(shard)
            await trio.sleep(SAMPLE_S)
        self.require(not unserved, "healed", f"shards {sorted(unserved)} are not served after {HEALED_S} s")
        await trio.sleep(BALANCED_S - HEALED_S)
        share = ceil(len(SHARDS) / len(self.servers))
        sizes = {server.name: len(server.epochs) for server in self.servers}
        self.require(max(sizes.values()) <= share * IMBALANCE, "balance", f"the shards are spread {sizes}")
        for counter in self._counters:
            stored = await self.value_of(counter)
            text = f"{counter} is {stored}, and {self._acknowledged[counter]} was acknowledged"
            self.require(stored >= self._acknowledged[counter], "nothing lost", text)
            text = f"{counter} is {stored}, and {self._possible[counter]} calls may have counted"
            self.require(stored <= self._possible[counter], "at most once", text)

    # Callers.

    async def _call_forever(self, rng: random.Random) -> None:
        while True:
            await trio.sleep(rng.random() * 0.2)
            counter = rng.choice(self._counters)
            server = self._server_for(counter, rng)
            try:
                with trio.move_on_after(PATIENCE_S):
                    await self._call(server, counter, is_add=rng.random() < 0.5)
            except (UnavailableError, OutcomeUnknownError) as error:
                self.counts[type(error).__name__] = self.counts.get(type(error).__name__, 0) + 1

    async def _call(self, server: SimServer, counter: str, *, is_add: bool) -> None:
        before = self._acknowledged[counter]
        if is_add:
            self._possible[counter] += 1
            try:
                value = await server.add(counter)
            except UnavailableError:
                self._possible[counter] -= 1
                raise
            text = f"{server.name} counted {counter} to {value}, {before} was acknowledged before"
            self.require(value > before, "nothing lost", text)
            self._acknowledged[counter] = max(value, self._acknowledged[counter])
            return
        value = await server.read(counter)
        self.note("read", server.name, counter, value)
        text = f"{server.name} read {value} of {counter}, {before} was acknowledged before"
        self.require(value >= before, "fresh reads", text)

    def _server_for(self, counter: str, rng: random.Random) -> SimServer:
        """Any server; more often the owner."""
        owner, _ = self._owners.get(shard_of(counter), ("", 0))
        owners = [server for server in self.servers if server.name == owner]
        return rng.choice(owners if owners and rng.random() < 0.6 else self.servers)

    # Faults.

    async def _disturb(self) -> None:
        rng = self.rng("faults")
        every = (
            self._pause,
            self._cut,
            self._kill,
            self._outage,
            self._roll,
            self._stop,
            self._part,
            self._isolate,
        )
        # Few kinds of faults in one world: an outage, for example, hides what follows from a cut (swarm testing).
        faults = rng.sample(every, rng.randint(1, 4))
        await trio.sleep(3)
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(rng.choice(faults), rng)
                await trio.sleep(1 + rng.random() * 9)

    async def _pause(self, rng: random.Random) -> None:
        """Suspend a process."""
        process, seconds = rng.choice(self.servers).process, rng.choice((1, 4, 8, 30)) * (0.5 + rng.random())
        self.note("pause", seconds)
        process.pause()
        try:
            await trio.sleep(seconds)
        finally:
            process.resume()

    async def _cut(self, rng: random.Random) -> None:
        """Cut one server off the database."""
        server, seconds = rng.choice(self.servers), rng.random() * 20
        self.note("cut", server.name, seconds)
        server.machine.cuts += 1
        await trio.sleep(seconds)
        server.machine.cuts -= 1

    async def _part(self, rng: random.Random) -> None:
        """Lose all frames of one server to another one, and sometimes back."""
        one, other = rng.sample([server.name for server in self.servers], 2)
        pairs = [(one, other), (other, one)][: rng.choice((1, 2))]
        await self._silence(pairs, rng.random() * 20)

    async def _isolate(self, rng: random.Random) -> None:
        """Cut one server off the bus."""
        name = rng.choice(self.servers).name
        others = [server.name for server in self.servers if server.name != name]
        pairs = [pair for other in others for pair in ((name, other), (other, name))]
        await self._silence(pairs, rng.random() * 20)

    async def _silence(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        self.note("part", seconds, *(f"{sender}>{receiver}" for sender, receiver in pairs))
        self._silent.update(pairs)
        await trio.sleep(seconds)
        self._silent.subtract(pairs)
        self._silent = +self._silent

    async def _outage(self, rng: random.Random) -> None:
        """Cut all servers off the database."""
        seconds = rng.random() * 24
        self.note("outage", seconds)
        for server in self.servers:
            server.machine.cuts += 1
        await trio.sleep(seconds)
        for server in self.servers:
            server.machine.cuts -= 1
        # A renewal that travels when the outage begins may keep a lease through a shorter one.
        if seconds > TTL_MS / 1_000 + SLOW_S:
            self._outage_ended_ms = self.clock.now_ms()

    async def _kill(self, rng: random.Random) -> None:
        await rng.choice(self.servers).kill()

    async def _stop(self, rng: random.Random) -> None:
        await rng.choice(self.servers).stop()

    async def _roll(self, rng: random.Random) -> None:
        """Restart every server, one after the other."""
        for server in self.servers:
            await server.stop()
            await trio.sleep(2 + rng.random() * 4)
