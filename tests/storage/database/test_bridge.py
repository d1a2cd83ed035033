"""The bridge against a real Postgres: results, cancellation, deadlines, bounds, closing."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
import trio
import trio.testing

from sightline.domain.errors import InvariantError, OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.sqlstate import StatementRefusedError

Unit = Callable[[Any], Awaitable[Any]]


def options(dsn: str, *, connections: int = 1, **changes: Any) -> DatabaseOptions:
    pool = PoolOptions(dsn=dsn, connections_min=1, connections_max=connections)
    return DatabaseOptions(pool=pool, **changes)


async def make_table(database: Database) -> None:
    await database.run(lambda c: c.execute("CREATE TABLE note (a int PRIMARY KEY)"))


async def notes(database: Database) -> int:
    return int(await database.read(lambda c: c.fetchval("SELECT count(*) FROM note")))


def add(value: int, *, then: str | None = None) -> Unit:
    async def unit(connection: Any) -> int:
        await connection.execute("INSERT INTO note VALUES ($1)", value)
        if then is not None:
            await connection.execute(then)
        return value

    return unit


async def running_elsewhere(database: Database) -> int:
    """How many statements of others the server is running."""
    asked = """
        SELECT count(*) FROM pg_stat_activity
        WHERE state <> 'idle' AND pid <> pg_backend_pid() AND datname = current_database()
          AND backend_type = 'client backend'
    """
    return int(await database.read(lambda c: c.fetchval(asked)))


async def test_a_transaction_is_committed_as_a_whole_and_its_result_comes_back(database: Database) -> None:
    await make_table(database)
    assert await database.transact(add(1)) == 1
    assert await notes(database) == 1


async def test_an_error_of_the_unit_rolls_back_and_reaches_the_caller(database: Database) -> None:
    await make_table(database)

    async def unit(connection: Any) -> None:
        await add(1)(connection)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await database.transact(unit)
    assert await notes(database) == 0


async def test_a_statement_that_the_database_refuses_as_wrong_is_a_bug_with_its_sqlstate(database: Database) -> None:
    await make_table(database)
    await database.run(add(1))
    for call in (database.run, database.transact):
        with pytest.raises(StatementRefusedError) as caught:
            await call(add(1))
        assert caught.value.sqlstate == "23505"
    assert await database.transact(add(2)) == 2


async def test_a_unit_that_hides_an_error_is_found_out(database: Database) -> None:
    await make_table(database)

    async def unit(connection: Any) -> None:
        try:
            await connection.execute("SELECT no_such_column")
        except asyncpg.PostgresError:
            return

    with pytest.raises(InvariantError, match="hid an error"):
        await database.transact(unit)
    assert await database.transact(add(1)) == 1


async def test_a_transaction_that_lost_against_another_one_runs_again(database: Database) -> None:
    await make_table(database)
    runs = []

    async def unit(connection: Any) -> None:
        runs.append(1)
        await add(len(runs))(connection)
        if len(runs) < 3:
            await connection.execute("DO $$ BEGIN RAISE serialization_failure; END $$")

    await database.transact(unit)
    assert len(runs) == 3
    assert await notes(database) == 1


async def test_a_transaction_that_always_loses_is_unavailable(database: Database) -> None:
    with pytest.raises(StoreUnavailableError, match="undone"):
        await database.transact(lambda c: c.execute("DO $$ BEGIN RAISE deadlock_detected; END $$"))


async def test_cancelling_a_transaction_stops_it_on_the_server_and_rolls_it_back(database_dsn: str) -> None:
    async with open_database(options(database_dsn)) as database:
        await make_table(database)
        with trio.move_on_after(0.1) as scope:
            await database.transact(add(1, then="SELECT pg_sleep(60)"))
        assert scope.cancelled_caught
        # The pool has one connection: it is back, and usable.
        assert await running_elsewhere(database) == 0
        assert await notes(database) == 0
        assert database.statistics().connections_open == 1


async def test_cancelling_while_waiting_for_a_connection_takes_none(database_dsn: str) -> None:
    async with open_database(options(database_dsn)) as database, trio.open_nursery() as nursery:
        nursery.start_soon(database.read, lambda c: c.execute("SELECT pg_sleep(2)"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.1) as scope:
            await database.run(lambda c: c.fetchval("SELECT 1"))
        assert scope.cancelled_caught
        assert await database.read(lambda c: c.fetchval("SELECT 2")) == 2


async def test_a_statement_that_commits_itself_is_left_to_finish_when_cancelled(database: Database) -> None:
    await make_table(database)
    with trio.CancelScope() as scope:
        scope.deadline = trio.current_time() + 1  # by then the statement is sent
        result = await database.run(lambda c: c.fetchval("INSERT INTO note SELECT 1 FROM pg_sleep(2) RETURNING a"))
    assert result == 1
    assert await notes(database) == 1


async def test_a_transaction_that_misses_its_deadline_is_undone_and_unavailable(database: Database) -> None:
    await make_table(database)
    with pytest.raises(StoreUnavailableError, match="deadline"):
        await database.transact(add(1, then="SELECT pg_sleep(60)"), deadline_ms=1_000)
    assert await notes(database) == 0
    assert await running_elsewhere(database) == 0


async def test_a_statement_that_commits_itself_and_misses_its_deadline_is_unknown(database: Database) -> None:
    with pytest.raises(OutcomeUnknownError):
        await database.run(lambda c: c.execute("SELECT pg_sleep(60)"), deadline_ms=1_000)
    assert await running_elsewhere(database) == 0


async def test_a_commit_that_misses_its_deadline_is_unknown(database: Database) -> None:
    await make_table(database)
    slow = """
        CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON note DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION dawdle();
    """
    await database.run(lambda c: c.execute(slow))
    with pytest.raises(OutcomeUnknownError, match="deadline"):
        await database.transact(add(1), deadline_ms=1_500)


async def test_waiting_for_a_connection_counts_against_the_deadline(database_dsn: str) -> None:
    async with open_database(options(database_dsn)) as database, trio.open_nursery() as nursery:
        nursery.start_soon(database.read, lambda c: c.execute("SELECT pg_sleep(3)"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(StoreUnavailableError):
            await database.run(lambda c: c.execute("SELECT 1"), deadline_ms=200)


async def test_units_in_flight_are_bounded_and_the_rest_wait_within_their_deadline(database_dsn: str) -> None:
    async with (
        open_database(options(database_dsn, connections=2, in_flight_max=1)) as database,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(database.read, lambda c: c.execute("SELECT pg_sleep(2)"))
        await trio.testing.wait_all_tasks_blocked()
        assert database.statistics().in_flight == 1
        with pytest.raises(StoreUnavailableError, match="too many"):
            await database.read(lambda c: c.fetchval("SELECT 1"), deadline_ms=50)
        assert await database.read(lambda c: c.fetchval("SELECT 1")) == 1


async def test_a_connection_that_died_in_the_pool_is_not_noticed_by_readers(database_dsn: str) -> None:
    async with open_database(options(database_dsn)) as database, open_database(options(database_dsn)) as other:
        pid = await database.read(lambda c: c.fetchval("SELECT pg_backend_pid()"))
        await other.run(lambda c: c.execute("SELECT pg_terminate_backend($1)", pid))
        assert await database.read(lambda c: c.fetchval("SELECT 1")) == 1


async def test_a_transaction_whose_connection_dies_before_commit_runs_again(database_dsn: str) -> None:
    async with open_database(options(database_dsn)) as database, open_database(options(database_dsn)) as other:
        await make_table(database)
        pids: list[int] = []

        async def unit(connection: Any) -> None:
            pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
            await add(1)(connection)
            if len(pids) == 1:
                await connection.execute("SELECT pg_sleep(60)")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.transact, unit)
            while (
                await other.read(
                    lambda c: c.fetchval(
                        "SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND relation = 'note'::regclass"
                    )
                )
                == 0
            ):
                await trio.lowlevel.checkpoint()
            await other.run(lambda c: c.execute("SELECT pg_terminate_backend($1)", pids[0]))
        assert len(set(pids)) == 2
        assert await notes(database) == 1


async def test_closing_waits_for_work_under_way_and_refuses_new_work(database_dsn: str) -> None:
    results: list[int] = []

    async def slow(database: Database) -> None:
        results.append(await database.transact(lambda c: c.fetchval("SELECT 7 FROM pg_sleep(0.3)")))

    async with trio.open_nursery() as nursery, open_database(options(database_dsn)) as database:
        nursery.start_soon(slow, database)
        await trio.testing.wait_all_tasks_blocked()
    assert results == [7]
    with pytest.raises(StoreUnavailableError, match="closed"):
        await database.ping()


async def test_closing_ends_work_that_takes_too_long(database_dsn: str) -> None:
    refused: list[Exception] = []

    async def endless(database: Database) -> None:
        try:
            await database.transact(lambda c: c.execute("SELECT pg_sleep(60)"), deadline_ms=60_000)
        except StoreUnavailableError as error:
            refused.append(error)

    async with trio.open_nursery() as nursery, open_database(options(database_dsn, drain_ms=100)) as database:
        nursery.start_soon(endless, database)
        await trio.testing.wait_all_tasks_blocked()
    assert len(refused) == 1


async def test_an_unreachable_database_is_unavailable_at_once() -> None:
    with pytest.raises(StoreUnavailableError):
        async with open_database(options("postgresql://postgres@/x?host=/nonexistent")):
            raise AssertionError("opened")


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_cancelled_when_what_returned_is_there_and_nothing_else(database_dsn: str, seed: int) -> None:
    dice = random.Random(seed)
    done: list[int] = []
    async with open_database(options(database_dsn, connections=4)) as database:
        await make_table(database)

        async def one(value: int, patience_s: float) -> None:
            # On a slow machine the deadline may pass first: nothing is applied then either.
            with trio.move_on_after(patience_s), suppress(StoreUnavailableError):
                done.append(await database.transact(add(value, then="SELECT pg_sleep(0.002)")))

        async with trio.open_nursery() as nursery:
            for value in range(120):
                nursery.start_soon(one, value, dice.random() * 0.15)
        rows = await database.read(lambda c: c.fetch("SELECT a FROM note ORDER BY a"))
        assert [row["a"] for row in rows] == sorted(done)
        statistics = database.statistics()
        assert (statistics.in_flight, statistics.waiting_for_connection) == (0, 0)
        assert statistics.connections_open == statistics.connections_idle
        assert await running_elsewhere(database) == 0
