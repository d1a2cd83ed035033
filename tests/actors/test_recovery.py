"""Halves of a dispatch that a crash left behind: after a restart they are put together, or taken away."""

from itertools import pairwise

import pytest
import trio

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.messages import (
    ClaimsChecked,
    ClaimState,
    GetSession,
    GetWorkspace,
    ReportsMissed,
    VacateOperator,
)
from sightline.actors.shards import shard_of
from sightline.domain.operator import machine
from sightline.domain.operator.machine import ClaimByAccept, ClaimByDispatch, Occupy, Release
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import SessionState
from sightline.ports.relations import (
    OPERATOR_WORKSPACE,
    TupleUpdate,
    operator_edge,
    session_ref,
    workspace_ref,
)
from sightline.ports.store import ShardLease, WorkspaceWrite
from tests.actors.world import BOTH_SIDES
from tests.shards import take_every_shard

UNKNOWN_SESSION = "00000000-0000-4000-8000-00000000dead"


async def crash_and_leave(world, operator, *messages):
    """Kill the server at an instant at which the operator's row is these steps further than anything else."""
    world.kill()
    workspace = await world.store.load_workspace(operator)
    for message in messages:
        stepped = machine.step(workspace, message, world.clock.now_ms())
        assert isinstance(stepped, Workspace)
        workspace = stepped
    epochs = await take_every_shard(world.store, "test", "crash")
    lease = ShardLease(shard_of(operator), epochs[shard_of(operator)])
    await world.store.write_workspace(WorkspaceWrite(lease=lease, workspace=workspace, at_ms=world.clock.now_ms()))


async def is_related(world, session, operator):
    return await world.relations.check(session_ref(session), OPERATOR_WORKSPACE, workspace_ref(operator))


async def claim_state_of(world, operator):
    """Availability and claims, as stored."""
    stored = await world.store.load_workspace(operator)
    return stored.availability.value, {claim.session_id: claim.is_live for claim in stored.claims.values()}


async def is_standing(world, operator, availability, claims):
    return await claim_state_of(world, operator) == (availability, claims)


@pytest.mark.parametrize("edge_is_there", [False, True])
async def test_a_claim_whose_session_is_still_requested_is_given_back_with_its_relation(world, nursery, edge_is_there):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await crash_and_leave(world, operator, ClaimByDispatch(session))
    if edge_is_there:  # a graph of its own, not in our transaction
        await world.relations.write([TupleUpdate(operator_edge(session, operator))])
    assert await claim_state_of(world, operator) == ("BUSY", {session: False})
    await nursery.start(world.run)
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))
    assert not await is_related(world, session, operator)
    answer = await world.broker.dispatch(session, world.caller(consumer))
    assert answer.value.operator_workspace_id == operator
    assert await is_related(world, session, operator)


async def test_a_claim_on_a_session_that_does_not_exist_is_given_back(world, nursery):
    operator = await world.operator()
    await crash_and_leave(world, operator, ClaimByDispatch(UNKNOWN_SESSION))
    await nursery.start(world.run)
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))


async def test_a_claim_on_a_session_that_went_to_another_is_given_back_and_the_other_keeps_it(world, nursery):
    consumer, winner, loser = await world.consumer(), await world.operator(), await world.operator()
    session = await world.request(consumer)
    await world.broker.accept(session, world.caller(winner), winner)
    await crash_and_leave(world, loser, ClaimByDispatch(session))
    await nursery.start(world.run)
    await world.until(lambda: is_standing(world, loser, "ONLINE", {}))
    assert await claim_state_of(world, winner) == ("ONLINE", {session: False})
    assert await is_related(world, session, winner)


async def test_a_claim_on_a_session_that_has_ended_is_given_back_and_its_operator_stays_a_party(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.broker.end(session, world.caller(consumer), BOTH_SIDES)
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))
    await crash_and_leave(world, operator, ClaimByDispatch(session), Occupy(session))
    await nursery.start(world.run)
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))
    assert await is_related(world, session, operator)
    assert (await world.view(session, operator)).state == "ENDED"


async def test_a_claim_that_is_live_on_a_session_that_never_started_is_only_an_assignment_again(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await world.broker.accept(session, world.caller(operator), operator)
    await crash_and_leave(world, operator, Occupy(session))
    assert await claim_state_of(world, operator) == ("BUSY", {session: True})
    await nursery.start(world.run)
    await world.until(lambda: is_standing(world, operator, "ONLINE", {session: False}))
    assert (await world.broker.start(session, world.caller(operator))).value.state == "LIVE"


@pytest.mark.parametrize("is_dispatched", [True, False], ids=["dispatched", "accepted"])
@pytest.mark.parametrize("state", [SessionState.ASSIGNED, SessionState.LIVE])
async def test_a_session_without_its_claim_gets_it_back_as_it_was(world, nursery, state, is_dispatched):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    if is_dispatched:
        await world.broker.dispatch(session, world.caller(consumer))
    else:
        await world.broker.accept(session, world.caller(operator), operator)
    if state is SessionState.LIVE:
        await world.broker.start(session, world.caller(operator))
    before = await claim_state_of(world, operator)
    await crash_and_leave(world, operator, Release(session))
    assert await claim_state_of(world, operator) == ("ONLINE", {})
    await nursery.start(world.run)
    is_live = state is SessionState.LIVE
    assert before == ("BUSY" if is_live or is_dispatched else "ONLINE", {session: is_live})
    await world.until(lambda: is_standing(world, operator, *before))
    await world.broker.cancel_all(world.caller(operator))
    if is_live:
        await world.broker.end(session, world.caller(operator), BOTH_SIDES)
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))


