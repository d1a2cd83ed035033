"""One call, one effect: repeats with one key, and calls that meet."""

from dataclasses import replace

import pytest
import trio

from sightline.domain.errors import OutcomeUnknownError
from sightline.domain.refusal import Code
from tests.actors.world import BOTH_SIDES, refusal_of


async def test_a_repeat_with_the_same_key_gets_the_same_answer_and_has_no_second_effect(world):
    consumer, operator = await world.consumer(), await world.operator()
    caller = world.caller
    first = await world.request(consumer, key="create")
    assert await world.request(consumer, key="create") == first
    calls = [
        lambda: world.broker.dispatch(first, caller(consumer, "dispatch")),
        lambda: world.broker.start(first, caller(operator, "start")),
        lambda: world.broker.end(first, caller(consumer, "end"), BOTH_SIDES),
    ]
    for call in calls:
        answer = await call()
        await trio.sleep(3)
        assert await call() == answer
    assert world.settlements == 1


async def test_a_key_with_another_body_is_a_conflict(world):
    consumer, _ = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    caller = world.caller(consumer, "k")
    await world.broker.dispatch(session, caller)
    other = replace(caller, idempotency=replace(caller.idempotency, body_hash="other"))
    refusal = await refusal_of(world.broker.dispatch(session, other))
    assert (refusal.code, refusal.detail) == (Code.CONFLICT, "idempotency:mismatch")


async def test_a_repeat_while_the_first_call_runs_is_told_to_come_back(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await world.broker.dispatch(session, world.caller(consumer))
    world.faults.at["create_input"] = ["hang"]
    nursery.start_soon(world.broker.start, session, world.caller(operator, "s"))
    await trio.testing.wait_all_tasks_blocked()
    refusal = await refusal_of(world.broker.start(session, world.caller(operator, "s")))
    assert (refusal.detail, refusal.retry_after_s) == ("idempotency:inProgress", 1)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fault", ["applied", "lost"])
async def test_an_unknown_outcome_is_resolved_by_asking_again_with_the_same_key(world, fault):
    consumer, operator = await world.consumer(), await world.operator()
    steps = [
        (lambda s: world.request(consumer, key="create"), None),
        (lambda s: world.broker.dispatch(s, world.caller(consumer, "dispatch")), "ASSIGNED"),
        (lambda s: world.broker.start(s, world.caller(operator, "start")), "LIVE"),
        (lambda s: world.broker.end(s, world.caller(consumer, "end"), BOTH_SIDES), "ENDED"),
    ]
    session = None
    for call, state in steps:
        world.faults.at["write_session"] = [fault]
        with pytest.raises(OutcomeUnknownError):
            await call(session)
        await trio.sleep(6)  # whom the lost attempt had taken is given back
        answer = await call(session)
        session = session or answer
        if state:
            assert (await world.view(session, consumer))["state"] == state
    await world.until(lambda: is_online(world, operator))
    assert len(await world.store.session_events(session)) == 4
    assert world.ledger is not None
    assert world.settlements >= 0


async def is_online(world, operator):
    return await world.availability(operator) == "ONLINE"
