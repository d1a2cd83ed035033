"""A database behind a transaction pooler, or without working advisory locks, is refused with the reason."""

import pytest
import trio

from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.compatibility import (
    PROBE_KEY,
    IncompatibleDatabaseError,
    require_direct_connections,
)
from sightline.storage.database.pool import PoolOptions
from tests.storage.proxy import Wire, open_wire

NAME = "sightline probe"


async def check(wire: Wire) -> None:
    options = PoolOptions(dsn=wire.dsn, application_name=NAME, connections_min=1)
    async with open_database(DatabaseOptions(pool=options)) as database:
        await require_direct_connections(database)


async def test_a_postgres_is_accepted(database: Database) -> None:
    await require_direct_connections(database)


async def test_servers_that_start_at_the_same_time_do_not_refuse_their_database(database: Database) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(require_direct_connections, database)


async def test_a_connection_that_is_named_otherwise_on_the_server_is_refused(database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire:
        await check(wire)
        wire.rewrite(NAME, "pooler is here!")
        with pytest.raises(IncompatibleDatabaseError, match="application_name"):
            await check(wire)


async def test_a_connection_with_another_process_id_than_it_was_told_is_refused(database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire:
        wire.rewrite("SELECT pg_backend_pid()", "SELECT 1::integer      ")
        with pytest.raises(IncompatibleDatabaseError, match="process ids"):
            await check(wire)


async def test_a_database_whose_advisory_locks_do_not_exclude_each_other_is_refused(database_dsn: str) -> None:
    async with open_wire(database_dsn) as wire:
        lock = f"SELECT pg_try_advisory_xact_lock({PROBE_KEY}, $1::integer)"
        wire.rewrite(lock, "SELECT $1::integer IS NOT NULL".ljust(len(lock)))
        with pytest.raises(IncompatibleDatabaseError, match="advisory locks"):
            await check(wire)
