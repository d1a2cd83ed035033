"""One call that drops several assignments, cut short: the repeat with its key answers for all of them."""

import pytest
import trio

from sightline.domain.session.model import SessionState
from tests.actors.test_crash_at_each_await import Caller, Killer
from tests.actors.world import World

ASSIGNMENTS = 3
CALLS = 22
"""More port calls than dropping three assignments makes."""


async def drop_with_a_crash(at_call):
    """Drop all with one kill; returns the name of the call at which it came, None if there was none."""
    world = World()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.run)
        consumer, operator = await world.consumer(), await world.operator()
        sessions = [await world.request(consumer) for _ in range(ASSIGNMENTS)]
        for session in sessions:
            await world.broker.accept(session, world.caller(operator), operator)
        world.faults.on_call = killer = Killer(world, at_call)
        again = Caller(world, nursery).until_answered
        answer = await again(lambda: world.broker.cancel_all(world.caller(operator, "drop")))
        assert answer.value.session_ids == tuple(sessions)
        assert await again(lambda: world.broker.cancel_all(world.caller(operator, "drop"))) == answer
        for session in sessions:
            assert (await world.stored(session)).state is SessionState.CANCELLED
            kinds = [event.event.kind.value for event in await world.store.session_events(session)]
            assert kinds == ["CREATED", "ASSIGNED", "CANCELLED"]
        nursery.cancel_scope.cancel()
    return killer.name


@pytest.mark.parametrize("at_call", range(1, CALLS))
async def test_a_repeat_after_a_kill_names_every_assignment_that_the_call_dropped(at_call):
    await drop_with_a_crash(at_call)


async def test_the_kills_above_reach_beyond_the_end_of_the_call():
    assert await drop_with_a_crash(2) is not None
    assert await drop_with_a_crash(CALLS + 5) is None


async def test_a_repeat_leaves_alone_what_was_assigned_after_the_first_call(world):
    consumer, operator = await world.consumer(), await world.operator()
    first = await world.request(consumer)
    await world.broker.accept(first, world.caller(operator), operator)
    answer = await world.broker.cancel_all(world.caller(operator, "drop"))
    later = await world.request(consumer)
    await world.broker.accept(later, world.caller(operator), operator)
    assert await world.broker.cancel_all(world.caller(operator, "drop")) == answer
    assert (await world.view(later, consumer)).state == "ASSIGNED"
