"""The keeper of a server's lease on a real Postgres: it renews, notices a loss, and does not trust an old renewal."""

import threading
from collections.abc import Callable

import pytest
import trio
import trio.testing

from sightline.domain.value import replace
from sightline.ports.leases import ServerIdentity, ServiceHeldError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres import leases as leases_module
from sightline.storage.postgres.leases import PostgresLeaseKeeper, PostgresShardLeases, end_server
from sightline.system.clock import boot_now_ms

from .proxy import open_wire

END_LEASES = "UPDATE server_lease SET expires_at = clock_timestamp() - interval '1 s'"
LEFT_S = "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM server_lease"


def a_server(name: str) -> ServerIdentity:
    return ServerIdentity(incarnation=name, host=name, directory_id=name, is_alone=True)


async def a_keeper(database: Database, name: str) -> PostgresLeaseKeeper:
    sent_ms, keeper = boot_now_ms(), PostgresLeaseKeeper(database, name)
    await PostgresShardLeases(database).enter(a_server(name))
    keeper.entered(sent_ms)
    return keeper


def unexpected(shards: object) -> None:
    raise AssertionError(f"lost {shards}")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew often, and trust a renewal for a short time."""
    monkeypatch.setattr(leases_module, "RENEW_EVERY_S", 0.05)
    monkeypatch.setattr(leases_module, "RENEW_DEADLINE_S", 2.0)
    monkeypatch.setattr(leases_module, "VALID_MS", 3_000)


@pytest.mark.usefixtures("quick")
async def test_a_lease_is_renewed_while_the_server_runs_and_ends_with_it(database: Database) -> None:
    keeper = await a_keeper(database, "first")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, dict, unexpected)
        await database.run(lambda connection: connection.execute(END_LEASES))
        with trio.fail_after(60):
            while await database.read(lambda connection: connection.fetchval(LEFT_S)) < 5:
                await trio.lowlevel.checkpoint()
        assert keeper.is_valid()
        with pytest.raises(ServiceHeldError):
            await PostgresShardLeases(database).enter(a_server("second"))
        nursery.cancel_scope.cancel()
    await database.run(lambda connection: connection.execute(END_LEASES))
    await PostgresShardLeases(database).enter(a_server("second"))


@pytest.mark.usefixtures("quick")
async def test_without_its_database_a_server_trusts_its_memory_for_a_limited_time(
    database_dsn: str,
) -> None:
    async with (
        open_wire(database_dsn) as wire,
        open_database(DatabaseOptions(pool=PoolOptions(dsn=wire.dsn))) as database,
        trio.open_nursery() as nursery,
    ):
        keeper = await a_keeper(database, "first")
        nursery.start_soon(keeper.run, dict, unexpected)
        await until(keeper.is_valid)
        wire.block()
        assert keeper.is_valid()
        await until(lambda: not keeper.is_valid())
        wire.unblock()
        await until(keeper.is_valid)
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("quick")
async def test_a_trio_loop_that_hangs_does_not_keep_the_lease(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "TICK_EVERY_S", 1_000)
    monkeypatch.setattr(leases_module, "TICK_MAX_MS", 200)
    keeper = await a_keeper(database, "first")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, dict, unexpected)
        await until(lambda: not keeper.is_valid())
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("quick")
async def test_a_trio_loop_that_runs_again_has_its_lease_at_once_and_not_after_the_next_interval(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "TICK_EVERY_S", 0.05)
    monkeypatch.setattr(leases_module, "TICK_MAX_MS", 200)
    keeper = await a_keeper(database, "first")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, dict, unexpected)
        await trio.testing.wait_all_tasks_blocked(0.01)
        hang = threading.Event()
        while keeper.is_valid():
            hang.wait(0.05)  # holds the trio loop up, as a suspension of the process does
        monkeypatch.setattr(leases_module, "RENEW_EVERY_S", 1_000)
        hang.wait(0.2)
        await until(keeper.is_valid)
        nursery.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not holds():
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_server_is_ended_with_its_shards_and_connections_and_its_successor_is_not(
    database: Database, database_dsn: str
) -> None:
    leases = PostgresShardLeases(database)
    for name in ("one", "two"):
        await leases.enter(replace(a_server(name), is_alone=False))
    await leases.take("one", [1, 2])
    await leases.take("two", [3])
    pool = PoolOptions(dsn=database_dsn, application_name="sightline one", connections_max=2)
    async with open_database(DatabaseOptions(pool=pool)) as of_one:
        backend = await of_one.read(lambda connection: connection.fetchval("SELECT pg_backend_pid()"))
        await end_server(database, "one")
        remain = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1"
        with trio.fail_after(60):
            while await database.read(lambda connection: connection.fetchval(remain, backend)):  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert [(server.incarnation, server.shards) for server in await leases.servers()] == [("two", frozenset({3}))]
    assert set(await leases.take("two", [1, 2])) == {1, 2}
    await leases.enter(replace(a_server("one again"), directory_id=a_server("one").directory_id, is_alone=False))
    await end_server(database, "one")  # the statement was given up, and is executed late
    assert await leases.renew("one again") is not None
