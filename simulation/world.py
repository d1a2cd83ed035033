"""A world: one seed, one store that survives every crash, servers that do not survive, and faults between them.

with seed S:  virtual clock, seeded scheduler, seeded ids and random decisions
a scenario    starts devices and consumers, which call the broker as the HTTP layer does
chaos         kills and pauses servers
checkers      check every committed step and every answer
quiet phase   faults stop, and everything must finish
"""

from __future__ import annotations

import random  # noqa: TID251  (generators made of the seed only)
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from sightline.actors.deps import SESSION
from sightline.actors.messages import RecordSettlement
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.session.messages import SettlementMined
from sightline.domain.session.model import Ended, Session
from sightline.domain.value import Value
from sightline.ports.ledger import BlockApplication, BlockRef, WalletReading
from simulation.checkers import all_checkers
from simulation.cluster import PATIENCE_S, Cluster
from simulation.faults import FaultRates, Faults
from simulation.history import History
from simulation.memory.identity import MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from simulation.node import Node, WorldParts
from simulation.runtime import SeededIds, SimWallClock, VirtualClock
from simulation.servers.member import SimMachine, SimMember
from simulation.servers.network import WorldNetwork

if TYPE_CHECKING:
    from sightline.actors.service.broker import Broker
    from sightline.ports.video import MediaKind
    from simulation.history import Checker

T = TypeVar("T")

CALL_LIMIT_S: Final = 200.0
"""Longest time of a broker call: its asks have deadlines, and the slowest fault bounds its store calls."""
READY_LIMIT_S: Final = 300.0
QUIET_LIMIT_S: Final = 1_200
"""Enough for the longest session of a scenario, its deadlines, and the recovery after a crash."""
ZOMBIE_S: Final = 25.0
MINE_EVERY_S: Final = 7.0
GRAPH_APART: Final = 0.3


class NodeLostError(OutcomeUnknownError):
    """The server died while it was handling the call."""


class NodeDownError(UnavailableError):
    """No server is running."""


@final
class WorldOptions(Value, kw_only=True):
    """Options of a world.

    Attributes:
        active_s: Length of the phase with requests and faults, in virtual seconds; the quiet phase comes after it.
        rates: Fault rates; None draws them from the seed.
        funds_policy: Value of the server's setting FUNDS_POLICY.
        is_cluster: The service has several servers, with faults between them.
    """

    active_s: float = 180.0
    rates: FaultRates | None = None
    funds_policy: str = "advisory"
    is_cluster: bool = False


