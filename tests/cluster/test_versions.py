"""A server that cannot work with the servers or the database of its service is refused at the start, and says why."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.cluster.servers import Cluster, a_cluster
from tests.conftest import on_server
from tests.e2e.server import Server

START_S = 120.0
"""Of a server on a machine with ten times the work that it can do."""
OTHER_WIRE = """
INSERT INTO server_lease (incarnation, host, place, expires_at, wire_first, wire_last)
VALUES ('other', 'other-host', 'elsewhere', clock_timestamp() + interval '1 hour', 7, 8)
"""
NEW_MIGRATION = """
INSERT INTO schema_migration (number, name, checksum, compatible_from) VALUES (9001, '9001_new.sql', '', $1)
"""


@pytest.fixture(scope="module")
def stopped() -> Iterator[Cluster]:
    """A service with one server, which has run and is stopped."""
    with a_cluster(1) as cluster:
        (server,) = cluster.servers
        trio.run(cluster.start)
        trio.run(server.stop)
        yield cluster


@asynccontextmanager
async def changed(server: Server, statement: str, *arguments: object) -> AsyncIterator[None]:
    """Change the database for the length of the block."""

    async def run(unit: Callable[[Any], Awaitable[object]]) -> None:
        await trio.to_thread.run_sync(on_server, server.env["SIGHTLINE_DATABASE_URL"], unit)

    await run(lambda connection: connection.execute(statement, *arguments))
    try:
        yield
    finally:
        await run(lambda connection: connection.execute("DELETE FROM server_lease WHERE incarnation = 'other'"))
        await run(lambda connection: connection.execute("DELETE FROM schema_migration WHERE number = 9001"))


async def refusal_of(server: Server) -> str:
    """Start the server, wait until it ends with exit code 1, and return the last line of its log."""
    server.spawn()
    assert server.process is not None
    with trio.fail_after(START_S):
        assert await trio.to_thread.run_sync(server.process.wait, abandon_on_cancel=True) == 1
    await server._reap()
    return server.log().splitlines()[-1]


async def test_a_server_that_shares_no_wire_version_with_a_living_one_is_refused(stopped: Cluster) -> None:
    (server,) = stopped.servers
    async with changed(server, OTHER_WIRE):
        said = await refusal_of(server)
    assert "This server speaks wire versions 2 with other servers" in said
    assert "that on other-host speaks 7 to 8: they have no version in common" in said


async def test_a_server_is_refused_by_a_database_that_it_cannot_work_with(stopped: Cluster) -> None:
    (server,) = stopped.servers
    async with changed(server, NEW_MIGRATION, None):
        said = await refusal_of(server)
    assert "The database has migration 9001_new.sql, which this version does not know: run a newer version" in said


async def test_a_server_of_the_version_before_starts_on_a_database_that_is_compatible_with_it(stopped: Cluster) -> None:
    (server,) = stopped.servers
    async with changed(server, NEW_MIGRATION, 580):
        await server.start()
        assert await server.stop() == 0
