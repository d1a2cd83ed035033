"""One batch of heartbeats of several shards: those of a shard that another server took are refused, and only those."""

import pytest
import trio
import trio.testing

from sightline.actors.workspace.heartbeat_writer import HeartbeatWriter
from sightline.ports.store import HeartbeatWrite, ShardLease, ShardLostError
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.store import PostgresStore
from tests.contract.builders import T0, a_heartbeat, an_id
from tests.shards import take_every_shard

TAKE_SEVEN = "UPDATE shard SET owner = 'other', epoch = epoch + 1 WHERE id = 7"


async def test_a_lost_shard_fails_its_own_heartbeats_and_no_others_of_the_batch(database: Database) -> None:
    store = PostgresStore(database)
    epochs = await take_every_shard(store, "host", "first")
    writer = HeartbeatWriter(store)
    lost, held = an_id(), [an_id() for _ in range(5)]
    await database.run(lambda c: c.execute(TAKE_SEVEN))
    refused: list[ShardLostError] = []

    async def lost_write() -> None:
        with pytest.raises(ShardLostError) as caught:
            await writer.write(HeartbeatWrite(ShardLease(7, epochs[7]), (a_heartbeat(lost, 1, T0),)))
        refused.append(caught.value)

    async with trio.open_nursery() as writers:
        # Submitted before the writer runs, so that they are one batch.
        async with trio.open_nursery() as submitters:
            submitters.start_soon(lost_write)
            for shard, workspace_id in enumerate(held, 5):
                lease = ShardLease(shard + 10, epochs[shard + 10])
                submitters.start_soon(writer.write, HeartbeatWrite(lease, (a_heartbeat(workspace_id, 1, T0),)))
            await trio.testing.wait_all_tasks_blocked()
            assert writer.depth == 6
            writers.start_soon(writer.run)
        writers.cancel_scope.cancel()
    assert len(refused) == 1
    assert await store.latest_heartbeat(lost) is None
    assert [await store.latest_heartbeat(each) for each in held] == [a_heartbeat(each, 1, T0) for each in held]
