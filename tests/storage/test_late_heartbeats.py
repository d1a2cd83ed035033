"""A commit of heartbeats whose answer was lost, and that comes late, does not double what was sent again meanwhile."""

from typing import Any

import trio

from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.store import PostgresStore
from tests.contract.builders import T0, a_heartbeat, an_id, record

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def test_a_heartbeat_sent_again_while_its_first_commit_is_under_way_is_recorded_once(
    database: Database, database_dsn: str
) -> None:
    store, workspace_id = PostgresStore(database), an_id()
    await store.make_heartbeat_days(T0)
    first, again = a_heartbeat(workspace_id, 5, T0), a_heartbeat(workspace_id, 5, T0 + 6_000)
    other = a_heartbeat(workspace_id, 6, T0 + 8_000)
    may_commit, is_open = trio.Event(), trio.Event()

    async def late_commit(connection: Any) -> None:
        """The statement of the first report, not yet committed."""
        await connection.execute(
            """INSERT INTO heartbeat
            (workspace_id, sequence, at_ms, taken_at_ms, lat, lng, accuracy_m, is_proof, is_fresh)
            VALUES ($1, 5, $2, $2, 52.5, 13.4, 5, false, true)""",
            workspace_id,
            first.fix.at_ms,
        )
        trio.from_thread.run_sync(is_open.set, trio_token=token)
        while not may_commit.is_set():
            await connection.fetchval("SELECT pg_sleep(0.01)")

    token = trio.lowlevel.current_trio_token()
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=database_dsn))) as elsewhere:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elsewhere.transact, late_commit)
            await is_open.wait()
            nursery.start_soon(record, store, again, other)
            with trio.fail_after(60):
                while await elsewhere.read(lambda c: c.fetchval(WAITING)) == 0:
                    await trio.lowlevel.checkpoint()
            may_commit.set()
        rows = await elsewhere.read(lambda c: c.fetch("SELECT sequence, at_ms FROM heartbeat ORDER BY sequence"))
    assert [tuple(row) for row in rows] == [(5, T0), (6, T0 + 8_000)]
