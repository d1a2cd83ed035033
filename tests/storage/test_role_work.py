"""The work of a role runs while this server owns the role: never twice at once, always under the current epoch."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from sightline.actors.shards import OwnedShards
from sightline.cluster.roles import RoleWork, run_roles
from sightline.ports.leases import ServerRole
from sightline.ports.store import ShardLease, ShardLostError
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.role_database import RoleDatabase
from sightline.storage.postgres.store import PostgresStore
from tests.shards import take_every_shard

RELAYER, WATCHER = ServerRole.RELAYER, ServerRole.WATCHER


@asynccontextmanager
async def running(
    owned: OwnedShards, run: Callable[[], Awaitable[object]], bind: Callable[[ShardLease], None] | None = None
) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_roles, owned, {RELAYER: RoleWork(run=run, bind=bind)})
        yield
        nursery.cancel_scope.cancel()


async def test_a_role_runs_exactly_while_it_is_owned() -> None:
    owned, story = OwnedShards(), list[str]()

    async def work() -> None:
        story.append("start")
        try:
            await trio.sleep_forever()
        finally:
            story.append("end")

    async with running(owned, work):
        owned.add({WATCHER: 1, 7: 1})
        await wait_all_tasks_blocked()
        assert story == []
        owned.add({RELAYER: 1})
        await wait_all_tasks_blocked()
        owned.add({8: 1})
        owned.remove({7})
        await wait_all_tasks_blocked()
        assert story == ["start"]
        owned.remove({RELAYER})
        await wait_all_tasks_blocked()
        assert story == ["start", "end"]
        owned.add({RELAYER: 3})
        await wait_all_tasks_blocked()
    assert story == ["start", "end", "start", "end"]


async def test_a_role_that_is_taken_again_starts_when_its_earlier_work_has_ended() -> None:
    owned, running_now, most = OwnedShards({RELAYER: 1}), 0, 0
    cleaned_up = trio.Event()

    async def work() -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await cleaned_up.wait()
            running_now -= 1

    async with running(owned, work):
        await wait_all_tasks_blocked()
        owned.remove({RELAYER})
        owned.add({RELAYER: 2})
        await wait_all_tasks_blocked()
        assert running_now == 1
        cleaned_up.set()
        await wait_all_tasks_blocked()
        assert running_now == 1
    assert most == 1


async def test_a_role_writes_under_the_epoch_with_which_it_was_taken(database: Database) -> None:
    store, bound, owned = PostgresStore(database), RoleDatabase(database), OwnedShards()
    results = list[str]()
    done = trio.Event()

    async def unit(connection: Any) -> str:
        return str(await connection.fetchval("SELECT epoch FROM shard WHERE id = $1", int(RELAYER)))

    async def work() -> None:
        try:
            results.append(await bound.run(unit))
        except ShardLostError:
            results.append("refused")
        done.set()
        await trio.sleep_forever()

    first = await take_every_shard(store, "host", "first")
    second = await take_every_shard(store, "host", "second")
    async with running(owned, work, bound.bind):
        for epochs in (first, second):
            done = trio.Event()
            owned.add({RELAYER: epochs[RELAYER]})
            with trio.fail_after(60):
                await done.wait()
            owned.remove({RELAYER})
            await wait_all_tasks_blocked()
    assert results == ["refused", str(second[RELAYER])]


async def test_work_that_crashes_ends_the_server() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with running(OwnedShards({RELAYER: 1}), work):
            await trio.sleep_forever()
    assert caught.group_contains(ZeroDivisionError)
