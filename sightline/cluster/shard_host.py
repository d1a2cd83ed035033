"""Takes shards that nobody owns, hands shards to servers that have too few, and gives all up at a stop.

Actors of a shard run only while it is owned: they are stopped before it is released, and loaded after it was taken.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, final

import structlog
import trio

from sightline.actors.kernel import Registry
from sightline.actors.shards import EVERY_SHARD, OwnedShards, shard_of
from sightline.cluster.routes import Routes
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.placement import preferred, to_give, to_take
from sightline.ports.leases import (
    RENEW_DEADLINE_S,
    RENEW_EVERY_S,
    LeaseKeeper,
    ServerIdentity,
    ServerState,
    ShardLeases,
)

OTHERS_RENEW_S: Final = RENEW_EVERY_S + 2 * RENEW_DEADLINE_S
"""How long a server whose renewal failed takes nothing: the database may have been away for all, and the others need
this long to renew too."""
ASSIGN_EVERY_S: Final = 1.0
ALONE_EVERY_S: Final = 15.0
"""The same for a server that is alone and owns everything: no other one takes or gives."""
EXPECTED_S: Final = 10.0
REPORT_EVERY_S: Final = 5.0
APART_S: Final = 5.0
"""A server that reaches no other one for this long hands its shards over, if another one is connected."""
CLOCK_TAKE_MS: Final = 250
"""A server takes no shards while its clock differs more than this from the database's, and that of another does not."""
CLOCK_GIVE_MS: Final = 1_000
"""Above this it hands all its shards over: the stamps of several servers decide what a session costs."""
LOOK_PAUSE_S: Final = 0.05
"""Least time between two looks at the database."""
STABLE_S: Final = 10.0
"""Shards are handed over only when no server has come or gone for this long."""
DRAIN_S: Final = 2.0
"""How long turns in progress may take when their shard is handed over."""
SETTLE_S: Final = 3.0
"""How long operations that have begun may take before that: a session that finds an operator, or opens its video."""
LEAVE_BATCH: Final = 32
"""Shards in one batch when this server stops. A batch is released when all of its actors have stopped."""
TAKEN_WITHIN_S: Final = 2.0
"""How long a server that stops waits until its shards have other owners."""
LOOK_AGAIN_S: Final = 0.2
ANSWERS_S: Final = 0.5
"""How long it then goes on answering: messages may be on their way to it."""

log = structlog.get_logger("sightline.ownership")


