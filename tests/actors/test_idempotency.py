"""One call, one effect: repeats with one key, and calls that meet."""

from functools import partial

import pytest
import trio

from sightline.actors.answers import recorded_answer
from sightline.actors.service.idempotency import Replays
from sightline.actors.types import HeartbeatReport, NewWorkspace
from sightline.actors.workspace.heartbeat_writer import GATHER_S
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import WorkspaceRole
from sightline.domain.refusal import Code, Refusal
from sightline.domain.value import replace
from tests.actors.world import BOTH_SIDES, LAT, LNG, WALLET, refusal_of


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
        world.faults.at = {"write_session": [fault], "write_assignment": [fault]}
        # The session prevents an assignment that was lost, so its outcome is known.
        is_prevented = (state, fault) == ("ASSIGNED", "lost")
        with pytest.raises(UnavailableError if is_prevented else OutcomeUnknownError):
            await call(session)
        world.faults.at = {}
        await trio.sleep(6)  # whom the lost attempt had taken is given back
        answer = await call(session)
        session = session or answer
        if state:
            assert (await world.view(session, consumer)).state == state
    await world.until(lambda: is_online(world, operator))
    assert len(await world.store.session_events(session)) == 4
    assert world.ledger is not None
    assert world.settlements >= 0


async def test_a_read_after_a_repeated_call_shows_its_effect_though_the_first_answer_is_still_on_its_way(world):
    """The first caller has left, and the database's answer is late: the record is there before the actor has it."""
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)

    async def name():
        return (await world.broker.reads.read_workspace(operator)).value.name

    async def state():
        return (await world.view(session, consumer)).state

    rename = partial(world.broker.patch_workspace, operator, world.caller(operator, "k"), Patch(name="New"))
    cancel = partial(world.broker.cancel, session, world.caller(consumer, "k"))
    for write, call, read, seen in (
        ("write_workspace", rename, name, "New"),
        ("write_session", cancel, state, "CANCELLED"),
    ):
        world.faults.at[write] = ["late"]
        with trio.move_on_after(1) as first_caller:
            await call()
        assert first_caller.cancelled_caught
        await call()
        assert await read() == seen


@pytest.mark.parametrize("fault", ["applied", "lost"])
async def test_a_heartbeat_whose_answer_was_lost_is_answered_when_it_is_repeated_with_its_key(world, nursery, fault):
    operator = await world.operator()
    world.faults.at["append_heartbeats"] = [fault]
    with pytest.raises(OutcomeUnknownError):
        await world.heartbeat(operator, 5, key="beat")
    first = await world.heartbeat(operator, 5, key="beat")
    assert first.value.last_seen_at_ms is not None
    await world.heartbeat(operator, 6)
    world.kill()
    await nursery.start(world.run)
    assert await world.heartbeat(operator, 5, key="beat") == first
    refusal = await refusal_of(world.heartbeat(operator, 5, key="another"))
    assert (refusal.code, refusal.detail) == (Code.CONFLICT, "location:sequence")


@pytest.mark.parametrize("fault", ["applied", "lost"])
async def test_a_batch_whose_answer_was_lost_is_answered_when_it_is_repeated_with_its_key(world, fault):
    operator = await world.operator()
    key = world.caller(operator, "batch").idempotency
    reports = [a_report(sequence) for sequence in (1, 3, 2)]
    world.faults.at["append_heartbeats"] = [fault]
    with pytest.raises(OutcomeUnknownError):
        await world.broker.heartbeats(operator, reports, key)
    first = await world.broker.heartbeats(operator, reports, key)
    assert [item.refusal is None for item in first.value.items] == [True, True, False]
    assert await world.broker.heartbeats(operator, reports, key) == first


async def test_a_batch_of_which_nothing_was_accepted_is_answered_the_same_again(world):
    operator = await world.operator()
    await world.heartbeat(operator, 5)
    key = world.caller(operator, "late").idempotency
    first = await world.broker.heartbeats(operator, [a_report(4)], key)
    assert first.value.items[0].refusal.detail == "location:sequence"
    await world.heartbeat(operator, 9)
    assert await world.broker.heartbeats(operator, [a_report(4)], key) == first


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_repeat_while_its_heartbeats_are_being_written_is_no_conflict_of_sequence(world, nursery, is_batch):
    """The first caller has left; the device repeats the call at once and gets the answer of the first one."""
    operator = await world.operator()
    key = world.caller(operator, "beat").idempotency

    async def report():
        if is_batch:
            return await world.broker.heartbeats(operator, [a_report(5)], key)
        return await world.broker.heartbeat(operator, a_report(5), key)

    with trio.move_on_after(GATHER_S / 2) as first_caller:
        await report()
    assert first_caller.cancelled_caught
    answer = await report()
    assert answer == await report()
    assert (await world.store.latest_heartbeat(operator)).sequence == 5


async def test_a_repeat_that_meets_the_end_of_the_first_call_gets_its_answer(world):
    """The record was not there when the repeat looked, and the effect was when it acted."""
    consumer, _ = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    caller = world.caller(consumer, "dispatch")
    first = []

    async def act():
        first.append(await world.broker.dispatch(session, caller))
        raise RefusedError(Refusal(Code.INVALID_STATE, "session:state"))

    replays = Replays(world.store)
    replayed = await replays.once(caller.idempotency, act, partial(recorded_answer, relations=world.relations))
    assert replayed == first[0]


def a_report(sequence):
    return HeartbeatReport(lat=LAT, lng=LNG, accuracy_m=5.0, sequence=sequence)


async def is_online(world, operator):
    return await world.availability(operator) == "ONLINE"


async def test_a_guest_workspace_that_two_servers_create_at_once_is_one(world):
    """Each server has looked for it before the other one made it, as when one payment reaches both."""
    guest = NewWorkspace(
        id=world.ids.uuid(), wallet_address=WALLET, slug="guest", name="Guest", roles=(WorkspaceRole.CONSUMER,)
    )
    created = []

    async def create():
        async def prove():
            return guest

        created.append((await world.broker.create_workspace(prove)).value)

    async with trio.open_nursery() as both:
        both.start_soon(create)
        both.start_soon(create)
    assert [each.id for each in created] == [guest.id, guest.id]