@final
class World:
    """A simulated world: everything that one seed determines. Create it and run it inside `run_virtual`."""

    def __init__(self, seed: int, options: WorldOptions, checkers: Sequence[Checker] = ()) -> None:
        self.seed = seed
        self.options = options
        self.clock = SimWallClock()
        self.ids = SeededIds(self.rng("ids"))
        self.ledger = MemoryLedger()
        self.relations = MemoryRelations(token_key=b"simulation" * 4)
        self.store = MemoryStore(relations=self.relations, ledger=self.ledger)
        rates = options.rates if options.rates is not None else FaultRates.drawn(self.rng("rates"))
        self.faults = Faults(rates, self.rng("faults"))
        self._scope = trio.CancelScope()
        self.history = History(
            clock=self.clock,
            store=self.store,
            ledger=self.ledger,
            checkers=[*all_checkers(), *checkers],
            on_violation=self._scope.cancel,
        )
        self.cluster = self._make_cluster() if options.is_cluster else None
        self.born_ms = self.clock.now_ms()
        self.is_over = False
        """Whether the quiet phase has begun, in which no new sessions are requested."""
        self.has_external_graph = self.rng("graph").random() < GRAPH_APART
        """Whether the authorization graph is a separate system in this world."""
        self.report = ""
        self._network = self.cluster.network if self.cluster is not None else self._quiet_network()
        self._running: list[Node] = []
        """Of a server that is alone: its processes, the newest last. A spare waits until the other's lease ends."""
        self._starts = 0
        self._machine = SimMachine(0, 0)
        self._block = 0
        self._nursery: trio.Nursery | None = None
        self._people: trio.Nursery | None = None

    def _make_cluster(self) -> Cluster:
        return Cluster(
            rng=self.rng,
            clock=self.clock,
            store=self.store,
            history=self.history,
            faults=self.faults,
            on_fault=self.disturbed,
        )

    def _quiet_network(self) -> WorldNetwork:
        """The leases of a server that is alone. That they fail is for the worlds of several servers."""
        latency = self.rng("leases")
        return WorldNetwork(
            clock=self.clock, store=self.store, history=self.history, latency_s=lambda: latency.random() * 0.005
        )

    def rng(self, name: str) -> random.Random:
        """Return a random generator for one part of the world, so that parts do not influence each other."""
        return random.Random(f"{self.seed}/{name}")

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery of consumers and devices; it ends with the quiet phase."""
        assert self._people is not None
        return self._people

    @property
    def node(self) -> Node | None:
        """A server that callers reach, if one answers."""
        return self.node_for(None)

    def node_for(self, caller: str | None) -> Node | None:
        """The server that a call reaches, if it answers; of several, a named caller keeps to one for a while."""
        if self.cluster is not None:
            return self.cluster.node_for(caller)
        return next((node for node in reversed(self._running) if node.is_ready), None)

    @property
    def life(self) -> str:
        """A text that changes whenever session actors lose what they hold only in memory."""
        if self.cluster is not None:
            return self.cluster.life
        node = self.node
        return f"{node.name}/{node.registry.reloads(SESSION)}" if node is not None else "none"

    # Calls from outside.

    def publish(self, session_id: str, kind: MediaKind) -> bool:
        """Publish frames of a session, or stop publishing. Returns whether a server has the session's input."""
        node = self.node if self.cluster is None else self.cluster.publisher_of(session_id)
        return node is not None and node.video is not None and node.video.publish(session_id, kind)

    async def call(self, what: str, act: Callable[[Broker], Awaitable[T]], *, by: str | None = None) -> T:
        """Call the broker of a server, as a connection to it would.

        Args:
            by: A caller that keeps to one of several servers for a while; None: any server.

        Raises:
            NodeDownError: No server is running.
            NodeLostError: The connection broke; the outcome is unknown.
        """
        node = self.node_for(by)
        if node is None:
            await trio.sleep(0.2)
            raise NodeDownError("no server listens")
        limit_s = CALL_LIMIT_S if self.cluster is None else PATIENCE_S
        scope = trio.CancelScope(deadline=trio.current_time() + limit_s)
        node.calls[scope] = None
        is_healed = self.cluster is not None and self.cluster.is_healed
        try:
            with scope:
                return await node.serve(act)
        except OutcomeUnknownError as error:
            if is_healed:
                self.history.violate("healed", f"{what} at {node.name} failed without faults: {error!r}")
            raise
        finally:
            del node.calls[scope]
        if node.process.is_dead or self.cluster is not None:
            raise NodeLostError(f"the server died or was suspended during {what}")
        self.history.violate("answered", f"{what} was not answered within {CALL_LIMIT_S} s")
        raise NodeLostError(what)

    # Servers.

    def start_node(self) -> Node:
        """Start a server that is alone; it answers once it has a lease and has recovered."""
        assert self._nursery is not None
        self._starts += 1
        machine = self._machine
        node = Node(
            self._surroundings(),
            f"node-{self._starts}",
            machine=machine,
            join=lambda node: SimMember(self._network, machine, node.name, node.process, is_alone=True),
        )
        self._running = [*(each for each in self._running if not each.process.is_dead), node]
        self._nursery.start_soon(node.run)
        return node

    def start_spare(self) -> Node:
        """Start another server, on another machine: it waits until the lease of the present one ends."""
        self._machine = SimMachine(self._machine.number + 1, 0)
        return self.start_node()

    def _surroundings(self) -> WorldParts:
        return WorldParts(
            seed=self.seed,
            store=self.store,
            relations=self.relations,
            history=self.history,
            faults=self.faults,
            clock=self.clock,
            ids=self.ids,
            funds_policy=self.options.funds_policy,
            has_external_graph=self.has_external_graph,
            on_crash=self.crashed,
        )

    async def until_ready(self) -> Node:
        """Wait for a server that answers; start one if necessary. That none does for long is a violation."""
        asked_s = trio.current_time()
        while (node := self.node) is None:
            if self.cluster is None and all(each.process.is_dead for each in self._running):
                self.start_node()
            if trio.current_time() > asked_s + READY_LIMIT_S:
                self.history.violate("healed", f"no server has answered for {READY_LIMIT_S:g} s")
            await trio.sleep(0.1)
        return node

    async def crash(self, *, down_s: float = 0.5) -> None:
        """Kill the server and start another one."""
        self.disturbed()
        if self._running:
            node = self._running.pop()
            node.kill()
            await node.ended.wait()
        await trio.sleep(down_s)
        self.start_node()

    async def pause(self, seconds: float, *, take_over: bool) -> None:
        """Pause the server for a while; with `take_over` a spare is started meanwhile, and the two overlap."""
        node = self.node
        if node is None:
            return
        self.disturbed()
        self.history.note("paused", node.name, take_over)
        node.process.pause()
        try:
            if take_over:
                await trio.sleep(seconds / 2)
                self.start_spare()
            await trio.sleep(seconds / 2 if take_over else seconds)
        finally:
            node.process.resume()
            self.disturbed()
        if take_over:
            try:
                await trio.sleep(ZOMBIE_S)
            finally:
                self.disturbed()
                node.kill()

    async def set_funds(self, address: str, amount: int) -> None:
        """Set a wallet's balance and allowance on the simulated chain, in micro-USDC."""
        self._block += 1
        reading = WalletReading(
            address=address.lower(), balance_micro=amount, allowance_micro=amount, block_number=self._block
        )
        head = BlockRef(number=self._block, block_hash=f"0x{self._block:064x}", parent_hash=f"0x{self._block - 1:064x}")
        application = BlockApplication(
            headers=(head,),
            events=(),
            readings=(reading,),
            settled=(),
            head=head,
            confirmed_block=self._block,
            previous=await self.ledger.chain_head(),
        )
        await self.ledger.apply_blocks(application, now_ms=self.clock.now_ms())

    def disturbed(self) -> None:
        """Record that a server was just disturbed."""
        truth = self.history.truth
        truth.stopped_ms = truth.disturbed_ms = self.clock.now_ms()

    def crashed(self, what: str, error: BaseException | None) -> None:
        """Report an unexpected exception of an actor or of the world itself."""
        if error is not None:
            self.report = "".join(traceback.format_exception(error))
        self.history.violate("no crashes", f"{what} {error!r}")

    # Running a world.

    async def run(self, scenario: Callable[[World], Awaitable[None]]) -> None:
        """Run a scenario, then the quiet phase. Violations are in `history`."""
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                try:
                    await self._live(scenario)
                except Exception as error:  # noqa: BLE001  any error is reported with the seed that reproduces it
                    self.crashed("world", error)
                self._nursery.cancel_scope.cancel()

    async def _live(self, scenario: Callable[[World], Awaitable[None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._tick)
        self._nursery.start_soon(self._mine)
        if self.cluster is not None:
            self._nursery.start_soon(self.cluster.run, self._surroundings())
        else:
            await self._nursery.start(self._network.run)
            self.start_node()
        await self.until_ready()
        async with trio.open_nursery() as chaos:
            if self.cluster is not None:
                chaos.start_soon(self.cluster.disturb)
            else:
                chaos.start_soon(self._crashes)
                chaos.start_soon(self._pauses)
            async with trio.open_nursery() as self._people:
                await scenario(self)
                await trio.sleep(self.options.active_s)
                self._calm_down()
                if self.cluster is not None:
                    self.cluster.heal()
                    await self.cluster.check_healed()
                await self._until_all_is_done()
                self._people.cancel_scope.cancel()
            chaos.cancel_scope.cancel()
        self.history.ended()
        nodes = [await self.until_ready()] if self.cluster is None else self.cluster.nodes
        async with trio.open_nursery() as closing:
            for node in nodes:
                closing.start_soon(self._close, node)

    async def _close(self, node: Node) -> None:
        if not await node.registry.close(drain_s=60):
            self.history.violate("answered", "the kernel did not drain in the quiet phase")

    def _calm_down(self) -> None:
        self.is_over = True
        self.faults.quiet()
        self.history.note("quiet")

    async def _until_all_is_done(self) -> None:
        await self.until_ready()
        for _ in range(QUIET_LIMIT_S):
            if self._is_done():
                return
            await trio.sleep(1)

    def _is_done(self) -> bool:
        sessions, workspaces = self.history.sessions.values(), self.history.workspaces.values()
        return all(map(_is_finished, sessions)) and not any(found.claims for found in workspaces)

    async def _tick(self) -> None:
        while True:
            await trio.sleep(1)
            self.history.passed(1)
            clock = trio.lowlevel.current_clock()
            if isinstance(clock, VirtualClock) and clock.has_stalled:
                self.history.violate("progress", "the server keeps running without virtual time advancing")

    async def _mine(self) -> None:
        """Confirm settlements and notify their sessions, some twice. A lost notification is sent again."""
        while True:
            await trio.sleep(MINE_EVERY_S)
            for session in list(self.history.sessions.values()):
                node = self.node
                if node is None or not isinstance(session.phase, Ended) or session.phase.settlement_tx_hash is not None:
                    continue
                mined = RecordSettlement(SettlementMined(f"0x{session.id.replace('-', ''):0>64}"))
                node.registry.ref(SESSION, session.id).tell(mined)

    async def _crashes(self) -> None:
        every_s = self.faults.rates.crash_every_s
        while every_s and not self.is_over:
            await trio.sleep(self.faults.wait_s(every_s))
            if not self.is_over:
                await self.crash(down_s=self.faults.random() * 5)

    async def _pauses(self) -> None:
        every_s = self.faults.rates.pause_every_s
        while every_s and not self.is_over:
            await trio.sleep(self.faults.wait_s(every_s))
            if not self.is_over:
                await self.pause(self.faults.random() * 20, take_over=self.faults.random() < 0.5)


def _is_finished(session: Session) -> bool:
    if isinstance(session.phase, Ended):
        return session.phase.settlement_tx_hash is not None
    return session.is_terminal