class Recover(Protocol):
    """Loads the unfinished actors of shards, and reports started when each was tried once."""

    async def __call__(
        self, shards: Collection[int], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Return when nothing is left to load."""
        ...


@final
class ShardHost:
    """The shards of one server, while it has a lease."""

    def __init__(
        self,
        leases: ShardLeases,
        server: ServerIdentity,
        owned: OwnedShards,
        registry: Registry,
        *,
        recover: Recover,
        keeper: LeaseKeeper,
        now_ms: Callable[[], int],
        clock_ms: Callable[[], int] | None = None,
        is_connected: Callable[[], bool] = lambda: True,
        shards: Collection[int] = EVERY_SHARD,
        routes: Routes | None = None,
        servers_expected: int = 1,
        on_taken: Callable[[Collection[int]], None] = lambda _: None,
        on_released: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the host of a server that owns nothing yet.

        Args:
            recover: Loads the unfinished actors of shards that were taken; reports started when each was tried once.
            keeper: Of this server's lease.
            now_ms: The keeper's clock. It never steps, and goes on while the process is suspended.
            clock_ms: The wall clock, by which actors stamp. A server whose clock differs takes nothing, see
                `CLOCK_TAKE_MS`. None: it is not compared.
            is_connected: Whether the bus carries frames to the other servers.
            shards: All shards of the service.
            routes: Learns which server owns what.
            servers_expected: This server takes nothing before so many have entered, for `EXPECTED_S` at most. Servers
                that start together need not hand shards over then.
            on_taken, on_released: Called when this server has taken shards, and when it has given shards up, so that
                the others need not wait until they look at the database again.
        """
        self._leases = leases
        self._server = server
        self._owned = owned
        self._registry = registry
        self._recover = recover
        self._keeper = keeper
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._is_connected = is_connected
        self._connected_ms = now_ms()
        self._reported_connected = True
        self._is_unfit = False
        """Whether this server has logged why it stands back."""
        self._report_due_ms = 0
        self._shards = shards
        self._routes = routes or Routes(server.incarnation)
        self._servers_expected = servers_expected
        self._expected_until_ms = now_ms() + int(EXPECTED_S * 1_000)
        self._nursery: trio.Nursery | None = None
        self._on_taken = on_taken
        self._on_released = on_released
        self._look = trio.Event()
        self._assigning = trio.Lock()
        self._is_leaving = False
        self._recovering = 0
        """Batches of shards whose actors were not all tried once."""
        self._recovered = trio.Event()
        self._stops: dict[int, trio.Event] = {}
        """Shards whose actors are being stopped."""
        self._members: frozenset[str] = frozenset()
        self._members_since_ms = 0

    def look(self) -> None:
        """Look at the database soon: another server may have taken shards or ended."""
        self._look.set()

    async def run(self) -> None:
        """Take and give shards until cancelled. The server has entered."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._assign_forever()

    async def wait_recovered(self) -> None:
        """Wait until the actors of all shards that were taken have been tried once."""
        while self._recovering:
            await self._recovered.wait()

    def lose(self, shards: Mapping[int, int]) -> None:
        """Stop the actors of shards that another server has taken.

        Args:
            shards: With the epochs at which they were owned. Those that were given up meanwhile, and taken again, are
                not lost.
        """
        owned = self._owned.epochs
        lost = frozenset(shard for shard, epoch in shards.items() if owned.get(shard) == epoch)
        if lost and self._nursery is not None:
            log.error("shards_lost", shards=len(lost))
            self._owned.remove(lost)
            self._nursery.start_soon(self._stop, lost, 0.0)
            self._look.set()

    async def end(self) -> None:
        """Own nothing any more, because another server has ended this one; stop all actors at once."""
        self._owned.remove(self._shards)
        await self._registry.stop_where(lambda _: True, grace_s=0)

    async def hand_all_over(self) -> None:
        """Give all shards to the other servers, if there are any, and take no more. Call it while `run` runs.

        Servers fail what they have asked a server without a lease, because the answer may be lost. This one goes on
        answering until the others know that they own its shards.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: `leave` gives up what is left.
        """
        me = self._server.incarnation
        async with self._assigning:
            self._is_leaving = True
            if not self._routes.leased:
                return
            # Servers offer nothing to one that is not connected, and take what it would have taken.
            await self._leases.report(me, clock_offset_ms=0, is_connected=False)
        if not (receivers := await self._others_fit()):  # for example because all servers stop at the same time
            return
        given = sorted(self._owned.epochs)
        for start in range(0, len(given), LEAVE_BATCH):
            shares: dict[str, list[int]] = {}
            for shard in given[start : start + LEAVE_BATCH]:
                shares.setdefault(preferred(shard, receivers), []).append(shard)
            await self._hand_over(shares)
        with trio.move_on_after(TAKEN_WITHIN_S):
            while any(self._routes.owner(shard) in (None, me) for shard in given):
                with trio.move_on_after(LOOK_AGAIN_S):
                    await self._routes.changed.wait()
                if not await self._others_fit():
                    return  # they are stopping too, and take nothing
        await trio.sleep(ANSWERS_S)

    async def _others_fit(self) -> list[str]:
        """The other servers that may own shards."""
        servers = await self._leases.servers()
        return [
            server.incarnation
            for server in servers
            if server.is_valid and server.incarnation != self._server.incarnation and _is_fit(server)
        ]

    async def leave(self) -> None:
        """Stop the actors that are left, then give all shards and the lease up. Call it after `run` was cancelled.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: The lease may run out instead.
        """
        self._owned.remove(self._shards)
        await self._registry.stop_where(lambda _: True, grace_s=DRAIN_S)
        await self._leases.leave(self._server.incarnation)
        self._on_released()

    async def _stop(self, shards: Collection[int], grace_s: float) -> None:
        """Stop the actors of shards that are not owned any more."""
        stopped = trio.Event()
        self._stops.update(dict.fromkeys(shards, stopped))
        try:
            await self._registry.stop_where(lambda actor_id: shard_of(actor_id) in shards, grace_s=grace_s)
        finally:
            stopped.set()
            for shard in shards:
                if self._stops.get(shard) is stopped:
                    del self._stops[shard]

    # Taking and giving.

    async def _assign_forever(self) -> None:
        while True:
            try:
                async with self._assigning:
                    await self._assign()
            except (UnavailableError, OutcomeUnknownError) as error:
                log.warning("shards_not_assigned", error=str(error))
            await trio.sleep(LOOK_PAUSE_S)
            owns_all = self._server.is_alone and len(self._owned.epochs) == len(self._shards)
            with trio.move_on_after(ALONE_EVERY_S if owns_all else ASSIGN_EVERY_S):
                await self._look.wait()
            self._look = trio.Event()

    async def _assign(self) -> None:
        me = self._server.incarnation
        await self._report(me)
        servers = {server.incarnation: server for server in await self._leases.servers() if server.is_valid}
        valid = {incarnation: server.shards for incarnation, server in servers.items()}
        wires = {incarnation: server.wire for incarnation, server in servers.items()}
        self._routes.read(valid, wires, {incarnation: server.url for incarnation, server in servers.items()})
        if me not in valid or not self._keeper.is_valid() or self._is_leaving:
            return
        failed_ms = self._keeper.failed_ms
        if failed_ms is not None and self._now_ms() < failed_ms + OTHERS_RENEW_S * 1_000:
            # What was released for this server has no owner until it is taken.
            if servers[me].offered:
                await self._adopt(await self._leases.take(me, servers[me].offered))
            return
        if len(valid) < self._servers_expected and self._now_ms() < self._expected_until_ms:
            return
        self._servers_expected = 0
        fit = {incarnation for incarnation, server in servers.items() if _is_fit(server)}
        if fit and me not in fit:
            await self._stand_back(servers[me], sorted(fit))
            return
        self._is_unfit = False
        if not fit:  # no server has a reason to believe another one
            fit = set(valid)
        kept = set[int]().union(*(valid[incarnation] for incarnation in valid.keys() - fit))
        valid = {incarnation: shards for incarnation, shards in valid.items() if incarnation in fit}
        # In the database but not in memory: the answer to an earlier `take` or `release` was lost.
        unknown = valid[me] - self._owned.epochs.keys()
        if unknown:
            await self._leases.release(me, unknown, to=me)
        free = [shard for shard in self._shards if shard not in kept]
        wanted = unknown | servers[me].offered | to_take(me, free, valid)
        if wanted:
            await self._adopt(await self._leases.take(me, wanted))
        if self._is_stable(frozenset(valid)):
            for receiver, shards in to_give(me, self._shards, valid).items():
                await self._hand_over({receiver: shards})

    async def _report(self, me: str) -> None:
        """Tell the database about this server's clock and bus: every few seconds, and when the bus comes or goes."""
        now_ms = self._now_ms()
        if self._is_connected():
            self._connected_ms = now_ms
        is_connected = now_ms - self._connected_ms < APART_S * 1_000 and not self._is_leaving
        if self._clock_ms is None or (now_ms < self._report_due_ms and is_connected == self._reported_connected):
            return
        offset_ms = await self._clock_offset_ms(self._clock_ms)
        await self._leases.report(me, clock_offset_ms=offset_ms, is_connected=is_connected)
        self._reported_connected = is_connected
        self._report_due_ms = now_ms + int(REPORT_EVERY_S * 1_000)

    async def _clock_offset_ms(self, clock_ms: Callable[[], int]) -> int:
        """How far this server's clock is surely off the database's.

        The database reads its clock at some time between the question and the answer, so a slow answer must not be
        taken for a wrong clock.
        """
        before_ms = clock_ms()
        database_ms = await self._leases.database_ms()
        after_ms = clock_ms()
        return max(0, before_ms - database_ms) + min(0, after_ms - database_ms)

    async def _stand_back(self, own: ServerState, fit: Sequence[str]) -> None:
        """Take nothing while another server is fit and this one is not.

        Give everything away if this server's clock is over a second off, or if it does not reach the others: they
        cannot ask for what it owns.
        """
        is_cut_off = not own.is_connected
        if not self._is_unfit:
            event = "cut_off_from_other_servers" if is_cut_off else "clock_differs"
            log.error(event, ahead_ms=own.clock_offset_ms, shards=len(self._owned.epochs))
            self._is_unfit = True
        # What was released for this server has no owner until it is taken. It is taken here to be given away.
        offered = await self._leases.take(own.incarnation, own.offered) if own.offered else {}
        running = self._owned.epochs.keys()
        gives_all = is_cut_off or abs(own.clock_offset_ms) > CLOCK_GIVE_MS
        # Without an actor in memory: what was offered, and what an earlier `release` or `take` without answer left.
        given = sorted(own.shards | offered.keys() | running if gives_all else own.shards - running | offered.keys())
        for place, receiver in enumerate(fit):
            if shards := given[place :: len(fit)]:
                await self._hand_over({receiver: shards})

    def _is_stable(self, members: frozenset[str]) -> bool:
        if members != self._members:
            self._members, self._members_since_ms = members, self._now_ms()
        return self._now_ms() - self._members_since_ms >= STABLE_S * 1_000

    async def _adopt(self, epochs: Mapping[int, int]) -> None:
        """Run the actors of shards that were taken."""
        for shard in epochs:
            if (stopped := self._stops.get(shard)) is not None:
                await stopped.wait()
        self._owned.add(epochs)
        if epochs:
            log.info("shards_taken", shards=len(epochs))
            self._routes.took(self._server.incarnation, epochs.keys())
            self._on_taken(epochs.keys())
            assert self._nursery is not None
            self._recovering += 1
            self._nursery.start_soon(self._run_recovery, frozenset(epochs))

    async def _run_recovery(self, shards: Collection[int]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._recover, shards)
            self._recovering -= 1
            if not self._recovering:
                self._recovered.set()
                self._recovered = trio.Event()

    async def _hand_over(self, shares: Mapping[str, Collection[int]]) -> None:
        """Stop the actors of shards, if there are any here, then release the shards for other servers, by receiver.

        What sessions have begun ends before: they wait for workspaces and the dispatcher, which may be given up too.
        """
        given = frozenset[int]().union(*shares.values())
        self._owned.close(given)
        await self._registry.settle_where(lambda actor_id: shard_of(actor_id) in given, within_s=SETTLE_S)
        self._owned.remove(given)
        await self._stop(given, DRAIN_S)
        for receiver, shards in shares.items():
            await self._leases.release(self._server.incarnation, shards, to=receiver)
            log.info("shards_handed_over", shards=len(shards), receiver=receiver)
        self._on_released()


def _is_fit(server: ServerState) -> bool:
    """Whether a server may own shards, if there is a choice."""
    return server.is_connected and abs(server.clock_offset_ms) <= CLOCK_TAKE_MS
