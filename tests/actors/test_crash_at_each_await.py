"""The process dies at every single await of a session's life in turn; the caller repeats, and everything adds up."""

import itertools

import pytest
import trio

from sightline.domain.errors import SightlineError
from sightline.domain.operator.machine import Patch
from sightline.domain.session.model import SessionState
from sightline.ports.ledger import SettlementState
from tests.actors.world import BOTH_SIDES, World

PATIENCE_S = 3.0


class Killer:
    """Kills the server at its nth call of a port."""

    def __init__(self, world, at_call):
        self.world = world
        self.calls = 0
        self.at_call = at_call
        self.name = None

    def __call__(self, name):
        self.calls += 1
        if self.calls == self.at_call:
            self.name = name
            self.world.kill()


class Caller:
    """Calls until it is answered, over kills and restarts, always with the same key."""

    def __init__(self, world, nursery):
        self.world = world
        self.nursery = nursery

    async def until_answered(self, call):
        for _ in range(20):
            with trio.move_on_after(PATIENCE_S):
                try:
                    return await call()
                except SightlineError:
                    await trio.sleep(6)
            if self.world._scope.cancel_called:
                await self.nursery.start(self.world.run)
        raise AssertionError("nobody answers")


async def story(world, caller):
    """One session from request to end, filmed for ten seconds."""
    consumer, operator = world.people
    again = caller.until_answered
    session = await again(lambda: world.request(consumer, key="create"))
    await again(lambda: world.broker.dispatch(session, world.caller(consumer, "dispatch")))
    await again(lambda: world.broker.start(session, world.caller(operator, "start")))
    for sequence in itertools.count():
        await again(lambda s=sequence: heartbeat(world, operator, s))
        world.frames(session)
        await trio.sleep(2)
        if sequence == 5:
            break
    await again(lambda: world.broker.end(session, world.caller(consumer, "end"), BOTH_SIDES))
    return session


async def heartbeat(world, operator, sequence):
    """With a key, so that a repeat of one that was recorded is answered, and not refused."""
    await world.heartbeat(operator, sequence, key=f"beat {sequence}")


async def tell_with_a_crash(at_call, *, graph_apart=False):
    """Run the story with one kill; returns the name of the call at which it came, None if there was none."""
    world = World(graph_apart=graph_apart)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.run)
        world.people = (await world.consumer(), await world.operator())
        killer = Killer(world, at_call)
        world.faults.on_call = killer
        session = await story(world, Caller(world, nursery))
        if world._scope.cancel_called:
            await nursery.start(world.run)
        await check(world, session)
        nursery.cancel_scope.cancel()
    return killer.name


async def check(world, session):
    """What must be true of any finished session."""
    _, operator = world.people
    stored = await world.stored(session)
    assert stored.state is SessionState.ENDED
    ended = stored.phase
    assert ended.charged == ended.clean_seconds * stored.terms.rate <= stored.terms.hold
    assert 0 <= ended.clean_seconds <= (ended.ended_at_ms - ended.started_at_ms) // 1000
    events = await world.store.session_events(session)
    kinds = [event.event.kind.value for event in events]
    for once in ("CREATED", "ASSIGNED", "STARTED", "ENDED"):
        assert kinds.count(once) == 1, kinds
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    settled = await world.ledger.settlement(session)
    assert settled is not None
    assert settled.payload.to_amount + settled.payload.fee_amount == ended.charged
    assert settled.payload.chargeable_seconds == ended.clean_seconds
    assert len(await world.ledger.settlements(list(SettlementState), limit=9)) == 1
    await world.until(lambda: is_free(world, operator))
    assert (await world.store.latest_heartbeat(operator)).sequence == 5


async def is_free(world, operator):
    workspace = await world.store.load_workspace(operator)
    return workspace.availability.value == "ONLINE" and not workspace.claims


STORY_CALLS = 72
"""More than the story makes, so that the last cases show that it needs no luck."""


@pytest.mark.parametrize("graph_apart", [False, True])
@pytest.mark.parametrize("first", range(1, STORY_CALLS, 12))
async def test_a_kill_at_any_await_loses_nothing_and_doubles_nothing(first, graph_apart):
    for at_call in range(first, first + 12):
        await tell_with_a_crash(at_call, graph_apart=graph_apart)


async def test_a_kill_comes_before_and_after_the_write_of_an_assignment():
    names = [await tell_with_a_crash(at_call) for at_call in range(1, STORY_CALLS)]
    assert {"before write_assignment", "after write_assignment"} <= set(names)


async def test_the_cases_above_reach_beyond_the_end_of_the_story():
    assert await tell_with_a_crash(1) is not None
    assert await tell_with_a_crash(STORY_CALLS + 12) is None


async def test_asks_of_a_server_that_is_being_cancelled_are_refused_and_wake_nobody_twice():
    world = World()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.run)
        operator = await world.operator()
        world.kill()
        for _ in range(5):  # while its tasks are leaving one by one
            with pytest.raises(SightlineError):
                await world.broker.patch_workspace(operator, world.caller(operator), Patch(name="x"))
            await trio.lowlevel.checkpoint()
