"""The life of sessions through the actors: request, dispatch, start, pause, resume, end."""

import pytest
import trio

from sightline.actors.deps import SESSION
from sightline.actors.shards import shard_of
from sightline.actors.types import SessionListing
from sightline.domain.geofence import Fix
from sightline.domain.operator.model import Availability
from sightline.domain.refusal import Code
from sightline.domain.session.messages import FixReported, MediaProved, Party
from sightline.ports.relations import OPERATOR_WORKSPACE, session_ref, workspace_ref
from sightline.ports.store import Heartbeat, HeartbeatWrite, SessionKey, SessionView, ShardLease
from sightline.ports.video import MediaEvent, MediaKind
from tests.actors.world import BOTH_SIDES, LAT, LNG, refusal_of


async def test_a_session_is_requested_dispatched_filmed_paused_resumed_and_ended(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    assert (await world.view(session, consumer)).state == "REQUESTED"

    dispatched = await world.broker.dispatch(session, world.caller(consumer))
    assigned = dispatched.value
    assert (assigned.state, assigned.operator_workspace_id) == ("ASSIGNED", operator)
    assert dispatched.token
    assert await world.availability(operator) == "BUSY"

    started = (await world.broker.start(session, world.caller(operator))).value
    assert started.state == "LIVE"
    assert started.whip_url
    assert (await world.view(session, consumer)).whip_url is None

    sequence = await world.film(session, operator, 20)
    view = await world.view(session, consumer)
    assert (view.meter_state, view.clean_seconds) == ("RUNNING", 18)  # up to the last proof

    await trio.sleep(20)  # nothing is proved any more: stale since 18 + 2 s
    view = await world.view(session, consumer)
    assert (view.meter_state, view.pause_reason, view.clean_seconds) == ("PAUSED", "LOCATION_STALE", 18)

    await world.film(session, operator, 10, sequence)
    view = await world.view(session, consumer)
    assert (view.meter_state, view.pause_reason, view.clean_seconds) == ("RUNNING", None, 28)

    ended = (await world.broker.end(session, world.caller(consumer), BOTH_SIDES)).value
    assert (ended.state, ended.end_reason, ended.clean_seconds) == ("ENDED", "CONSUMER_ENDED", 30)
    assert ended.charged == 30 * ended.terms.rate
    assert await world.availability(operator) == "ONLINE"
    assert world.settlements == 1
    await world.until(lambda: no_inputs(world))


async def no_inputs(world):
    return not world.video.inputs


async def test_the_input_of_a_live_session_is_opened_again_when_its_server_has_ended(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    ref = world.video.describe_input(session).ref
    world.video.inputs.clear()
    await world.video.send.send(MediaEvent(ref=ref, session_id=session, kind=MediaKind.LOST, at_ms=0))

    async def is_open():
        return ref in world.video.inputs

    await world.until(is_open)


async def test_the_meter_shows_its_windows_and_the_head_of_its_chain(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.film(session, operator, 4)
    world.frames(session, MediaKind.DISCONNECTED)
    await trio.sleep(1)
    meter = (await world.broker.reads.meter(session, consumer)).value
    assert meter.state == "PAUSED"
    assert [(window.reason, window.to_ms) for window in meter.windows] == [("MEDIA_LOST", None)]
    events = await world.store.session_events(session)
    assert meter.head_hash == events[-1].hash
    assert [event.event.kind for event in events] == ["CREATED", "ASSIGNED", "STARTED", "PAUSED"]


@pytest.mark.parametrize(("seconds", "state", "reason"), [(299, "REQUESTED", None), (300, "EXPIRED", "WAIT_TIMEOUT")])
async def test_a_request_expires_by_itself_at_its_deadline(world, seconds, state, reason):
    consumer = await world.consumer()
    session = await world.request(consumer)
    await trio.sleep(seconds + 0.01)
    stored = await world.stored(session)
    assert stored.state == state
    view = await world.view(session, consumer)
    assert (view.state, view.end_reason) == (state, reason)


async def test_a_late_call_is_refused_as_expired(world):
    consumer = await world.consumer()
    session = await world.request(consumer, wait_timeout_s=5)
    await trio.sleep(6)
    refusal = await refusal_of(world.broker.dispatch(session, world.caller(consumer)))
    assert (refusal.code, refusal.detail) == (Code.INVALID_STATE, "session:expired")


async def test_a_session_that_its_operator_does_not_start_is_requested_again_for_the_rest_of_its_time(world):
    consumer, first, second = await world.consumer(), await world.operator(), await world.operator()
    session = await world.request(consumer, wait_timeout_s=60)
    await trio.sleep(20)
    assigned = (await world.broker.dispatch(session, world.caller(consumer))).value
    assert assigned.operator_workspace_id == first
    await trio.sleep(121)
    seen = await world.view(session, consumer)
    assert (seen.state, seen.operator_workspace_id, seen.assigned_at_ms) == ("REQUESTED", None, None)
    assert seen.expires_at_ms == world.clock.now_ms() + 39_000
    assert await world.availability(first) == "ONLINE"
    assert not await world.relations.check(session_ref(session), OPERATOR_WORKSPACE, workspace_ref(first))
    refusal = await refusal_of(world.broker.accept(session, world.caller(first), first))
    assert (refusal.code, refusal.detail) == (Code.INVALID_STATE, "session:notStarted")
    assigned = (await world.broker.dispatch(session, world.caller(consumer))).value
    assert assigned.operator_workspace_id == second
    assert (await world.broker.start(session, world.caller(second))).value.state == "LIVE"


async def test_a_session_is_not_offered_again_to_the_operator_that_did_not_start_it(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await world.broker.dispatch(session, world.caller(consumer))
    await trio.sleep(121)
    refusal = await refusal_of(world.broker.dispatch(session, world.caller(consumer)))
    assert refusal.detail == "dispatch:noOperator"
    listing = SessionListing(view=SessionView.OPEN, limit=10)
    assert not (await world.broker.reads.list_sessions(operator, listing)).items
    other = await world.operator()
    shown = (await world.broker.reads.list_sessions(other, listing)).items
    assert [each.terms.id for each in shown] == [session]


async def test_an_operator_that_three_times_did_not_start_for_two_funded_consumers_goes_offline(world):
    consumers, operator = [await world.consumer(), await world.consumer()], await world.operator()
    await world.show_funds(10**9)
    for consumer in (*consumers, consumers[0]):
        assert await world.availability(operator) == "ONLINE"
        session = await world.request(consumer)
        await world.broker.dispatch(session, world.caller(consumer))
        await trio.sleep(121)
    assert await world.availability(operator) == "OFFLINE"


async def test_start_timeouts_of_unfunded_consumers_leave_an_operator_online(world):
    consumers, operator = [await world.consumer(), await world.consumer()], await world.operator()
    for consumer in (*consumers, *consumers):
        session = await world.request(consumer)
        await world.broker.dispatch(session, world.caller(consumer))
        await trio.sleep(121)
        assert await world.availability(operator) == "ONLINE"


async def test_a_session_whose_device_fell_silent_ends_by_itself_and_is_charged_for_what_it_proved(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.film(session, operator, 10)
    await trio.sleep(120)
    ended = await world.stored(session)
    assert (ended.state, ended.phase.reason, ended.phase.clean_seconds) == ("ENDED", "LOCATION_STALE", 10)
    assert await world.availability(operator) == "ONLINE"


async def test_a_session_ends_at_its_maximum_without_anybody_looking(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator, max_duration_s=30)
    await world.film(session, operator, 40)
    ended = await world.stored(session)
    assert ended.phase.ended_at_ms - ended.phase.started_at_ms == 30_000
    assert (ended.phase.reason, ended.phase.clean_seconds) == ("MAX_DURATION", 30)


async def test_leaving_the_fence_pauses_and_coming_back_resumes(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    sequence = await world.film(session, operator, 60)
    away = 11.576124 + 600 / 74_200  # 600 m east at this latitude
    for step in range(6):
        await world.heartbeat(operator, sequence + step, lng=away)
        world.frames(session)
        await trio.sleep(2)
    assert (await world.view(session, consumer)).pause_reason == "GEOFENCE_EXIT"
    await world.film(session, operator, 40, sequence + 6)
    assert (await world.view(session, consumer)).meter_state == "RUNNING"


async def test_an_older_heartbeat_is_refused_and_names_the_last(world):
    operator = await world.operator()
    await world.heartbeat(operator, 7)
    for sequence in (7, 3):
        refusal = await refusal_of(world.heartbeat(operator, sequence))
        assert (refusal.code, refusal.detail) == (Code.CONFLICT, "location:sequence")
        assert "7" in refusal.message
    await world.heartbeat(operator, 8)


async def test_a_batch_of_heartbeats_is_taken_one_by_one(world):
    from sightline.actors.types import HeartbeatReport

    operator = await world.operator()
    reports = [HeartbeatReport(lat=1.0, lng=2.0, sequence=sequence) for sequence in (1, 2, 2, 5)]
    answer = (await world.broker.heartbeats(operator, reports)).value
    assert [item.refusal is None for item in answer.items] == [True, True, False, True]
    assert (await world.store.latest_heartbeat(operator)).sequence == 5


async def test_a_heartbeat_from_the_future_is_refused(world):
    operator = await world.operator()
    late = world.clock.now_ms() + 30_001
    refusal = await refusal_of(world.heartbeat(operator, 1, captured_at_ms=late))
    assert (refusal.code, refusal.detail) == (Code.INVALID_INPUT, "location:capturedAt")


async def test_a_heartbeat_may_name_only_the_live_session(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.heartbeat(operator, 1, session_id=session)
    other = await world.request(consumer)
    refusal = await refusal_of(world.heartbeat(operator, 2, session_id=other))
    assert refusal.code is Code.INVALID_STATE


async def test_accept_assigns_the_callers_own_workspace_and_leaves_it_online(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    accepted = await world.broker.accept(session, world.caller(operator), operator)
    assert (accepted.value.state, bool(accepted.token)) == ("ASSIGNED", True)
    assert await world.availability(operator) == "ONLINE"
    await world.broker.start(session, world.caller(operator))
    assert await world.availability(operator) == "BUSY"


async def test_an_offline_operator_that_accepted_is_offline_again_after_the_end(world):
    consumer, operator = await world.consumer(), await world.operator(Availability.OFFLINE)
    session = await world.request(consumer)
    await world.broker.accept(session, world.caller(operator), operator)
    await world.broker.start(session, world.caller(operator))
    await world.broker.end(session, world.caller(operator), BOTH_SIDES)
    assert await world.availability(operator) == "OFFLINE"


async def test_cancel_all_drops_every_assignment_oldest_first(world):
    consumer, operator = await world.consumer(), await world.operator()
    sessions = []
    for _ in range(3):
        sessions.append(await world.request(consumer))
        await world.broker.accept(sessions[-1], world.caller(operator), operator)
        await trio.sleep(1)
    requested = await world.request(consumer)
    answer = (await world.broker.cancel_all(world.caller(operator))).value
    assert answer.session_ids == tuple(sessions)
    assert (await world.view(sessions[0], consumer)).end_reason == "OPERATOR_CANCELLED"
    assert (await world.view(requested, consumer)).state == "REQUESTED"
    assert (await world.broker.cancel_all(world.caller(operator))).value.session_ids == ()


async def test_only_parties_may_act_and_each_only_for_its_side(world):
    consumer, operator, stranger = await world.consumer(), await world.operator(), await world.consumer()
    session = await world.live(consumer, operator)
    for act in (
        world.broker.end(session, world.caller(stranger), BOTH_SIDES),
        world.broker.end(session, world.caller(consumer), frozenset({Party.OPERATOR})),
        world.broker.reads.read_session(session, stranger),
        world.broker.cancel(session, world.caller(operator)),
    ):
        assert (await refusal_of(act)).code is Code.NOT_AUTHORIZED


async def test_a_second_end_is_refused_and_changes_nothing(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.broker.end(session, world.caller(consumer), BOTH_SIDES)
    before = await world.stored(session)
    assert (await refusal_of(world.broker.end(session, world.caller(operator), BOTH_SIDES))).code is Code.INVALID_STATE
    assert await world.stored(session) == before


async def test_a_list_shows_newest_first_and_pages(world):
    consumer = await world.consumer()
    sessions = []
    for _ in range(5):
        sessions.append(await world.request(consumer))
        await trio.sleep(1)
    page = await world.broker.reads.list_sessions(consumer, SessionListing(view=None, limit=3))
    assert [item.terms.id for item in page.items] == sessions[:1:-1]
    assert isinstance(page.next, SessionKey)
    rest = await world.broker.reads.list_sessions(consumer, SessionListing(view=None, limit=3, after=page.next))
    assert ([item.terms.id for item in rest.items], rest.next) == (sessions[1::-1], None)


async def test_watchers_see_the_present_and_then_each_change(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    async with world.broker.updates.watch_session(session, consumer) as changes:
        assert [(await anext(changes))[0] for _ in range(2)] == ["session", "meter"]
        await world.broker.dispatch(session, world.caller(consumer))
        name, view = await anext(changes)
        assert (name, view.state) == ("session", "ASSIGNED")
    assert len(world.watchers) == 0
    async with world.broker.updates.watch_workspace(operator) as changes:
        assert (await anext(changes))[0] == "workspace"
        name, view = await anext(changes)
        assert (name, view.terms.id) == ("assignment", session)
        await world.broker.start(session, world.caller(operator))
        seen = [await anext(changes) for _ in range(2)]
        assert ("assignment", "LIVE") in [(kind, getattr(value, "state", None)) for kind, value in seen]


async def test_evidence_that_waits_when_a_deadline_passes_is_handled_before_it(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.film(session, operator, 4)
    world.frames(session, MediaKind.DISCONNECTED)
    await trio.sleep(57)
    assert (await world.view(session, consumer)).pause_reason == "LOCATION_STALE"  # both pauses end the session at 64 s

    world.faults.at["write_session"] = ["slow"]
    await world.heartbeat(operator, 2)  # the reason of the pause changes: this turn writes, and ends after the deadline
    await trio.sleep(0.1)
    ref, received_ms = world.registry.ref(SESSION, session), world.clock.now_ms()
    for sequence in range(3, 65):  # more than a session handles before it lets the timer run
        fix = Fix(lat=LAT, lng=LNG, accuracy_m=5.0, at_ms=received_ms, taken_at_ms=received_ms)
        ref.tell(FixReported(fix, sequence))
    ref.tell(MediaProved(received_ms))
    await trio.sleep(6)
    await world.heartbeat(operator, 65)
    view = await world.view(session, consumer)
    assert (view.state, view.meter_state) == ("LIVE", "RUNNING")


async def test_a_disconnect_of_media_during_a_pause_for_the_position_is_stored(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.film(session, operator, 4)
    for _ in range(6):
        world.frames(session)
        await trio.sleep(2)
    assert (await world.view(session, consumer)).pause_reason == "LOCATION_STALE"
    world.frames(session, MediaKind.DISCONNECTED)
    broke_ms = world.clock.now_ms()
    await trio.sleep(0.1)
    stored = (await world.store.load_session(session)).session
    assert stored.phase.evidence.media.breaks == (broke_ms,)


async def test_heartbeats_whose_reports_were_lost_are_counted_when_the_next_one_arrives(world):
    """Another server reports the next heartbeat, before it is noticed that messages of the first one were lost."""
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.live(consumer, operator)
    await world.film(session, operator, 4)
    ref, lease = world.registry.ref(SESSION, session), ShardLease(shard_of(operator), 1)
    newest = await world.store.latest_heartbeat(operator)
    for _ in range(6):  # recorded, and not reported
        await trio.sleep(2)
        world.frames(session)
        now_ms = world.clock.now_ms()
        fix = Fix(lat=LAT, lng=LNG, accuracy_m=5.0, at_ms=now_ms, taken_at_ms=now_ms)
        before, newest = newest, Heartbeat(workspace_id=operator, sequence=newest.sequence + 1, fix=fix, is_fresh=True)
        await world.store.append_heartbeats([HeartbeatWrite(lease, (newest,))])
    assert (await world.view(session, consumer)).pause_reason == "LOCATION_STALE"
    ref.tell(FixReported(newest.fix, newest.sequence, True, before.sequence, before.fix.at_ms))
    await trio.sleep(1)
    meter = (await world.broker.reads.meter(session, consumer)).value
    assert (meter.state, meter.windows) == ("RUNNING", ())
