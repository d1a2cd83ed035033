"""This server as one of several: its leases of single shards, and its messages to the others."""

from functools import partial
from typing import Final, final

import structlog
import trio

from sightline.actors.build import Actors
from sightline.actors.messages import ShardsReleased
from sightline.actors.recovery import recover_shards
from sightline.actors.shards import EVERY_SHARD, OwnedShards
from sightline.bootstrap.retry import StartRetry
from sightline.bootstrap.start_errors import StartError, TakenOverError
from sightline.cluster.bus.nats import BusStatistics, NatsBus
from sightline.cluster.connected_servers import ConnectedServers
from sightline.cluster.peers.peers import Peers
from sightline.cluster.routes import Routes
from sightline.cluster.shard_host import LeaseEndedError, ShardHost
from sightline.domain.errors import SightlineError
from sightline.ports.leases import ServerIdentity
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.leases import PostgresShardLeases
from sightline.system.clock import boot_now_ms

HAND_OVER_TIMEOUT_S: Final = 10.0
LEAVE_TIMEOUT_S: Final = 5.0

log = structlog.get_logger("sightline")


@final
class ClusterMember:
    """The part of a server in a service of several servers, from joining to leaving."""

    def __init__(self, database: Database, server: ServerIdentity, bus: NatsBus, *, servers_expected: int) -> None:
        """Create the part of a server that has not joined.

        Args:
            servers_expected: Number of servers that start together: they wait for each other before they take shards.
        """
        self.owned = OwnedShards()
        self.routes = Routes(server.incarnation)
        self.peers = Peers(bus, self.routes)
        self.others = ConnectedServers(self.peers)
        self._bus = bus
        self._leases = PostgresShardLeases(database)
        self._server = server
        self._servers_expected = servers_expected
        self._host: ShardHost | None = None
        self._keeping = trio.CancelScope()

    def bus_statistics(self) -> BusStatistics:
        """Counts of the connection to the other servers."""
        return self._bus.statistics()

    def is_valid(self) -> bool:
        """Whether this server holds a valid lease, so that what it has in memory is true."""
        return self._host is not None and self._host.is_valid()

    def note_fenced(self) -> None:
        """Look at the database soon: a write was refused because another server has taken its shard."""
        if self._host is not None:
            self._host.look()

    async def join(self, retry: StartRetry, *, patience_s: float) -> None:
        """Nothing to do: shards are taken when the actors run."""

    def attach(self, actors: Actors) -> None:
        """Run these actors on the shards that this server takes. Call it before the actors run."""
        registry, store = actors.registry, actors.deps.store
        host = self._host = ShardHost(
            self._leases,
            self._server,
            self.owned,
            registry,
            recover=partial(recover_shards, store, registry),
            now_ms=boot_now_ms,
            clock_ms=actors.deps.clock.now_ms,
            is_connected=lambda: self.peers.is_connected,
            routes=self.routes,
            servers_expected=self._servers_expected,
            on_taken=self.peers.announce,
            on_released=lambda: self.peers.tell_all(ShardsReleased()),
        )
        self.peers.attach(registry, lambda actor_id: self.owned.owns(actor_id) and host.is_valid())
        self.peers.on_stale = host.look

    async def keep(self) -> None:
        """Own shards until `hand_over`.

        Raises:
            TakenOverError: Another server has ended this one, because its lease had run out. After a restart it is a
                new server.
        """
        assert self._host is not None, "not attached"
        with self._keeping:
            try:
                await self._host.run()
            except LeaseEndedError as error:
                raise TakenOverError("The lease of this server ran out and another server took its shards.") from error

    async def wait_complete(self, patience_s: float) -> None:
        """Wait until every shard and every role has an owner that is known here.

        Raises:
            StartError: Some had none after `patience_s`.
        """
        with trio.move_on_after(patience_s):
            while any(self.routes.owner(shard) is None for shard in EVERY_SHARD):
                await self.routes.changed.wait()
            return
        missing = sum(self.routes.owner(shard) is None for shard in EVERY_SHARD)
        raise StartError(f"{missing} of {len(EVERY_SHARD)} shards have no owner after {patience_s:g} s.")

    async def hand_over(self) -> None:
        """Hand the shards to the other servers, stop the actors, and give the lease up. Errors are only logged."""
        assert self._host is not None, "not attached"
        with trio.move_on_after(HAND_OVER_TIMEOUT_S):
            try:
                await self._host.hand_all_over()
            except SightlineError as error:
                log.warning("shards_not_handed_over", error=str(error))
        self._keeping.cancel()
        with trio.move_on_after(LEAVE_TIMEOUT_S):
            try:
                await self._host.leave()
            except SightlineError as error:
                log.warning("lease_not_given_up", error=str(error))

    async def leave(self) -> None:
        """Nothing to do after `hand_over`."""
