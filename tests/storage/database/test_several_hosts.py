"""A database with a standby: every connection leads to the host that accepts writes, also while another is silent."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from sightline.domain.errors import StoreUnavailableError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.compatibility import require_direct_connections
from sightline.storage.database.durability import warn_if_not_durable
from sightline.storage.database.pool import PoolOptions
from sightline.storage.embedded.dump import PostgresTools
from tests.conftest import open_data_directory
from tests.nemesis.parts import ExternalPostgres
from tests.storage.proxy import open_wire

WRITABLE = "target_session_attrs=read-write"
IS_STANDBY = "SELECT pg_is_in_recovery()"


@dataclass
class Pair:
    """A primary and its synchronous standby."""

    primary: ExternalPostgres
    standby: ExternalPostgres

    def url(self, *, standby_first: bool) -> str:
        hosts = [str(each.layout.socket_directory) for each in (self.primary, self.standby)]
        return (
            f"postgresql://postgres@/postgres?host={','.join(reversed(hosts) if standby_first else hosts)}&{WRITABLE}"
        )


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with open_data_directory() as directory:
        directory.chmod(0o711)
        (directory / "primary").mkdir(mode=0o700)
        primary = ExternalPostgres(directory / "primary")
        primary.start()
        standby = trio.run(primary.replicate, directory / "standby")
        try:
            yield Pair(primary, standby)
        finally:
            standby.end()
            primary.end()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are made and nothing is ever answered, as behind a firewall that drops packets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def options(dsn: str, *, connections: int = 2, deadline_ms: int = 5_000) -> DatabaseOptions:
    pool = PoolOptions(dsn=dsn, connections_min=connections, connections_max=connections)
    return DatabaseOptions(pool=pool, deadline_ms=deadline_ms)


async def is_standby(database: Database) -> bool:
    return bool(await database.read(lambda connection: connection.fetchval(IS_STANDBY)))


@pytest.mark.parametrize("standby_first", [True, False])
async def test_every_connection_leads_to_the_primary_wherever_the_url_names_it(
    pair: Pair, *, standby_first: bool
) -> None:
    url = pair.url(standby_first=standby_first)
    async with open_database(options(url)) as database:
        assert not await is_standby(database)
        await require_direct_connections(database)
        assert await warn_if_not_durable(database, has_standby=True) == ()
    assert await PostgresTools(url).query(IS_STANDBY) == "f"


async def test_a_standby_for_which_no_commit_waits_is_reported(database: Database) -> None:
    reported = await warn_if_not_durable(database, has_standby=True)
    assert set(reported) - set(await warn_if_not_durable(database)) == {"synchronous_standby_names"}


async def test_hosts_of_which_none_accepts_writes_are_reported_as_unavailable(pair: Pair) -> None:
    both = f"{pair.standby.layout.socket_directory},{pair.standby.layout.socket_directory}"
    with pytest.raises(StoreUnavailableError, match="read_write"):
        async with open_database(options(f"postgresql://postgres@/postgres?host={both}&{WRITABLE}")):
            pass


async def test_a_silent_first_host_does_not_use_the_time_of_the_others(pair: Pair, silent_port: int) -> None:
    async with open_wire(pair.primary.layout.dsn) as wire:
        port = urlsplit(wire.dsn).port
        url = f"postgresql://postgres@127.0.0.1:{silent_port},127.0.0.1:{port}/postgres?sslmode=disable&{WRITABLE}"
        with trio.fail_after(60):  # asyncpg alone waits 5 s for the first host, and then gives up
            async with open_database(options(url)) as database:
                assert not await is_standby(database)
        assert await PostgresTools(url).query("SELECT 1") == "1"


async def test_after_one_call_has_found_the_host_silent_the_others_use_new_connections(pair: Pair) -> None:
    async with open_wire(pair.primary.layout.dsn) as first, open_wire(pair.primary.layout.dsn) as second:
        hosts = ",".join(f"127.0.0.1:{urlsplit(wire.dsn).port}" for wire in (first, second))
        url = f"postgresql://postgres@{hosts}/postgres?sslmode=disable&{WRITABLE}"
        async with open_database(options(url, connections=5, deadline_ms=3_000)) as database:
            first.block()
            with pytest.raises(StoreUnavailableError):
                await is_standby(database)
            for _ in range(5):
                assert not await is_standby(database)


async def test_a_refused_write_closes_all_idle_connections_to_a_host_that_became_read_only(
    pair: Pair,
) -> None:
    async with open_database(options(pair.url(standby_first=False), connections=4)) as database:
        await database.run(lambda connection: connection.execute("CREATE TABLE note (text text)"))

        async def write_as_standby(connection: Any) -> None:
            await connection.execute("SET TRANSACTION READ ONLY")
            await connection.execute("INSERT INTO note VALUES ('')")

        with pytest.raises(StoreUnavailableError):
            await database.transact(write_as_standby)
        assert database.statistics().connections_open == 0
        await database.run(lambda connection: connection.execute("DROP TABLE note"))
