"""This server in its service: its lease, its shards, and its messages to the other servers.

A server without a bus is alone. It enters when no other server has a lease; until then it waits, as a spare. Everything
else is the same for one server and for several.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, final

import structlog
import trio

from sightline.actors.kernel import Registry
from sightline.actors.messages import ShardsReleased
from sightline.actors.shards import EVERY_SHARD, OwnedShards
from sightline.cluster.connected_servers import ConnectedServers
from sightline.cluster.peers.peers import QUESTIONS, Peers
from sightline.cluster.routes import Routes
from sightline.cluster.shard_host import Recover, ShardHost
from sightline.domain.errors import SightlineError
from sightline.ports.bus import Bus
from sightline.ports.leases import LeaseKeeper, ServerIdentity, ServiceHeldError, ShardLeases

JOIN_EVERY_S: Final = 0.5
HAND_OVER_TIMEOUT_S: Final = 10.0
LEAVE_TIMEOUT_S: Final = 5.0

log = structlog.get_logger("sightline")


class LeaseEndedError(Exception):
    """Another server has ended this one. It may come back with a new incarnation."""


class NotCompleteError(Exception):
    """Some shards have no owner."""


@final
class ServiceMember:
    """The part of a server in its service, from entering to leaving.

    `join`; then `keep` until the end; `attach` the actors, and `run` while they run. At a stop `hand_over`, end `run`,
    and `leave` while `keep` still runs.
    """

    def __init__(
        self,
        leases: ShardLeases,
        keeper: LeaseKeeper,
        bus: Bus,
        server: ServerIdentity,
        *,
        now_ms: Callable[[], int],
        servers_expected: int = 1,
        shards: Collection[int] = EVERY_SHARD,
        questions: Collection[type] = QUESTIONS,
    ) -> None:
        """Create the part of a server that has not entered.

        Args:
            keeper: Of the lease of this server.
            now_ms: The keeper's clock.
            servers_expected: Number of servers that start together: they wait for each other before they take shards.
            shards: All shards of the service.
            questions: Commands that may be handled twice.
        """
        self.server = server
        self.bus = bus
        self.owned = OwnedShards()
        self.routes = Routes(server.incarnation)
        self.peers = Peers(bus, self.routes, questions=questions)
        self.others = ConnectedServers(self.peers)
        self._leases = leases
        self._keeper = keeper
        self._now_ms = now_ms
        self._servers_expected = servers_expected
        self._shards = shards
        self._host: ShardHost | None = None
        self._is_leaving = False

    def is_valid(self) -> bool:
        """Whether this server holds a valid lease, so that what it has in memory is true."""
        return self._keeper.is_valid()

    def note_fenced(self) -> None:
        """Look at the database soon: a write was refused because another server has taken its shard."""
        if self._host is not None:
            self._host.look()

    async def join(
        self,
        *,
        patience_s: float = 0.0,
        retry: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None = None,
    ) -> None:
        """Get a lease; wait at most `patience_s` while the lease of another server excludes this one.

        Args:
            retry: Runs the call to the database, and repeats it as the caller likes.

        Raises:
            ServiceHeldError: Another server still held the lease after `patience_s`.
            IncompatibleServersError: As `ShardLeases.enter`.
            StoreUnavailableError, OutcomeUnknownError: Call it again.
        """
        deadline, is_waiting = trio.current_time() + patience_s, False
        while True:
            try:
                await (self._enter() if retry is None else retry(self._enter))
            except ServiceHeldError as error:
                if trio.current_time() >= deadline:
                    raise
                if not is_waiting:
                    is_waiting = True
                    log.warning("waiting_for_other_server", host=error.host, at_most_s=patience_s)
                await trio.sleep(JOIN_EVERY_S)
            else:
                return

    async def _enter(self) -> None:
        sent_ms = self._now_ms()
        await self._leases.enter(self.server)
        self._keeper.entered(sent_ms)

    async def keep(self) -> None:
        """Renew the lease until cancelled. Returns when it was given up by `leave`.

        Raises:
            LeaseEndedError: Another server has ended this one; nothing is owned any more, and the actors are stopped.
        """
        await self._keeper.run(lambda: self.owned.epochs, self._lose)
        if self._is_leaving:
            return
        if self._host is not None:
            await self._host.end()
        raise LeaseEndedError("another server has ended this one, because its lease had run out")

    def _lose(self, shards: Mapping[int, int]) -> None:
        if self._host is not None:
            self._host.lose(shards)

    def attach(self, registry: Registry, recover: Recover, *, clock_ms: Callable[[], int] | None = None) -> None:
        """Run the actors of this registry on the shards that this server takes. Call it before they run.

        Args:
            recover: Loads the unfinished actors of shards that were taken.
            clock_ms: The wall clock, by which actors stamp; it is compared with the database's. None: it is not.
        """
        host = self._host = ShardHost(
            self._leases,
            self.server,
            self.owned,
            registry,
            recover=recover,
            keeper=self._keeper,
            now_ms=self._now_ms,
            clock_ms=clock_ms,
            is_connected=lambda: self.peers.is_connected,
            shards=self._shards,
            routes=self.routes,
            servers_expected=self._servers_expected,
            on_taken=self.peers.announce,
            on_released=lambda: self.peers.tell_all(ShardsReleased()),
        )
        self.peers.attach(registry, lambda actor_id: self.owned.owns(actor_id) and self.is_valid())
        self.peers.on_stale = host.look

    async def run(self) -> None:
        """Take and give shards until cancelled."""
        await self._require_host().run()

    async def wait_complete(self, patience_s: float) -> None:
        """Wait until every shard has an owner that is known here, and the actors of this server were tried once.

        Raises:
            NotCompleteError: A shard had no owner after `patience_s`.
        """
        with trio.move_on_after(patience_s) as waiting:
            while any(self.routes.owner(shard) is None for shard in self._shards):
                await self.routes.changed.wait()
        if waiting.cancelled_caught:
            missing = sum(self.routes.owner(shard) is None for shard in self._shards)
            raise NotCompleteError(f"{missing} of {len(self._shards)} shards have no owner after {patience_s:g} s.")
        await self._require_host().wait_recovered()

    async def hand_over(self) -> None:
        """Hand the shards to the other servers, if there are any. Errors are only logged."""
        with trio.move_on_after(HAND_OVER_TIMEOUT_S):
            try:
                await self._require_host().hand_all_over()
            except SightlineError as error:
                log.warning("shards_not_handed_over", error=str(error))

    async def leave(self) -> None:
        """Stop the actors that are left and give the lease up: nobody waits for its end. Errors are only logged."""
        self._is_leaving = True
        with trio.move_on_after(LEAVE_TIMEOUT_S):
            try:
                await self._require_host().leave()
            except SightlineError as error:
                log.warning("lease_not_given_up", error=str(error))

    def _require_host(self) -> ShardHost:
        assert self._host is not None, "not attached"
        return self._host
