"""What `sightline nodes` shows: servers, leases, shards and roles, as the database sees them."""

import pytest

from sightline.actors.shards import EVERY_SHARD
from sightline.domain.value import replace
from sightline.ports.leases import TTL_MS, ServerFigures, ServerIdentity, ServerRole
from sightline.ports.store import ShardLease
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.leases import PostgresShardLeases
from sightline.storage.postgres.operations.ownership import read_ownership, report_figures
from sightline.storage.postgres.operations.readiness import probe_database


def a_server(name: str) -> ServerIdentity:
    return ServerIdentity(incarnation=name, host=f"host of {name}", directory_id=f"place of {name}")


async def test_one_server_owns_everything(database: Database) -> None:
    leases = PostgresShardLeases(database)
    await leases.enter(replace(a_server("one"), is_alone=True))
    await leases.take("one", EVERY_SHARD)
    report = await read_ownership(database)
    (server,) = report.servers
    assert (server.incarnation, server.host, server.is_valid) == ("one", "host of one", True)
    assert (server.shards, server.roles, report.unowned_shards) == (256, tuple(ServerRole), 0)
    assert 0 <= server.renewed_ms_ago < TTL_MS


async def test_a_server_shows_what_it_reported_and_when(database: Database) -> None:
    await PostgresShardLeases(database).enter(a_server("one"))
    (before,) = (await read_ownership(database)).servers
    assert (before.reported_ms_ago, before.about.name) == (None, "host of one")
    figures = ServerFigures(name="a/2", url="http://10.0.0.5:8082", version="1.0", loop_delay_ms=7)
    await report_figures(database, "one", figures)
    (server,) = (await read_ownership(database)).servers
    assert server.about == figures
    assert server.reported_ms_ago is not None
    assert 0 <= server.reported_ms_ago < TTL_MS


async def test_two_servers_and_what_neither_owns(database: Database) -> None:
    leases = PostgresShardLeases(database)
    for name, shards in (("a", [0, 1, ServerRole.WATCHER]), ("b", [2, ServerRole.RELAYER])):
        await leases.enter(a_server(name))
        await leases.take(name, shards)
    await database.run(
        lambda connection: connection.execute(
            "UPDATE server_lease SET expires_at = expires_at - interval '9 s' WHERE incarnation = 'b'"
        )
    )
    report = await read_ownership(database)
    owned = [(each.incarnation, each.is_valid, each.shards, each.roles) for each in report.servers]
    assert owned == [("a", True, 2, (ServerRole.WATCHER,)), ("b", False, 1, (ServerRole.RELAYER,))]
    assert report.servers[1].renewed_ms_ago >= 9_000
    assert report.unowned_shards == len(EVERY_SHARD) - 5


@pytest.mark.parametrize(("epoch_ahead", "fenced"), [(0, 0), (-1, 1)])
async def test_a_server_that_owns_a_part_is_fenced_only_where_its_epoch_is_old(
    database: Database, epoch_ahead: int, fenced: int
) -> None:
    leases = PostgresShardLeases(database)
    await leases.enter(a_server("a"))
    lease = ShardLease(3, (await leases.take("a", [3]))[3])
    probe = await probe_database(database, {lease.shard: lease.epoch + epoch_ahead})
    assert (probe.problem, probe.fenced_shards) == (None, fenced)
