"""Commits are durable whatever the database is set to, and settings that only its owner can change are reported."""

from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.durability import warn_if_not_durable
from sightline.storage.database.pool import PoolOptions


async def test_commits_are_synchronous_although_the_database_is_set_otherwise(
    database: Database, database_dsn: str
) -> None:
    name = await database.read(lambda c: c.fetchval("SELECT current_database()"))
    await database.run(lambda c: c.execute(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as later:
        assert await later.read(lambda c: c.fetchval("SHOW synchronous_commit")) == "on"


async def test_a_database_server_without_fsync_is_reported(database: Database) -> None:
    # The tests' own server runs without it, for speed.
    assert await database.read(lambda c: c.fetchval("SHOW fsync")) == "off"
    assert "fsync" in await warn_if_not_durable(database)
