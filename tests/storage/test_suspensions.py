"""A suspension on one server holds on every other one after its next load, and is not undone by an older read."""

from functools import partial
from pathlib import Path

import pytest
import trio

from sightline.actors.service.suspensions import LOAD_EVERY_S, Suspensions
from sightline.ports.administration import Suspension
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.administration import PostgresAdminStore
from sightline.storage.postgres.operations.withdrawals import WithdrawalLog
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.loops import run_forever


def a_suspension() -> Suspension:
    return Suspension(workspace_id=SystemIds().uuid(), at_ms=1, actor="Ada", reason="fraud")


@pytest.fixture
def servers(database: Database, tmp_path: Path) -> tuple[Suspensions, Suspensions]:
    def server() -> Suspensions:
        return Suspensions(
            PostgresAdminStore(database), SystemClock(), WithdrawalLog(tmp_path / "log", database).record
        )

    return server(), server()


async def test_each_server_refuses_what_another_one_suspended(servers: tuple[Suspensions, Suspensions]) -> None:
    (one, two), suspension = servers, a_suspension()
    await one.add(suspension)
    assert one.of(suspension.workspace_id) == suspension
    await two.load()
    assert two.is_suspended(suspension.workspace_id)
    assert await two.remove(suspension.workspace_id)
    assert not await one.remove(suspension.workspace_id), "one does not know yet that it is lifted: the database does"
    await one.load()
    assert not one.is_suspended(suspension.workspace_id)


async def test_a_load_that_began_before_a_suspension_does_not_undo_it(servers: tuple[Suspensions, Suspensions]) -> None:
    one, _ = servers
    for _ in range(10):
        suspension = a_suspension()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one.load)
            nursery.start_soon(one.add, suspension)
            for _ in range(4):
                nursery.start_soon(one.load)
        assert one.is_suspended(suspension.workspace_id)


async def test_a_server_that_is_told_reads_the_suspensions_at_once(servers: tuple[Suspensions, Suspensions]) -> None:
    (one, two), suspension = servers, a_suspension()
    one.on_changed = two.wake
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(run_forever, "suspensions", two.watch, every_s=0))
        await one.add(suspension)
        with trio.fail_after(LOAD_EVERY_S / 2):
            while not two.is_suspended(suspension.workspace_id):  # noqa: ASYNC110  # the other server reads the database
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
