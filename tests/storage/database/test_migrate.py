"""Migrations against a real Postgres."""

import json
from collections.abc import AsyncIterator

import pytest
import trio

from sightline.domain.access import Scope
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.leases import ServerIdentity
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.migrate import (
    Migration,
    OlderServersError,
    SchemaError,
    known_migrations,
    migrate,
)
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.identity import PostgresIdentityStore
from sightline.storage.postgres.leases import PostgresShardLeases
from sightline.storage.postgres.money.settlements import PostgresOutbox

SESSION_ID = "00000000-0000-4000-8000-000000000003"
FIRST = Migration(1, "0001_first.sql", "CREATE TABLE first (a int); CREATE TABLE second (b int);")
SECOND = Migration(2, "0002_second.sql", "ALTER TABLE first ADD COLUMN c int;")
BROKEN = Migration(3, "0003_broken.sql", "CREATE TABLE third (a int); SELECT no_such_column;")


@pytest.fixture
async def empty(empty_database_dsn: str) -> AsyncIterator[Database]:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=empty_database_dsn))) as opened:
        yield opened


async def test_every_migration_is_applied_once(empty: Database) -> None:
    assert await migrate(empty, [FIRST, SECOND]) == ("0001_first.sql", "0002_second.sql")
    assert await migrate(empty, [FIRST, SECOND]) == ()


async def test_our_own_migrations_apply_to_an_empty_database(empty: Database) -> None:
    assert len(await migrate(empty)) == len(known_migrations())


async def test_a_key_from_before_webhooks_shows_its_scope_and_gains_no_power(empty: Database) -> None:
    add_key = """
    INSERT INTO api_key (key_id, workspace_id, digest, label, prefix, environment, scopes, created_at_ms,
      created_by_wallet)
    VALUES ($1, $1, decode(repeat($2, 32), 'hex'), 'k', 'p', 'TEST', '{webhooks:write,sessions:read}', 1, '0x')
    """
    migrations, key_id = known_migrations(), "00000000-0000-4000-8000-000000000001"
    await migrate(empty, [each for each in migrations if each.number < 500])
    await empty.run(lambda c: c.execute(add_key, key_id, "aa"))
    await migrate(empty, migrations)
    newer = "00000000-0000-4000-8000-000000000002"
    await empty.run(lambda c: c.execute(add_key, newer, "bb"))
    found = {digest: await PostgresIdentityStore(empty).key_of(digest * 32) for digest in (b"\xaa", b"\xbb")}
    scopes = frozenset({Scope.WEBHOOKS_WRITE, Scope.SESSIONS_READ})
    assert [record.scopes for record in found.values() if record] == [scopes, scopes]
    assert [record.inert_scopes for record in found.values() if record] == [{Scope.WEBHOOKS_WRITE}, frozenset()]


async def test_a_settlement_that_was_mismatched_before_gets_the_seconds_of_its_amounts(empty: Database) -> None:
    payload = {
        "sessionId": SESSION_ID, "from": "0xaa", "to": "0xbb", "toAmount": "2550", "feeAmount": "450", "rate": "1000",
        "seconds": 3, "consumer": SESSION_ID, "operator": SESSION_ID, "feeBps": 1500,
    }  # fmt: skip
    add_settlement = """
    INSERT INTO settlement (session_id, session_id_hash, payload, state, chain_to_amount, chain_fee_amount,
      composed_at_ms, updated_at_ms) VALUES ($1, '0x01', $2, 'MISMATCHED', 5950, 1050, 1, 1)
    """
    migrations = known_migrations()
    await migrate(empty, [each for each in migrations if each.number < 640])
    await empty.run(lambda c: c.execute(add_settlement, SESSION_ID, json.dumps(payload)))
    await migrate(empty, migrations)
    record = await PostgresOutbox(empty).settlement(SESSION_ID)
    assert record is not None
    amounts = {"to_amount": MicroUsdc(5_950), "fee_amount": MicroUsdc(1_050)}
    assert record.on_chain == replace(record.payload, chargeable_seconds=7, **amounts)


async def test_servers_that_start_together_take_turns(empty: Database) -> None:
    applied: list[str] = []

    async def one_server() -> None:
        applied.extend(await migrate(empty, [FIRST, SECOND]))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one_server)
    assert sorted(applied) == ["0001_first.sql", "0002_second.sql"]


