"""Concurrent calls are coalesced: each gets its own result, and no slot is lost when a caller leaves."""

import pytest
import trio
import trio.testing

from sightline.storage.database.batching import BatchedCall, Batcher
from sightline.storage.database.bridge import Database
from sightline.storage.database.group_read import READERS, GroupRead
from sightline.storage.database.pool import Connection
from sightline.storage.database.sqlstate import StatementRefusedError


class Desk:
    """Serves a batch when told to."""

    def __init__(self) -> None:
        self.batches: list[list[BatchedCall]] = []
        self.open = trio.Event()

    async def serve(self, batch: list[BatchedCall]) -> None:
        self.batches.append(batch)
        await self.open.wait()


@pytest.mark.parametrize("_round", range(20))  # which of the two runs first is random
async def test_a_leader_that_is_cancelled_in_the_same_moment_leaves_its_place_to_the_next(_round: int) -> None:
    desk = Desk()
    batcher: Batcher[BatchedCall] = Batcher(desk.serve, at_once=1, batch_max=1)
    leaving = trio.CancelScope()

    async def leave() -> None:
        with leaving:
            await batcher.submit(BatchedCall())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(batcher.submit, BatchedCall())
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(batcher.submit, BatchedCall())
        await trio.testing.wait_all_tasks_blocked()
        # Both are runnable now: the one that leaves may be made leader before it has left.
        leaving.cancel()
        desk.open.set()
    with trio.fail_after(60):
        await batcher.submit(BatchedCall())
    assert len(desk.batches) == 3


@pytest.mark.parametrize(("batch_max", "sizes"), [(64, [3, 3]), (1, [1, 1])])
async def test_batches_that_end_in_the_same_moment_are_followed_by_as_many_of_the_same_size(
    batch_max: int, sizes: list[int]
) -> None:
    desk = Desk()
    batcher: Batcher[BatchedCall] = Batcher(desk.serve, at_once=2, batch_max=batch_max)
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(batcher.submit, BatchedCall())
        await trio.testing.wait_all_tasks_blocked()
        assert [len(batch) for batch in desk.batches] == [1, 1]
        first, desk.open = desk.open, trio.Event()
        first.set()
        await trio.testing.wait_all_tasks_blocked()
        followed = [len(batch) for batch in desk.batches[2:]]
        desk.open.set()
    assert followed == sizes
    assert sum(len(batch) for batch in desk.batches) == 8


@pytest.fixture
async def numbers(database: Database) -> Database:
    await database.run(lambda c: c.execute("CREATE TABLE number (n int PRIMARY KEY, name text)"))
    await database.run(lambda c: c.execute("INSERT INTO number SELECT n, 'no ' || n FROM generate_series(1, 99) n"))
    return database


async def test_look_ups_that_come_together_share_queries_and_each_finds_its_own(numbers: Database) -> None:
    queries: list[int] = []

    async def fetch(connection: Connection, keys: list[int]) -> dict[int, str]:
        queries.append(len(keys))
        rows = await connection.fetch("SELECT n, name, pg_sleep(0.01) FROM number WHERE n = ANY($1::int[])", keys)
        return {row["n"]: row["name"] for row in rows}

    reads: GroupRead[int, str] = GroupRead(numbers, fetch)  # type: ignore[arg-type]
    found: dict[int, str | None] = {}

    async def look_up(number: int) -> None:
        found[number] = await reads.read(number)

    async with trio.open_nursery() as nursery:
        for number in range(90, 120):
            nursery.start_soon(look_up, number)
    assert found == {number: f"no {number}" if number < 100 else None for number in range(90, 120)}
    assert len(queries) <= 2 * READERS


async def test_a_shared_look_up_that_fails_fails_for_everybody_and_finds_nothing_missing(numbers: Database) -> None:
    async def fetch(connection: Connection, _keys: object) -> dict[int, str]:
        await connection.fetch("SELECT pg_sleep(0.01), 1 / 0")
        return {}

    reads: GroupRead[int, str] = GroupRead(numbers, fetch)
    failed: list[int] = []

    async def look_up(number: int) -> None:
        with pytest.raises(StatementRefusedError) as caught:
            await reads.read(number)
        assert caught.value.sqlstate == "22012"
        failed.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(look_up, number)
    assert sorted(failed) == list(range(10))
