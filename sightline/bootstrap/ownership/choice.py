"""Which shards this server owns: all of a database, or some of them as one of several servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from sightline.actors.build import Actors
from sightline.actors.other_servers import OtherServers
from sightline.actors.shards import OwnedShards
from sightline.bootstrap.ownership.bus import open_bus
from sightline.bootstrap.ownership.several import ClusterMember
from sightline.bootstrap.ownership.single import ShardOwnership
from sightline.bootstrap.retry import StartRetry
from sightline.cluster.bus.nats import BusStatistics
from sightline.cluster.peers.peers import Peers
from sightline.config import Settings
from sightline.ports.leases import ServerIdentity
from sightline.storage.database.bridge import Database, open_reserved
from sightline.system.secrets import Secrets

LEASE_CONNECTIONS: Final = 2
"""For renewing the lease and for taking shards: a lease must not run out because all other connections are busy."""


class Ownership(Protocol):
    """The shards of this server. From `join` on, the methods are called in this order."""

    @property
    def owned(self) -> OwnedShards:
        """The shards that this server owns now."""
        ...

    @property
    def others(self) -> OtherServers:
        """What the actors need from the other servers."""
        ...

    @property
    def peers(self) -> Peers | None:
        """The other servers, if this is one of several."""
        ...

    def bus_statistics(self) -> BusStatistics | None:
        """Counts of the connection to the other servers, if this is one of several."""
        ...

    def note_fenced(self) -> None:
        """A write was refused because another server has taken its shard."""
        ...

    def is_valid(self) -> bool:
        """Whether this server holds a valid lease, so that what it has in memory is true."""
        ...

    async def join(self, retry: StartRetry, *, patience_s: float) -> None:
        """Wait until this server may serve."""
        ...

    def attach(self, actors: Actors) -> None:
        """Set the actors that run on the shards. Call it before they run."""
        ...

    async def keep(self) -> None:
        """Keep the lease.

        Raises:
            TakenOverError: Another server has taken over.
        """
        ...

    async def wait_complete(self, patience_s: float) -> None:
        """Wait until every shard has an owner.

        Raises:
            StartError: Some had none after `patience_s`.
        """
        ...

    async def hand_over(self) -> None:
        """Stop the actors and give their shards to other servers, if there are any."""
        ...

    async def leave(self) -> None:
        """Give the lease up, after the actors have ended."""
        ...


@asynccontextmanager
async def open_ownership(
    settings: Settings, secrets: Secrets, database: Database, server: ServerIdentity
) -> AsyncIterator[Ownership]:
    """Choose by the settings; with NATS this server is one of several, and connected until the block ends."""
    if settings.nats_url is None:
        yield ShardOwnership(database, server)
    else:
        async with (
            open_reserved(database, connections=LEASE_CONNECTIONS) as for_leases,
            open_bus(settings, secrets, server.incarnation) as bus,
        ):
            yield ClusterMember(for_leases, server, bus, servers_expected=settings.workers)
