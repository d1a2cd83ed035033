"""Limits of dispatch by consumer: a workspace cannot occupy the operators without starting sessions."""

import pytest
import trio

from sightline.actors.deps import ActorLimits
from sightline.actors.dispatch.in_flight import KEPT_MS, DispatchesInFlight
from sightline.actors.service.broker import Broker
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code
from sightline.domain.session.messages import Party
from simulation.adapters.no_other_servers import NoOtherServers
from tests.actors.world import World, refusal_of


@pytest.fixture
async def capped(nursery):
    """A running server with the default limits."""
    world = World(ActorLimits(dispatch_ack_ms=0))
    await nursery.start(world.run)
    return world


async def dispatch(world, consumer, session=None):
    session = session or await world.request(consumer, wait_timeout_s=3600)
    await world.broker.dispatch(session, world.caller(consumer))
    return session


async def abandon(world, consumer):
    session = await dispatch(world, consumer)
    await world.broker.end(session, world.caller(consumer), frozenset(Party))


async def operators(world, count):
    return [await world.operator() for _ in range(count)]


async def refused(world, consumer):
    """The refusal of a dispatch: its label, and the seconds to wait."""
    session = await world.request(consumer)
    refusal = await refusal_of(world.broker.dispatch(session, world.caller(consumer)))
    assert refusal.code is Code.RATE_LIMITED
    return refusal.detail, refusal.retry_after_s


async def test_a_fourth_unstarted_dispatch_is_refused_until_one_is_started(capped):
    consumer = await capped.consumer()
    await operators(capped, 5)
    sessions = [await dispatch(capped, consumer) for _ in range(3)]
    waiting = await capped.request(consumer)
    refusal = await refusal_of(capped.broker.dispatch(waiting, capped.caller(consumer)))
    assert (refusal.code, refusal.detail, refusal.retry_after_s) == (Code.RATE_LIMITED, "dispatch:unstarted", 5)
    assert (await capped.view(waiting, consumer)).state == "REQUESTED"
    started = await capped.view(sessions[0], consumer)
    await capped.broker.start(sessions[0], capped.caller(started.operator_workspace_id))
    await dispatch(capped, consumer, waiting)


async def test_dispatches_at_the_same_time_do_not_pass_the_limit_together(capped):
    consumer = await capped.consumer()
    await operators(capped, 8)
    sessions = [await capped.request(consumer) for _ in range(8)]
    results = []

    async def run(session):
        try:
            await capped.broker.dispatch(session, capped.caller(consumer))
            results.append("assigned")
        except RefusedError as error:
            results.append(error.refusal.detail)

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(run, session)
    assert sorted(results) == ["assigned"] * 3 + ["dispatch:unstarted"] * 5


async def test_dispatches_through_two_servers_do_not_pass_the_limit_together(capped):
    consumer, other_server = await capped.consumer(), Broker(capped.registry, capped.deps, NoOtherServers())
    await operators(capped, 8)
    sessions = [await capped.request(consumer) for _ in range(8)]
    results = []

    async def run(number, session):
        broker = other_server if number % 2 else capped.broker
        try:
            await broker.dispatch(session, capped.caller(consumer))
            results.append("assigned")
        except RefusedError as error:
            results.append(error.refusal.detail)

    async with trio.open_nursery() as nursery:
        for number, session in enumerate(sessions):
            nursery.start_soon(run, number, session)
    assert sorted(results) == ["assigned"] * 3 + ["dispatch:unstarted"] * 5


def test_a_dispatch_whose_end_was_lost_is_forgotten():
    in_flight = DispatchesInFlight()
    assert in_flight.begin("w", "a", 0) == frozenset()
    assert in_flight.begin("w", "b", KEPT_MS - 1) == {"a"}
    assert in_flight.begin("w", "a", KEPT_MS - 1) == frozenset()
    assert in_flight.begin("w", "c", KEPT_MS) == {"b"}
    in_flight.end("w", "b")
    assert in_flight.begin("w", "d", KEPT_MS) == {"c"}
    assert in_flight.begin("other", "e", KEPT_MS) == frozenset()


async def test_accepted_sessions_and_other_consumers_do_not_count(capped):
    consumer, other = await capped.consumer(), await capped.consumer()
    accepting, *_ = await operators(capped, 8)
    for _ in range(3):
        accepted = await capped.request(consumer)
        await capped.broker.accept(accepted, capped.caller(accepting), accepting)
        await dispatch(capped, other)
    for _ in range(3):
        await dispatch(capped, consumer)


async def test_the_limit_survives_a_restart(capped, nursery):
    consumer = await capped.consumer()
    await operators(capped, 5)
    for _ in range(3):
        await dispatch(capped, consumer)
    capped.kill()
    await nursery.start(capped.run)
    assert await refused(capped, consumer) == ("dispatch:unstarted", 5)


async def test_three_abandoned_dispatches_in_ten_minutes_are_followed_by_a_minute_of_pause(capped, nursery):
    consumer, other = await capped.consumer(), await capped.consumer()
    await operators(capped, 5)
    for _ in range(3):
        await abandon(capped, consumer)
        await trio.sleep(20)
    capped.kill()
    await nursery.start(capped.run)
    assert await refused(capped, consumer) == ("dispatch:abandoned", 40)
    await dispatch(capped, other)
    await trio.sleep(40)
    await dispatch(capped, consumer)


async def test_abandoned_dispatches_far_apart_cause_no_pause(capped):
    consumer = await capped.consumer()
    await operators(capped, 5)
    for _ in range(5):
        await abandon(capped, consumer)
        await trio.sleep(301)
    await abandon(capped, consumer)
    await dispatch(capped, consumer)


async def test_assignments_that_the_operator_cancels_cause_no_pause(capped):
    consumer = await capped.consumer()
    operator = await capped.operator()
    for _ in range(4):
        await dispatch(capped, consumer)
        await capped.broker.cancel_all(capped.caller(operator))
