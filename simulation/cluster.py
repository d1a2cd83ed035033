"""A service of several servers in a world: its machines, the bus and the leases between them, and their faults.

Callers reach any server. In the quiet phase it is checked that every shard is served again by exactly one server and
that every server answers for every shard.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.shards import EVERY_SHARD
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.session.model import Live
from sightline.ports.store import SHARDS
from simulation.checkers.folded import beats_not_folded
from simulation.node import Node
from simulation.servers.member import SimMachine, SimMember
from simulation.servers.network import WorldNetwork

if TYPE_CHECKING:
    import random  # noqa: TID251  (generators seeded from the world's seed only)
    from collections.abc import Awaitable, Callable, Sequence

    from sightline.actors.service.broker import Broker
    from sightline.ports.clock import Clock
    from simulation.faults import Faults
    from simulation.history import History
    from simulation.memory.store import MemoryStore
    from simulation.node import WorldParts

RESTART_S: Final = 4.0
"""Longest time until a process is started again."""
PATIENCE_S: Final = 12.0
"""How long a caller waits for a server, which may be suspended."""
SWITCH: Final = 0.03
"""Chance that a caller that keeps to one server chooses another one."""
HEALED_S: Final = 15.0
MOVE_S: Final = 3.0
"""A planned move takes less than this."""
SAMPLE_S: Final = 0.25
SETTLED_S: Final = 25.0
"""Lost messages must be repaired within this time after the last fault."""
PROBES: Final = 32
"""Shards for which every server must answer after the faults."""


@final
class ServerPlace:
    """One machine: its process is started again after it ended, each time as a new incarnation."""

    def __init__(self, machine: SimMachine) -> None:
        self.machine = machine
        self.starts = 0
        self.node: Node | None = None

    @property
    def ready(self) -> Node | None:
        """The process, if it answers."""
        return self.node if self.node is not None and self.node.is_ready else None


@final
class Cluster:
    """The servers of one world that has several, and the faults between them."""

    def __init__(
        self,
        *,
        rng: Callable[[str], random.Random],
        clock: Clock,
        store: MemoryStore,
        history: History,
        faults: Faults,
        on_fault: Callable[[], None],
    ) -> None:
        """Create a service that does not run yet.

        Args:
            on_fault: Called when a fault begins or ends.
        """
        self.clock = clock
        self._history = history
        self._faults = faults
        self._on_fault = on_fault
        self._chance = rng("cluster")
        self._lost_frames = self._chance.choice((0.0, 0.01, 0.05))
        self._lost_answers = self._chance.choice((0.0, 0.01, 0.05))
        self.network = WorldNetwork(
            clock=clock,
            store=store,
            history=history,
            latency_s=faults.latency_s,
            loses_answer=lambda: faults.hits(self._lost_answers),
            route=self._carry,
        )
        count = self._chance.randint(2, 5)
        self.places = [
            ServerPlace(SimMachine(number, self._chance.randrange(-3_600_000, 3_600_000))) for number in range(count)
        ]
        self._silent: Counter[tuple[str, str]] = Counter()
        """Faults that keep the frames of one server from another one now."""
        self._disturbing = trio.CancelScope()
        self._kept: dict[str, ServerPlace] = {}
        """The server of each caller that keeps to one."""
        self._inputs: dict[str, Node] = {}
        """The server that each publisher of a session is connected to."""

    # Running.

    async def run(self, outside: WorldParts) -> None:
        """Run every server, and start it again whenever it has ended."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.network.run)
            for place in self.places:
                nursery.start_soon(self._run_place, place, outside)

    async def _run_place(self, place: ServerPlace, outside: WorldParts) -> None:
        while True:
            place.starts += 1
            name = f"node-{place.machine.number}.{place.starts}"
            node = place.node = Node(outside, name, machine=place.machine, join=self._joining(place.machine))
            self._history.note("start", name)
            await node.run()
            self.network.bus.leave(name)
            self._on_fault()
            await trio.sleep(self._chance.random() * RESTART_S)

    def _joining(self, machine: SimMachine) -> Callable[[Node], SimMember]:
        return lambda node: SimMember(self.network, machine, node.name, node.process)

    # What callers reach.

    @property
    def nodes(self) -> Sequence[Node]:
        """The processes that answer."""
        return [node for place in self.places if (node := place.ready) is not None]

    def node_for(self, caller: str | None) -> Node | None:
        """The server that a call reaches: any one, or the one that this caller keeps to for a while."""
        if caller is None:
            nodes = self.nodes
            return self._chance.choice(nodes) if nodes else None
        place = self._kept.get(caller)
        if place is None or place.ready is None or self._chance.random() < SWITCH:
            place = self._kept[caller] = self._chance.choice(self.places)
        return place.ready

    def publisher_of(self, session_id: str) -> Node | None:
        """The server that receives the media of a session: the same one while its input exists there."""
        node = self._inputs.get(session_id)
        if node is not None and node.is_ready and node.has_input(session_id):
            return node
        having = [node for node in self.nodes if node.has_input(session_id)]
        if not having:
            return None
        self._inputs[session_id] = self._chance.choice(having)
        return self._inputs[session_id]

    @property
    def life(self) -> str:
        """A text that changes when actors lose what they hold only in memory."""
        return "/".join(
            [str(self.network.moves), *(f"{node.name}:{node.registry.reloads(SESSION)}" for node in self.nodes)]
        )

    # The network.

    def _carry(self, sender: str, receiver: str) -> float | None:
        """The delay of a frame between two servers; None: it is lost."""
        if self._silent[sender, receiver] or self._faults.hits(self._lost_frames):
            self._on_fault()
            return None
        return self._faults.latency_s() / 4

    # Faults.

    async def disturb(self) -> None:
        """Let faults happen, several at once, until `heal`."""
        on_servers = (self._pause, self._kill, self._stop, self._roll)
        on_messages = (self._part, self._part, self._isolate)
        on_database = (self._cut, self._outage)
        # Faults that restart servers hide what lost messages alone would show, so some worlds have one sort only.
        sorts = ((*on_servers, *on_messages, *on_database), on_messages, (*on_messages, *on_database), on_servers)
        faults = self._chance.choice(sorts)
        with self._disturbing:
            async with trio.open_nursery() as nursery:
                while True:
                    await trio.sleep(2 + self._chance.random() * 16)
                    nursery.start_soon(self._happen, self._chance.choice(faults))

    async def _happen(self, fault: Callable[[], Awaitable[None]]) -> None:
        self._on_fault()
        try:
            await fault()
        finally:
            self._on_fault()

    def heal(self) -> None:
        """End all faults."""
        self._disturbing.cancel()
        self._history.truth.healed_ms = self.clock.now_ms()
        self._silent.clear()
        for place in self.places:
            place.machine.cuts = 0

    @property
    def is_healed(self) -> bool:
        """Whether the faults ended so long ago that every call must be answered."""
        healed_ms = self._history.truth.healed_ms
        return healed_ms is not None and self.clock.now_ms() >= healed_ms + HEALED_S * 1_000

    def _any(self) -> ServerPlace:
        return self._chance.choice(self.places)

    async def _pause(self) -> None:
        """Suspend a process."""
        node, seconds = self._any().node, self._chance.choice((1, 4, 8, 30)) * (0.5 + self._chance.random())
        if node is None:
            return
        self._history.note("pause", node.name, seconds)
        node.process.pause()
        try:
            await trio.sleep(seconds)
        finally:
            node.process.resume()

    async def _cut(self) -> None:
        """Cut one server off the database."""
        await self._cut_off([self._any()], self._chance.random() * 20)

    async def _outage(self) -> None:
        """Cut all servers off the database."""
        await self._cut_off(self.places, self._chance.random() * 15)

    async def _cut_off(self, places: Sequence[ServerPlace], seconds: float) -> None:
        self._history.note("cut", seconds, *(place.machine.number for place in places))
        for place in places:
            place.machine.cuts += 1
        await trio.sleep(seconds)
        for place in places:
            place.machine.cuts -= 1

    async def _part(self) -> None:
        """Lose all frames of one server to another one, and sometimes back."""
        one, other = self._chance.sample(self._names(), 2)
        await self._silence([(one, other), (other, one)][: self._chance.choice((1, 2))])

    async def _isolate(self) -> None:
        """Cut one server off the bus."""
        name, *others = self._chance.sample(self._names(), len(self.places))
        await self._silence([pair for other in others for pair in ((name, other), (other, name))])

    def _names(self) -> list[str]:
        return [place.node.name if place.node is not None else "" for place in self.places]

    async def _silence(self, pairs: Sequence[tuple[str, str]]) -> None:
        seconds = self._chance.random() * 30
        self._history.note("part", seconds, *(f"{sender}>{receiver}" for sender, receiver in pairs))
        self._silent.update(pairs)
        await trio.sleep(seconds)
        self._silent.subtract(pairs)
        self._silent = +self._silent

    async def _kill(self) -> None:
        """Kill a process."""
        node = self._any().node
        if node is not None:
            node.kill()

    async def _stop(self) -> None:
        """Stop a process in order."""
        await self._stop_at(self._any())

    async def _roll(self) -> None:
        """Restart every server in order, one after the other."""
        for place in self.places:
            await self._stop_at(place)
            await trio.sleep(2 + self._chance.random() * 4)

    async def _stop_at(self, place: ServerPlace) -> None:
        if (node := place.ready) is not None:
            await node.stop()

    # After the faults.

    async def check_healed(self) -> None:
        """Check that every shard is served again within the allowed time."""
        await trio.sleep(HEALED_S - MOVE_S)
        # A shard that is being handed over is served by none for a moment.
        unserved = set(EVERY_SHARD)
        for _ in range(int(MOVE_S / SAMPLE_S)):
            members = [(node.name, node.member) for node in self.nodes]
            serving = Counter(
                shard for _, member in members if member.membership.is_valid() for shard in member.owned.epochs
            )
            for shard, count in serving.items():
                if count > 1:
                    names = [name for name, member in members if member.is_serving(shard)]
                    self._history.violate("healed", f"shard {shard} is served by {names}")
            unserved -= serving.keys()
            await trio.sleep(SAMPLE_S)
        if unserved:
            self._history.violate("healed", f"shards {sorted(unserved)} are not served after {HEALED_S} s")
        async with trio.open_nursery() as nursery:
            for place in self.places:
                nursery.start_soon(self._probe, place)
        await trio.sleep(SETTLED_S - HEALED_S)
        self._check_folded()

    async def _probe(self, place: ServerPlace) -> None:
        """Ask one server for actors of many shards."""
        node = place.ready
        if node is None:
            self._history.violate("healed", f"server {place.machine.number} does not run")
            return
        for number in range(PROBES):
            shard = (number * SHARDS // PROBES + place.machine.number) % SHARDS
            error = await self._ask_for(node, f"{shard:02x}000000-0000-4000-8000-000000000000")
            if error is not None:
                self._history.violate("healed", f"{node.name} does not answer for shard {shard}: {error!r}")

    async def _ask_for(self, node: Node, session_id: str) -> SightlineError | None:
        """Read an unknown session; again for a moment if its shard is being handed over. Returns why it failed."""
        until, failed = trio.current_time() + MOVE_S, None
        while trio.current_time() < until:
            try:
                await node.serve(partial(_read_unknown, session_id))
            except RefusedError:
                return None
            except SightlineError as error:
                failed = error
            await trio.sleep(SAMPLE_S)
        return failed

    def _check_folded(self) -> None:
        """Check that every LIVE session counts the stored heartbeats of its operator."""
        for node in self.nodes:
            for session_id, session in node.registry.snapshots(SESSION):
                if isinstance(session.phase, Live) and node.member.membership.is_valid():
                    lost = beats_not_folded(self._history, session)
                    if lost:
                        self._history.violate("folded", f"{node.name} lost the heartbeats {lost[:5]} of {session_id}")
                    operator = session.phase.operator.workspace_id
                    self._history.note("folded", session_id, self._reported_here(node, operator))

    def _reported_here(self, node: Node, workspace_id: str) -> bool:
        """Whether the operator's workspace is an actor of the same server."""
        return node.registry.peek(WORKSPACE, workspace_id) is not None


async def _read_unknown(session_id: str, broker: Broker) -> object:
    return await broker.reads.read_session(session_id, "nobody")
