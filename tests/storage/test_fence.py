"""A server whose shards another one took notices it at its next write."""

import trio

from sightline.domain.value import replace
from sightline.ports.store import HeartbeatWrite, Rejected, RejectedWhy, SessionWrite, ShardLease, WorkspaceWrite
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.store import PostgresStore
from tests.contract.builders import T0, a_heartbeat, a_session, a_workspace, an_id
from tests.shards import take_every_shard


async def two_servers(database: Database) -> tuple[PostgresStore, int, trio.Event]:
    """The store of a server whose shards were taken by another one, its epoch, and what it sets when it is fenced."""
    fenced = trio.Event()
    first, second = PostgresStore(database, fenced.set), PostgresStore(database)
    epoch = (await take_every_shard(first, "host", "first"))[3]
    await take_every_shard(second, "host", "second")
    assert not fenced.is_set()
    return first, epoch, fenced


async def test_a_session_write_that_is_fenced_off_finds_the_server_fenced(database: Database) -> None:
    first, epoch, fenced = await two_servers(database)
    write = SessionWrite(lease=ShardLease(3, epoch), session=a_session(), at_ms=T0, due_at_ms=None)
    assert await first.write_session(write) == Rejected(RejectedWhy.FENCED)
    assert fenced.is_set()


async def test_a_workspace_write_that_is_fenced_off_finds_the_server_fenced(database: Database) -> None:
    first, epoch, fenced = await two_servers(database)
    write = WorkspaceWrite(lease=ShardLease(3, epoch), workspace=replace(a_workspace(), version=1), at_ms=T0)
    assert await first.write_workspace(write) == Rejected(RejectedWhy.FENCED)
    assert fenced.is_set()


async def test_heartbeats_that_are_fenced_off_find_the_server_fenced(database: Database) -> None:
    first, epoch, fenced = await two_servers(database)
    await first.append_heartbeats([HeartbeatWrite(ShardLease(3, epoch), (a_heartbeat(an_id(), 1),))])
    assert fenced.is_set()
