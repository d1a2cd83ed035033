"""Who owns the shards, for people."""

from datetime import timedelta
from typing import Final

from sightline.ports.leases import TTL_MS, OwnershipReport, ServerReport, ServerRole
from sightline.ports.store import SHARDS
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

_SERVERS: Final = """
SELECT l.incarnation, l.host, l.expires_at > clock_timestamp() AS is_valid,
  greatest(0, extract(epoch FROM clock_timestamp() + $1 - l.expires_at) * 1000)::bigint AS renewed_ms_ago,
  ARRAY(SELECT s.id FROM shard s WHERE s.incarnation = l.incarnation ORDER BY s.id) AS owned
FROM server_lease l ORDER BY l.host, l.incarnation
"""
_UNOWNED: Final = """
SELECT count(*) FROM shard s WHERE NOT EXISTS (SELECT FROM server_lease l WHERE l.incarnation = s.incarnation)
"""


async def read_ownership(database: Database) -> OwnershipReport:
    """Read which servers have a lease, and what each owns.

    Raises:
        StoreUnavailableError: The database did not answer.
    """

    async def unit(connection: Connection) -> OwnershipReport:
        rows = await connection.fetch(_SERVERS, timedelta(milliseconds=TTL_MS))
        unowned = await connection.fetchval(_UNOWNED)
        servers = tuple(
            ServerReport(
                incarnation=row["incarnation"],
                host=row["host"],
                is_valid=row["is_valid"],
                renewed_ms_ago=row["renewed_ms_ago"],
                shards=sum(shard < SHARDS for shard in row["owned"]),
                roles=tuple(ServerRole(shard) for shard in row["owned"] if shard >= SHARDS),
            )
            for row in rows
        )
        return OwnershipReport(servers=servers, unowned_shards=unowned)

    return await database.read(unit)
