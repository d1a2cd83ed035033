"""A database that restarts while the server starts is retried, not reported."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.server import Server, until
from tests.storage.proxy import Fault, open_wire


@pytest.fixture
def spawned(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()


@pytest.mark.parametrize(
    "step", ["FROM schema_migration", "FROM chain_identity", "enter_server", "workspace_suspension"]
)
async def test_a_database_that_goes_away_during_a_step_of_the_start_is_waited_for(
    spawned: Server, empty_database_dsn: str, step: str
) -> None:
    async with open_wire(empty_database_dsn) as wire:
        wire.plan(step, Fault.NOT_SENT)
        spawned.env["SIGHTLINE_DATABASE_URL"] = wire.dsn
        spawned.spawn()
        upstream = wire.upstream
        with trio.fail_after(120):
            while not wire.struck:
                await trio.lowlevel.checkpoint()
        wire.upstream = "/no/such/socket"
        wire.cut()

        async def log() -> str:
            return spawned.log()

        await until(log, lambda seen: '"event":"database_not_reached"' in seen, "the start finds the database away")
        wire.upstream = upstream
        await spawned.await_ready()
        assert await spawned.stop() == 0
