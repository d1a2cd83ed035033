"""Ownership of shards in Postgres."""

from collections.abc import Mapping

from sightline.storage.bridge import Database

# One statement, rows in order of id: two servers that start together end with one of them owning every shard.
_ACQUIRE = """
WITH mine AS (SELECT id FROM shard ORDER BY id FOR UPDATE)
UPDATE shard SET owner = $1, incarnation = $2, epoch = epoch + 1 FROM mine WHERE shard.id = mine.id
RETURNING shard.id, shard.epoch
"""


async def acquire_shards(database: Database, owner: str, incarnation: str) -> Mapping[int, int]:
    """Take every shard; writes under way at the old epochs finish first, later ones are refused."""
    rows = await database.run(lambda connection: connection.fetch(_ACQUIRE, owner, incarnation))
    return {row["id"]: row["epoch"] for row in rows}
