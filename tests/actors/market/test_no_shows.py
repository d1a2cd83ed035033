"""Operators that are assigned and do not start: acknowledgement, the next operator, and what it costs their wallet."""

import pytest
import trio

from sightline.actors.deps import ActorLimits
from sightline.actors.dispatch.newcomer_turns import EVERY, EVERY_MAX, NewcomerTurns
from sightline.domain.conduct import Conduct
from sightline.domain.operator.machine import AcceptPolicy
from sightline.domain.refusal import Code
from sightline.domain.units import MINUTE_MS
from tests.actors.world import World, refusal_of

ACK_S = 10


@pytest.fixture
async def world(nursery):
    """A running server with the default limits, but for the cap of dispatches by one consumer."""
    world = World(ActorLimits(unstarted_dispatches_max=0, accept=AcceptPolicy(assignments_max=9)))
    await nursery.start(world.run)
    return world


async def dispatched(world, consumer=None, **terms):
    """A dispatched session: (consumer, session, the operator that was chosen)."""
    consumer = consumer or await world.consumer()
    session = await world.request(consumer, **terms)
    answer = await world.broker.dispatch(session, world.caller(consumer))
    return consumer, session, answer.value.operator_workspace_id


async def operators(world, *wallets):
    """One operator for each wallet, seen now, in this order of idleness."""
    found = []
    for wallet in wallets:
        found.append(await world.operator(wallet=wallet))
        await world.heartbeat(found[-1], 1)
        await trio.sleep(0.001)
    return found


async def prove(world, operator, seconds=31):
    """Let an operator film; another one that is chosen before it ends its session at once."""
    consumer, session, chosen = await dispatched(world)
    while chosen != operator:
        await world.broker.end(session, world.caller(consumer), frozenset({"CONSUMER"}))
        consumer, session, chosen = await dispatched(world)
    await world.broker.start(session, world.caller(operator))
    await world.film(session, operator, seconds + 1, sequence=100)
    return await world.broker.end(session, world.caller(operator), frozenset({"OPERATOR"}))


async def test_a_silent_operator_is_replaced_after_ten_seconds_and_not_asked_again(world):
    silent, other = await operators(world, "0xa", "0xb")
    consumer, session, chosen = await dispatched(world)
    assert chosen == silent
    await trio.sleep(ACK_S - 1)
    assert (await world.view(session, consumer)).operator_workspace_id == silent
    await trio.sleep(1.5)
    status = await world.view(session, consumer)
    assert (status.state, status.operator_workspace_id) == ("ASSIGNED", other)
    assert await world.availability(silent) == "ONLINE"
    refusal = await refusal_of(world.broker.start(session, world.caller(silent)))
    assert refusal.detail == "session:workspaceMismatch"


async def test_a_request_that_nobody_else_can_take_waits_again(world):
    await operators(world, "0xa")
    consumer, session, _ = await dispatched(world)
    await trio.sleep(ACK_S + 1)
    status = await world.view(session, consumer)
    assert (status.state, status.operator_workspace_id) == ("REQUESTED", None)


async def read(world, session, operator):
    await world.broker.reads.read_session(session, operator)


async def beat(world, _session, operator):
    await world.heartbeat(operator, 7)


async def follow(world, _session, operator):
    async with world.broker.updates.watch_workspace(operator) as updates:
        with trio.move_on_after(1):
            async for _ in updates:
                pass


@pytest.mark.parametrize("sign_of_life", [read, beat, follow])
async def test_a_sign_of_life_after_the_assignment_acknowledges_it(world, sign_of_life):
    first, _ = await operators(world, "0xa", "0xb")
    consumer, session, chosen = await dispatched(world)
    assert chosen == first
    await sign_of_life(world, session, first)
    await trio.sleep(5 * ACK_S)
    assert (await world.view(session, consumer)).operator_workspace_id == first


async def test_an_operator_that_accepted_needs_no_acknowledgement(world):
    consumer = await world.consumer()
    (operator,) = await operators(world, "0xa")
    session = await world.request(consumer)
    await world.broker.accept(session, world.caller(operator), operator)
    await trio.sleep(5 * ACK_S)
    assert (await world.view(session, consumer)).state == "ASSIGNED"


async def test_a_restart_gives_the_operator_the_whole_time_again(world, nursery):
    first, _ = await operators(world, "0xa", "0xb")
    consumer, session, _ = await dispatched(world)
    await trio.sleep(ACK_S - 1)
    world.kill()
    await nursery.start(world.run)
    await world.view(session, consumer)
    await trio.sleep(ACK_S - 1)
    assert (await world.view(session, consumer)).operator_workspace_id == first
    await trio.sleep(2)
    assert (await world.view(session, consumer)).operator_workspace_id != first


async def test_after_a_no_show_all_operators_of_the_wallet_are_passed_over_for_a_minute(world):
    _, sibling, other = await operators(world, "0xa", "0xa", "0xb")
    await dispatched(world)
    await trio.sleep(ACK_S + 1)  # now `other` has the session
    _, _, chosen = await dispatched(world)
    assert chosen == sibling, "nobody else is idle: tier C"
    await trio.sleep(60)
    for operator in (sibling, other):
        await world.broker.cancel_all(world.caller(operator))


