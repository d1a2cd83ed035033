"""Group commit: many writes share a transaction, and each caller gets the result of its own write."""

import random
from typing import Any

import pytest
import trio
import trio.testing

from sightline.domain.errors import OutcomeUnknownError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.group_commit import BATCH_MAX, WRITERS, GroupCommit
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.sqlstate import StatementRefusedError
from tests.storage.proxy import Fault, open_wire

STATEMENT = "INSERT INTO note VALUES ($1, pg_sleep($2)::text) RETURNING a"


@pytest.fixture
async def steps(database: Database) -> GroupCommit:
    await database.run(lambda c: c.execute("CREATE TABLE note (a int PRIMARY KEY CHECK (a <> 13), b text)"))
    return GroupCommit(database, STATEMENT)


async def notes(database: Database) -> list[int]:
    return [row["a"] for row in await database.read(lambda c: c.fetch("SELECT a FROM note ORDER BY a"))]


async def transactions(database: Database) -> int:
    return int(await database.read(lambda c: c.fetchval("SELECT count(DISTINCT xmin::text) FROM note")))


async def test_a_lone_step_goes_at_once_and_gets_its_row(database: Database, steps: GroupCommit) -> None:
    assert (await steps.write((1, 0.0)))["a"] == 1
    assert await notes(database) == [1]


async def test_steps_that_come_together_share_transactions_and_each_gets_its_own_row(
    database: Database, steps: GroupCommit
) -> None:
    rows: dict[int, int] = {}

    async def one(number: int) -> None:
        rows[number] = (await steps.write((number, 0.01)))["a"]

    async with trio.open_nursery() as nursery:
        for number in range(100, 150):
            nursery.start_soon(one, number)
    assert rows == {number: number for number in range(100, 150)}
    # The first of each writer alone, the rest in at most one batch each.
    assert await transactions(database) <= 2 * WRITERS


async def test_a_batch_is_bounded(database: Database, steps: GroupCommit) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(100, 100 + 3 * BATCH_MAX):
            nursery.start_soon(steps.write, (number, 0.0))
    most = "SELECT max(n) FROM (SELECT count(*) AS n FROM note GROUP BY xmin::text) AS batch"
    assert await database.read(lambda c: c.fetchval(most)) <= BATCH_MAX
    assert len(await notes(database)) == 3 * BATCH_MAX


async def test_a_step_that_fails_fails_alone(database: Database, steps: GroupCommit) -> None:
    failed: list[int] = []

    async def one(number: int) -> None:
        try:
            await steps.write((number, 0.005))
        except StatementRefusedError:
            failed.append(number)

    async with trio.open_nursery() as nursery:
        for number in [*range(20), 7]:
            nursery.start_soon(one, number)
    assert sorted(failed) == [7, 13]
    assert await notes(database) == [number for number in range(20) if number != 13]
    assert (await steps.write((99, 0.0)))["a"] == 99


async def test_a_step_cancelled_while_it_gathers_is_not_written(database: Database, steps: GroupCommit) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(steps.write, (number, 2.0))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.05) as scope:
            await steps.write((50, 0.0))
        assert scope.cancelled_caught
    assert await notes(database) == list(range(WRITERS))


@pytest.mark.parametrize("seed", range(4))
async def test_whoever_is_cancelled_when_the_others_are_served_and_what_returned_is_there(
    database: Database, steps: GroupCommit, seed: int
) -> None:
    dice = random.Random(seed)
    returned: list[int] = []
    patient = set(range(100, 300, 3))

    async def one(number: int) -> None:
        await trio.sleep(dice.random() * 0.05)
        with trio.move_on_after(trio.current_time() if number in patient else dice.random() * 0.03):
            await steps.write((number, 0.001))
            returned.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(100, 300):
            nursery.start_soon(one, number)
    assert patient <= set(returned)
    assert await notes(database) == sorted(returned)


@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.NOT_ANSWERED])
async def test_a_batch_that_is_cut_is_unknown_to_each_and_is_whole_or_not_there(
    database: Database, steps: GroupCommit, database_dsn: str, fault: Fault
) -> None:
    unknown: list[int] = []
    async with open_wire(database_dsn) as wire:
        pool = PoolOptions(dsn=wire.dsn, connections_min=WRITERS, connections_max=WRITERS)
        async with open_database(DatabaseOptions(pool=pool)) as cut:
            group = GroupCommit(cut, STATEMENT)

            async def one(number: int) -> None:
                try:
                    await group.write((number, 2.0 if number < WRITERS else 0.0))
                except OutcomeUnknownError:
                    unknown.append(number)

            async with trio.open_nursery() as nursery:
                for number in range(WRITERS):
                    nursery.start_soon(one, number)
                await trio.testing.wait_all_tasks_blocked()
                for number in range(20, 40):
                    nursery.start_soon(one, number)
                await trio.testing.wait_all_tasks_blocked()
                # Text that only the batch carries: the number 27, big-endian, as an argument.
                wire.faults.append((b"\x00\x00\x00\x04\x00\x00\x00\x1b", fault))
            assert wire.struck == [fault]
            await group.write((99, 0.0))
    assert 27 in unknown
    assert len(unknown) < 20, "the others are not in its batch"
    written = {*await notes(database)} - {*range(WRITERS), 99}
    assert written == set(range(20, 40)) - (set(unknown) if fault is Fault.NOT_SENT else set())


async def test_an_argument_that_does_not_fit_fails_its_step_alone(database: Database, steps: GroupCommit) -> None:
    outcomes: dict[Any, str] = {}

    async def one(value: Any) -> None:
        try:
            await steps.write((value, 0.01))
            outcomes[value] = "written"
        except StatementRefusedError:
            outcomes[value] = "refused"

    async with trio.open_nursery() as nursery:
        for value in [1, 2, 3, "four", 5, 6]:
            nursery.start_soon(one, value)
    assert outcomes == {1: "written", 2: "written", 3: "written", "four": "refused", 5: "written", 6: "written"}
    assert await notes(database) == [1, 2, 3, 5, 6]
