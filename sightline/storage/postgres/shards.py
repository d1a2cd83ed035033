"""Ownership of shards in Postgres."""

from collections.abc import Mapping

from sightline.storage.database.bridge import Database

_TAKE = "SELECT id, epoch FROM take_shards($1, $2)"


async def acquire_shards(database: Database, owner: str, incarnation: str) -> Mapping[int, int]:
    """Take every shard; writes under way at the old epochs finish first, later ones are refused."""
    rows = await database.run(lambda connection: connection.fetch(_TAKE, owner, incarnation))
    return {row["id"]: row["epoch"] for row in rows}
