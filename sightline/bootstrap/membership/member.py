"""Open the membership of this server: with NATS it is one of several, without it is alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from sightline.bootstrap.failures.errors import TakenOverError
from sightline.bootstrap.membership.bus import open_bus
from sightline.cluster.bus.memory import MemoryNetwork
from sightline.cluster.membership import LeaseEndedError, ServiceMember
from sightline.config import Settings
from sightline.domain.value import replace
from sightline.ports.bus import Bus
from sightline.ports.leases import ServerIdentity
from sightline.storage.database.bridge import Database, open_reserved
from sightline.storage.postgres.leases import PostgresLeaseKeeper, PostgresShardLeases
from sightline.system.clock import boot_now_ms
from sightline.system.secrets import Secrets

LEASE_CONNECTIONS: Final = 2
"""For taking and handing over shards: that must not wait because all other connections are busy."""


@asynccontextmanager
async def open_membership(
    settings: Settings, secrets: Secrets, database: Database, server: ServerIdentity
) -> AsyncIterator[ServiceMember]:
    """Connect to the bus, and stay connected until the block ends. The server has not entered yet."""
    async with (
        open_reserved(database, connections=LEASE_CONNECTIONS) as for_leases,
        _open_bus(settings, secrets, server) as bus,
    ):
        yield ServiceMember(
            PostgresShardLeases(for_leases),
            PostgresLeaseKeeper(database, server.incarnation),
            bus,
            replace(server, is_alone=settings.nats_url is None),
            now_ms=boot_now_ms,
            servers_expected=settings.workers,
        )


@asynccontextmanager
async def keep_lease(membership: ServiceMember) -> AsyncIterator[None]:
    """Keep the lease of a server that has joined until the block ends.

    Raises:
        TakenOverError: Another server has ended this one: its lease had run out. Calls in progress are cut. After a
            restart it is a new server.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_keep, membership)
        yield
        nursery.cancel_scope.cancel()


async def _keep(membership: ServiceMember) -> None:
    try:
        await membership.keep()
    except LeaseEndedError as error:
        raise TakenOverError("The lease of this server ran out and another server took over.") from error


@asynccontextmanager
async def _open_bus(settings: Settings, secrets: Secrets, server: ServerIdentity) -> AsyncIterator[Bus]:
    if settings.nats_url is None:
        yield MemoryNetwork().join(server.incarnation)
    else:
        async with open_bus(settings, secrets, server.incarnation) as bus:
            yield bus