async def test_the_time_out_of_the_tiers_grows_to_ten_minutes_and_an_hour_and_a_filmed_session_clears_one():
    conduct = Conduct()
    for at_min, out_min in ((0, 1), (5, 10), (20, 60), (59, 60)):
        conduct = conduct.after_no_show(at_min * MINUTE_MS)
        assert conduct.out_until_ms == (at_min + out_min) * MINUTE_MS, at_min
    assert conduct.after_no_show(59 * MINUTE_MS) == conduct
    cleared = conduct.after_proof(200 * MINUTE_MS)
    assert (cleared.is_proved, len(cleared.no_shows_ms)) == (True, 2)
    assert cleared.after_proof(200 * MINUTE_MS) == cleared
    fresh = cleared.after_no_show(300 * MINUTE_MS)
    assert fresh.out_until_ms == 301 * MINUTE_MS


async def test_a_wallet_with_a_no_show_may_not_accept_for_a_minute(world):
    (silent,) = await operators(world, "0xa")
    consumer, _, _ = await dispatched(world)
    await trio.sleep(ACK_S + 1)
    waiting = await world.request(consumer, wait_timeout_s=600)
    refusal = await refusal_of(world.broker.accept(waiting, world.caller(silent), silent))
    assert (refusal.code, refusal.detail) == (Code.INVALID_STATE, "operator:noShow")
    assert 55 <= refusal.retry_after_s <= 60
    await trio.sleep(60)
    await world.broker.accept(waiting, world.caller(silent), silent)


async def test_an_accepted_session_that_is_not_started_counts_the_same(world):
    consumer = await world.consumer()
    (operator,) = await operators(world, "0xa")
    first, second = await world.request(consumer, wait_timeout_s=3_600), await world.request(consumer)
    await world.broker.accept(first, world.caller(operator), operator)
    await trio.sleep(121)
    refusal = await refusal_of(world.broker.accept(second, world.caller(operator), operator))
    assert refusal.detail == "operator:noShow"


async def test_a_wallet_that_has_filmed_comes_before_wallets_that_are_idle_for_longer(world):
    newcomer, veteran = await operators(world, "0xa", "0xb")
    await prove(world, veteran)
    await world.heartbeat(newcomer, 9)
    assert (await dispatched(world))[2] == veteran


async def test_conduct_survives_a_crash(world, nursery):
    newcomer, veteran = await operators(world, "0xa", "0xb")
    await prove(world, veteran)
    await trio.sleep(2)
    world.kill()
    await nursery.start(world.run)
    await world.heartbeat(newcomer, 9)
    await world.heartbeat(veteran, 900)
    assert (await dispatched(world))[2] == veteran


def pick(turns, *, fails=0):
    """Whether each of the next 400 dispatches tries newcomers, of whom the first ones fail."""
    tried = []
    for _ in range(400):
        is_due = turns.is_due()
        tried.append(is_due)
        turns.picked(is_new=is_due)
        if is_due and sum(tried) <= fails:
            turns.failed(is_new=True)
    return tried


def test_one_dispatch_in_five_tries_newcomers_and_fewer_while_they_fail():
    assert sum(pick(NewcomerTurns())) == 400 // EVERY
    turns = NewcomerTurns()
    assert sum(pick(turns, fails=400)) == 8  # after 5, 10, 20, 40, and then 80 dispatches
    assert sum(pick(turns)) == 400 // EVERY_MAX
    for _ in range(4):
        turns.proved(is_new=True)
    assert sum(pick(turns)) == 400 // EVERY


async def test_a_declined_session_goes_to_the_next_operator_and_costs_the_first_nothing(world):
    first, second = await operators(world, "0xa", "0xb")
    consumer, session, chosen = await dispatched(world)
    assert chosen == first
    await trio.sleep(5)
    declined = (await world.broker.decline(session, world.caller(first))).value
    assert (declined.state, declined.operator_workspace_id) == ("REQUESTED", None)
    assert await world.availability(first) == "ONLINE"
    refusal = await refusal_of(world.broker.start(session, world.caller(first)))
    assert refusal.code is Code.NOT_AUTHORIZED
    for operator in (first, second):
        await world.heartbeat(operator, 2)
    assert (await world.broker.dispatch(session, world.caller(consumer))).value.operator_workspace_id == second
    assert (await dispatched(world))[2] == first  # in tier A as before


async def test_an_operator_that_declines_late_is_passed_over_as_for_a_no_show(world):
    late, other = await operators(world, "0xa", "0xb")
    _, session, chosen = await dispatched(world)
    assert chosen == late
    await world.heartbeat(late, 2)  # acknowledges
    await trio.sleep(21)
    await world.broker.decline(session, world.caller(late))
    for operator in (late, other):
        await world.heartbeat(operator, 3)
    waiting = await world.request(await world.consumer())
    refusal = await refusal_of(world.broker.accept(waiting, world.caller(late), late))
    assert refusal.detail == "operator:noShow"
