"""One server process of a world: the real actors over ports that fail. Killing it runs no clean-up with effects."""

from __future__ import annotations

import random  # noqa: TID251  (generators seeded from the world's seed only)
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from sightline.actors.build import Actors, build_actors
from sightline.actors.deps import ActorLimits, Deps
from sightline.actors.kernel import KernelOptions, Registry
from sightline.actors.recovery import recover
from sightline.actors.service.broker import Broker
from sightline.actors.service.look_up import LookUp
from sightline.actors.session.payer_funds import CHECK_EVERY_S, PayerFunds
from sightline.actors.watchers import Watchers
from sightline.cluster.membership import LeaseEndedError, NotCompleteError
from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError, UnavailableError
from sightline.domain.value import Value
from simulation.adapters.relations import FaultyRelations
from simulation.adapters.store import FaultyStore, Process
from simulation.adapters.video import SimVideo
from simulation.adapters.wire import FaultyWire

if TYPE_CHECKING:
    from sightline.ports.clock import Clock
    from sightline.ports.ids import Ids
    from simulation.faults import Faults
    from simulation.history import History
    from simulation.memory.identity import MemoryRelations
    from simulation.memory.store import MemoryStore
    from simulation.servers.member import SimMachine, SimMember


T = TypeVar("T")

START_S: Final = 30.0
"""A start ends after this time if a shard has no owner."""
CLOSE_S: Final = 5.0
"""How long an orderly stop lets accepted work finish."""


@final
class WorldParts(Value, kw_only=True):
    """The parts of a world that each of its server processes uses.

    Attributes:
        has_external_graph: The authorization graph is a separate system and does not commit with the store.
        on_crash: Called with an exception of an actor that no injected fault explains.
    """

    seed: int
    store: MemoryStore
    relations: MemoryRelations
    history: History
    faults: Faults
    clock: Clock
    ids: Ids
    funds_policy: str
    has_external_graph: bool
    on_crash: Callable[[str, BaseException | None], None]


@final
class CrashReporter:
    """The kernel's log in a simulation: a crash of an actor is a bug, whatever the store did."""

    BUGS = frozenset({"actor_crashed", "actor_load_failed", "actor_parked", "may_passivate_failed", "helper_failed"})

    def __init__(self, outside: WorldParts, node: str) -> None:
        self._outside = outside
        self._node = node

    def warning(self, event: str, **fields: Any) -> None:
        """Trace a warning."""
        self._outside.history.note("log", self._node, event, fields.get("kind"), fields.get("message"))

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        """Report a bug."""
        if event in self.BUGS:
            self._outside.on_crash(f"{event} {fields}", exc_info)

    exception = error


@final
class Node:
    """A server process, from taking the shards until it is killed."""

    def __init__(
        self,
        outside: WorldParts,
        name: str,
        *,
        machine: SimMachine,
        join: Callable[[Node], SimMember],
    ) -> None:
        """Create a server that does not run yet.

        Args:
            machine: Where it runs.
            join: Makes it a member of its service.
        """
        self._outside = outside
        self.name = name
        self.process = Process()
        self._machine = machine
        self.member = join(self)
        self._actors: Actors | None = None
        self.calls: dict[trio.CancelScope, None] = {}
        """Calls from outside that this process is handling."""
        self.ended = trio.Event()
        self._scope = trio.CancelScope()
        self._broker: Broker | None = None
        self._registry: Registry | None = None
        self._video: SimVideo | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the server has recovered and answers."""
        return self._broker is not None and not self.process.is_dead

    @property
    def broker(self) -> Broker:
        """The broker that callers use."""
        assert self._broker is not None
        return self._broker

    @property
    def registry(self) -> Registry:
        """The kernel's registry, for statistics and for closing."""
        assert self._registry is not None
        return self._registry

    @property
    def video(self) -> SimVideo | None:
        """The video engine of this process."""
        return self._video

    async def run(self) -> None:
        """Run until killed, or until another server has ended this one."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await self._start(nursery)
                    await trio.sleep_forever()
        finally:
            self.ended.set()

    async def _keep(self) -> None:
        try:
            await self.member.membership.keep()
        except LeaseEndedError:
            self.kill()

    async def stop(self) -> None:
        """Stop as after SIGTERM: give the shards up, let accepted work finish, then end."""
        assert self._actors is not None
        self._outside.history.note("stopped", self.name)
        try:
            await self.member.membership.hand_over()
            await self._actors.close(drain_s=CLOSE_S)
            await self.member.membership.leave()
        finally:
            self.kill()

    async def serve(self, act: Callable[[Broker], Awaitable[T]]) -> T:
        """Handle a call from outside; it is refused while the lease of this server is not valid.

        Raises:
            StoreUnavailableError: The lease is not valid.
        """
        await self.process.pass_through()
        if not self.member.membership.is_valid():
            raise StoreUnavailableError("the lease was not renewed")
        answer = await act(self.broker)
        await self.process.pass_through()
        return answer

    def kill(self) -> None:
        """Kill the process now: nothing is sent any more, and the callers' connections break."""
        self.process.cut()
        self._outside.history.note("killed", self.name)
        for scope in self.calls:
            scope.cancel()
        self._scope.cancel()

    async def _start(self, nursery: trio.Nursery) -> None:
        outside, faults = self._outside, self._outside.faults
        membership = self.member.membership
        is_reachable = self._machine.reaches_database
        store = FaultyStore(outside.store, faults, self.process, outside.history, self.name, is_reachable)
        await self.member.join()
        nursery.start_soon(self._keep)
        self._video = SimVideo(faults, self.process, outside.clock, nursery)
        relations = FaultyRelations(outside.relations, faults, self.process, is_external=outside.has_external_graph)
        limits = ActorLimits(funds_policy=outside.funds_policy)
        deps = Deps(
            store=store,
            video=self._video,
            relations=relations,
            clock=outside.clock,
            ids=outside.ids,
            rng=random.Random(f"{outside.seed}/{self.name}"),
            limits=limits,
            watchers=Watchers(),
            owned=membership.owned,
            on_settlement=lambda: None,
        )
        actors = self._actors = build_actors(
            deps,
            membership.others,
            options=KernelOptions(sweep_every_s=30, clock_check_s=3600, detect_ask_cycles=True),
            wire=FaultyWire(faults, nursery, outside.history),
            log=CrashReporter(outside, self.name),
        )
        self._registry = actors.registry
        membership.attach(actors.registry, partial(recover, store, actors.registry))
        await nursery.start(actors.run)
        nursery.start_soon(membership.run)
        try:
            await membership.wait_complete(START_S)
        except NotCompleteError:
            self.kill()
            return
        if outside.funds_policy == "enforced":
            read_session = LookUp(actors.registry, deps).find_session
            funds = PayerFunds(actors.registry, outside.history.ledger, read_session, outside.clock, limits.session)
            nursery.start_soon(self._check_funds, funds)
        self._broker = actors.broker
        outside.history.note("ready", self.name)

    def has_input(self, session_id: str) -> bool:
        """Whether this process has the live input of a session."""
        return self._video is not None and self._video.has_input(session_id)

    async def _check_funds(self, funds: PayerFunds) -> None:
        while True:
            await self.process.pass_through()
            with suppress(UnavailableError, OutcomeUnknownError):  # the next check tries again
                await funds.check()
            await trio.sleep(CHECK_EVERY_S)
