"""Actor tests run on virtual time, with one server over a store in memory."""

import inspect
import logging
from pathlib import Path

import pytest
import structlog
import trio
import trio.testing

from tests.actors.world import World


def run_on_virtual_time(main, *, clock=None, instruments=()):
    """Run a test so that time jumps ahead whenever every task waits."""
    clock = clock or trio.testing.MockClock(autojump_threshold=0)

    async def bounded():
        with trio.fail_after(24 * 3600):
            return await main()

    return trio.run(bounded, clock=clock, instruments=instruments)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.parent in {here, here / "market"} and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.trio(run=run_on_virtual_time))


@pytest.fixture(autouse=True)
def quiet_log():
    """Keep reports of faults that tests cause on purpose out of the output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture
async def world(nursery):
    """A running server; after a kill, `await nursery.start(world.run)` is its restart."""
    world = World()
    await nursery.start(world.run)
    return world


@pytest.fixture
async def world_apart(nursery):
    """Like `world`, with an external relations graph (SpiceDB): claim and assignment are separate writes."""
    world = World(graph_apart=True)
    await nursery.start(world.run)
    return world