async def test_a_relation_is_not_cleared_while_the_graph_is_silent_and_is_when_it_answers(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await crash_and_leave(world, operator, ClaimByAccept(session))
    await world.relations.write([TupleUpdate(operator_edge(session, operator))])
    world.faults.at["write"] = ["refused"]
    await nursery.start(world.run)
    await trio.sleep(20)
    assert await claim_state_of(world, operator) == ("ONLINE", {session: False})
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))
    assert not await is_related(world, session, operator)


async def test_a_session_that_expired_while_the_server_was_down_is_over_when_it_is_up(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    waiting = await world.request(consumer, wait_timeout_s=60)
    assigned = await world.request(consumer, wait_timeout_s=300)
    await world.broker.accept(assigned, world.caller(operator), operator)
    free = await world.operator()
    await world.heartbeat(free, 1)
    live = await world.live(consumer, free, max_duration_s=30)
    world.kill()
    await trio.sleep(600)
    await nursery.start(world.run)
    ends = {waiting: "WAIT_TIMEOUT", assigned: "WAIT_TIMEOUT", live: "MAX_DURATION"}
    for session, reason in ends.items():
        assert (await world.view(session, consumer)).end_reason == reason
    await world.until(lambda: is_standing(world, operator, "ONLINE", {}))


async def test_a_live_input_that_does_not_come_back_is_asked_for_again_two_seconds_after_each_attempt(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    await world.live(consumer, operator)
    world.kill()
    world.video_hangs = True
    await nursery.start(world.run)
    await trio.sleep(30)
    waits = [later - sooner for sooner, later in pairwise(world.video.asked_at)]
    assert waits == pytest.approx([12.0] * len(waits), abs=0.1)
    assert len(waits) == 2


async def test_a_start_waits_for_the_store_and_for_sessions_that_do_not_load_at_once(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    world.kill()
    world.faults.at.update(unfinished_sessions=["refused", "refused"], load_session=["refused", "refused"])
    await nursery.start(world.run)
    await world.until(lambda: is_loaded(world, session))
    assert (await world.view(session, consumer)).state == "LIVE"


async def is_loaded(world, session):
    await trio.lowlevel.checkpoint()
    return world.registry.peek(SESSION, session) is not None


async def test_frames_after_a_gap_whose_pause_is_not_stored_yet_do_not_prove_the_gap_after_a_crash(world, nursery):
    """The write of the pause hangs, frames arrive again and are checkpointed, then the server dies."""
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    sequence = await world.film(session, operator, 20)
    world.faults.at["write_session"] = ["hang"]
    for beat in range(sequence, sequence + 6):
        await world.heartbeat(operator, beat)
        await trio.sleep(2)
    sequence = await world.film(session, operator, 6, sequence + 6)
    world.kill()
    await nursery.start(world.run)
    await world.film(session, operator, 4, sequence)
    await world.broker.end(session, world.caller(consumer), BOTH_SIDES)
    ended = await world.stored(session)
    # Frames until 18 s and again from 32 s on; the row that would show the frames from 32 s on was not stored.
    assert ended.phase.clean_seconds <= 18 + 2 + 10
    assert "MEDIA_LOST" in {window.reason for window in ended.phase.windows}


async def test_a_live_session_reads_its_row_once_when_messages_may_be_lost(world, nursery):
    consumer, operator = await world.consumer(), await world.operator()
    await nursery.start(world.run)
    session = await world.live(consumer, operator)
    ref = world.registry.ref(SESSION, session)
    before = world.registry.statistics().kinds["session"].reloads
    began = trio.current_time()
    ref.tell(ReportsMissed())
    assert (await ref.ask(GetSession(), timeout_s=30)).state is SessionState.LIVE
    assert world.registry.statistics().kinds["session"].reloads == before + 1
    assert trio.current_time() - began < 1


async def test_an_answer_that_a_session_gave_before_its_start_leaves_the_operator_live(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await world.broker.accept(session, world.caller(operator), operator)
    claim = (await world.store.load_workspace(operator)).claims[session]
    workspace = world.registry.ref(WORKSPACE, operator)
    await world.broker.start(session, world.caller(operator))
    # Other sessions took long to answer, so the answers arrive after the start.
    workspace.tell(ClaimsChecked(((session, claim.at_ms, ClaimState.ASSIGNED),), starts=0))
    await workspace.ask(GetWorkspace(), timeout_s=1)
    assert await claim_state_of(world, operator) == ("BUSY", {session: True})


async def test_the_undo_of_an_earlier_start_leaves_the_operator_live(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    workspace = world.registry.ref(WORKSPACE, operator)
    workspace.tell(VacateOperator(session, world.clock.now_ms() - 1_000))
    await workspace.ask(GetWorkspace(), timeout_s=1)
    assert await claim_state_of(world, operator) == ("BUSY", {session: True})


async def test_the_operator_of_a_live_session_is_made_live_again_if_its_start_was_undone(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    world.registry.ref(WORKSPACE, operator).tell(VacateOperator(session, world.clock.now_ms()))
    await world.until(lambda: is_standing(world, operator, "BUSY", {session: False}))
    await world.until(lambda: is_standing(world, operator, "BUSY", {session: True}))