async def test_a_failing_migration_leaves_nothing_behind(empty: Database) -> None:
    with pytest.raises(SchemaError, match="no_such_column"):
        await migrate(empty, [FIRST, BROKEN])
    assert await empty.read(lambda c: c.fetchval("SELECT to_regclass('third')")) is None
    assert await migrate(empty, [FIRST]) == ()


async def test_a_database_of_newer_code_is_refused(empty: Database) -> None:
    await migrate(empty, [FIRST, SECOND])
    with pytest.raises(SchemaError, match="newer version"):
        await migrate(empty, [FIRST])


async def test_a_migration_changed_after_it_was_applied_is_refused(empty: Database) -> None:
    await migrate(empty, [FIRST])
    with pytest.raises(SchemaError, match="not the one"):
        await migrate(empty, [Migration(1, "0001_first.sql", FIRST.sql + " -- edited")])


async def test_a_migration_with_a_number_below_the_newest_is_still_applied(empty: Database) -> None:
    await migrate(empty, [Migration(9, "0009_late.sql", "CREATE TABLE late (a int);")])
    assert await migrate(empty, [FIRST, Migration(9, "0009_late.sql", "CREATE TABLE late (a int);")]) == (FIRST.name,)


# Servers of several versions on one database.

COMPATIBLE = Migration(9001, "9001_added.sql", "-- compatible_from: 0580\nCREATE TABLE added (a int);")
BREAKING = Migration(9002, "9002_renamed.sql", "CREATE TABLE renamed (a int);")
ENDED = "UPDATE server_lease SET expires_at = clock_timestamp() - interval '1 second'"


def a_server(name: str) -> ServerIdentity:
    return ServerIdentity(incarnation=name, host=f"host of {name}", directory_id=f"place of {name}")


async def test_a_migration_is_applied_while_servers_run_that_can_work_with_it(empty: Database) -> None:
    await migrate(empty)
    await PostgresShardLeases(empty).enter(a_server("old"))
    assert await migrate(empty, [*known_migrations(), COMPATIBLE]) == (COMPATIBLE.name,)
    # The server of the older version may be started again, and a second one may enter.
    assert await migrate(empty) == ()
    await PostgresShardLeases(empty).enter(a_server("old too"))


async def test_a_migration_is_refused_while_servers_run_that_cannot_work_with_it(empty: Database) -> None:
    await migrate(empty)
    leases, wanted = PostgresShardLeases(empty), [*known_migrations(), COMPATIBLE, BREAKING]
    await leases.enter(a_server("old"))
    with pytest.raises(OlderServersError, match=r"9002_renamed.sql .* run on host of old: stop all of them first"):
        await migrate(empty, wanted)
    assert await empty.read(lambda c: c.fetchval("SELECT to_regclass('renamed')")) is None
    assert await leases.renew("old") is not None

    await empty.run(lambda c: c.execute(ENDED))
    assert await migrate(empty, wanted) == (BREAKING.name,)
    assert await leases.renew("old") is None, "a server that was suspended does not come back"
    with pytest.raises(SchemaError, match=r"9002_renamed.sql, which this version does not know"):
        await leases.enter(a_server("older"))


async def test_a_single_server_is_protected_from_migrations_of_a_spare(empty: Database) -> None:
    await migrate(empty)
    await PostgresShardLeases(empty).enter(replace(a_server("single"), is_alone=True))
    with pytest.raises(OlderServersError, match="host of single"):
        await migrate(empty, [*known_migrations(), BREAKING], directory_id="place of the spare")
    # It has ended, if its data directory is locked by the server that applies the migration.
    assert await migrate(empty, [*known_migrations(), BREAKING], directory_id="place of single") == (BREAKING.name,)


async def test_servers_that_say_nothing_of_migrations_know_0580(empty: Database) -> None:
    await migrate(empty)
    await empty.run(lambda c: c.execute("SELECT enter_server('before', 'host', 'place', '6 s')"))
    assert await migrate(empty, [*known_migrations(), COMPATIBLE]) == (COMPATIBLE.name,)
    with pytest.raises(OlderServersError):
        await migrate(empty, [*known_migrations(), COMPATIBLE, BREAKING])


def test_every_migration_names_one_that_exists_in_compatible_from() -> None:
    known = {migration.number for migration in known_migrations()}
    for migration in known_migrations():
        assert migration.compatible_from is None or migration.compatible_from in known, migration.name
