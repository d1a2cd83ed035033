"""Heartbeats are kept for as many days as promised, and dropped by the day."""

import trio

from sightline.domain.units import DAY_MS
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.retention import RetentionOptions, run_retention
from sightline.storage.postgres.store import PostgresStore

from ..contract.builders import T0, a_heartbeat, an_id  # noqa: TID252  no package of that name outside the tests

TODAY = T0 // DAY_MS


class FixedClock:
    def now_ms(self) -> int:
        return T0


async def days_of(database: Database) -> list[str]:
    asked = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'heartbeat'::regclass ORDER BY 1"
    return [row[0] for row in await database.read(lambda c: c.fetch(asked))]


async def test_days_older_than_promised_are_dropped_and_tomorrow_is_there_today(database: Database) -> None:
    store = PostgresStore(database)
    workspace_id = an_id()
    await store.append_heartbeats([a_heartbeat(workspace_id, day, T0 - day * DAY_MS) for day in range(5)])
    assert len(await days_of(database)) == 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_retention, store, FixedClock(), RetentionOptions(heartbeat_days=2))
        with trio.fail_after(10):
            while len(await days_of(database)) != 4:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert await days_of(database) == [
        "heartbeat_20251007",
        "heartbeat_20251008",
        "heartbeat_20251009",
        "heartbeat_20251010",
    ]


async def test_a_heartbeat_of_a_day_that_was_dropped_is_still_recorded(database: Database) -> None:
    store, late = PostgresStore(database), a_heartbeat(an_id(), 1, T0 - 9 * DAY_MS)
    await store.append_heartbeats([a_heartbeat(late.workspace_id, 0, T0 - 9 * DAY_MS)])
    await PostgresStore(database).keep_heartbeats(now_ms=T0, days=2)
    await store.append_heartbeats([late])
    assert await store.latest_heartbeat(late.workspace_id) == late


async def test_making_the_same_day_from_many_sides_makes_it_once(database: Database) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(PostgresStore(database).append_heartbeats, [a_heartbeat(an_id(), 1, T0)])
    assert len(await days_of(database)) == 1
