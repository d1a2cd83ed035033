"""Who owns the shards, and how each server is, for people."""

from datetime import timedelta
from typing import Final

from sightline.ports.leases import TTL_MS, OwnershipReport, ServerFigures, ServerReport, ServerRole
from sightline.ports.store import SHARDS
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

_SERVERS: Final = """
SELECT l.incarnation, l.host, l.expires_at > clock_timestamp() AS is_valid,
  greatest(0, extract(epoch FROM clock_timestamp() + $1 - l.expires_at) * 1000)::bigint AS renewed_ms_ago,
  (extract(epoch FROM clock_timestamp() - l.reported_at) * 1000)::bigint AS reported_ms_ago,
  l.is_connected, l.clock_offset_ms, l.name, l.url, l.version, l.loop_delay_ms,
  ARRAY(SELECT s.id FROM shard s WHERE s.incarnation = l.incarnation ORDER BY s.id) AS owned
FROM server_lease l ORDER BY l.name, l.host, l.incarnation
"""
_REPORT: Final = """
UPDATE server_lease SET name = $2, url = $3, version = $4, loop_delay_ms = $5, reported_at = clock_timestamp()
WHERE incarnation = $1
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
                is_connected=row["is_connected"],
                clock_offset_ms=row["clock_offset_ms"],
                reported_ms_ago=row["reported_ms_ago"],
                about=ServerFigures(
                    name=row["name"] or row["host"],
                    url=row["url"],
                    version=row["version"],
                    loop_delay_ms=row["loop_delay_ms"],
                ),
            )
            for row in rows
        )
        return OwnershipReport(servers=servers, unowned_shards=unowned)

    return await database.read(unit)


async def report_figures(database: Database, incarnation: str, figures: ServerFigures) -> None:
    """Write what a server says about itself. Has no effect after the server was ended.

    Raises:
        StoreUnavailableError, OutcomeUnknownError: Call it again; it is safe to repeat.
    """
    arguments = (incarnation, figures.name, figures.url, figures.version, figures.loop_delay_ms)
    await database.run(lambda connection: connection.execute(_REPORT, *arguments))
