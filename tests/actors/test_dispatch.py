"""Dispatch: one atomic decision, under concurrency and with halves that get lost."""

from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sightline.actors.deps import DISPATCHER, WORKSPACE
from sightline.actors.dispatch.actor import RESERVED_MS
from sightline.actors.dispatch.conduct_book import NEW, PROVED
from sightline.actors.dispatch.operator_index import IN_ORDER, NEW_FIRST, OperatorIndex
from sightline.actors.messages import GetWorkspace, PickOperator
from sightline.actors.shards import DISPATCHER_ID
from sightline.domain.errors import (
    AuthzUnavailableError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
    UnavailableError,
    VideoUnavailableError,
)
from sightline.domain.geofence import DeviceKind
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, Claim
from sightline.domain.refusal import Code
from sightline.ports.relations import operator_edge
from tests.actors.world import LAT, LNG, refusal_of
from tests.domain.builders import a_workspace


async def is_availability(world, operator, availability):
    return await world.availability(operator) == availability


async def results_of(calls):
    """What each of these concurrent calls came to: an answer's data, or a refusal's code."""
    results = []

    async def run(call):
        try:
            results.append((await call()).value)
        except RefusedError as error:
            results.append(error.refusal.code)

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(run, call)
    return results


@pytest.mark.parametrize(("requests", "operators"), [(1, 0), (5, 5), (12, 5), (3, 8), (40, 39)])
async def test_n_dispatches_over_m_operators_make_as_many_distinct_pairs_as_there_can_be(world, requests, operators):
    consumer = await world.consumer()
    everyone = {await world.operator() for _ in range(operators)}
    sessions = [await world.request(consumer) for _ in range(requests)]
    results = await results_of(
        [lambda s=session: world.broker.dispatch(s, world.caller(consumer)) for session in sessions]
    )
    assigned = [result for result in results if not isinstance(result, Code)]
    pairs = min(requests, operators)
    assert len(assigned) == pairs
    assert len({view.operator_workspace_id for view in assigned}) == pairs
    assert len({view.terms.id for view in assigned}) == pairs
    assert [result for result in results if isinstance(result, Code)] == [Code.UNAVAILABLE] * (requests - pairs)
    busy = [operator for operator in everyone if await world.availability(operator) == "BUSY"]
    assert sorted(busy) == sorted(view.operator_workspace_id for view in assigned)


async def test_two_dispatches_of_one_session_are_one_answer_and_one_refusal(world):
    consumer, first, second = await world.consumer(), await world.operator(), await world.operator()
    session = await world.request(consumer)
    call = lambda: world.broker.dispatch(session, world.caller(consumer))  # noqa: E731
    results = await results_of([call, call])
    assert sorted(isinstance(result, Code) for result in results) == [False, True]
    assert Code.INVALID_STATE in results
    states = sorted([await world.availability(first), await world.availability(second)])
    assert states == ["BUSY", "ONLINE"]


async def test_a_dispatch_and_an_accept_of_one_session_give_it_to_one_of_them(world):
    consumer, first, second = await world.consumer(), await world.operator(), await world.operator()
    session = await world.request(consumer)
    results = await results_of(
        [
            lambda: world.broker.accept(session, world.caller(second), second),
            lambda: world.broker.dispatch(session, world.caller(consumer)),
        ]
    )
    winner = next(result for result in results if not isinstance(result, Code))
    assert Code.INVALID_STATE in results
    loser = {first, second} - {winner.operator_workspace_id}
    assert await world.availability(loser.pop()) == "ONLINE"


async def test_nobody_online_is_unavailable_with_a_time_to_come_back(world):
    consumer, _ = await world.consumer(), await world.operator(Availability.OFFLINE)
    session = await world.request(consumer)
    refusal = await refusal_of(world.broker.dispatch(session, world.caller(consumer)))
    assert (refusal.code, refusal.message, refusal.retry_after_s) == (Code.UNAVAILABLE, "No operator available", 5)
    assert (await world.view(session, consumer)).state == "REQUESTED"


async def test_a_session_that_requires_coverage_gets_no_operator_of_another_place(world):
    consumer, far = await world.consumer(), await world.operator()
    elsewhere = Patch(coverage_lat=LAT + 1, coverage_lng=LNG, coverage_radius_m=2_000)
    await world.broker.patch_workspace(far, world.caller(far), elsewhere)
    session = await world.request(consumer, requires_coverage=True)
    refusal = await refusal_of(world.broker.dispatch(session, world.caller(consumer)))
    assert (refusal.code, refusal.detail) == (Code.UNAVAILABLE, "dispatch:noOperator")
    assert refusal.message == "No operator that covers the place is available"
    near = await world.operator()  # covers everywhere, and was never seen: tier B
    assert (await world.broker.dispatch(session, world.caller(consumer))).value.operator_workspace_id == near
    anywhere = await world.request(consumer)
    assert (await world.broker.dispatch(anywhere, world.caller(consumer))).value.operator_workspace_id == far


@pytest.mark.parametrize("mode", ["prefer", "literal", "strict"])
def test_an_index_that_must_cover_never_chooses_an_operator_of_another_place(mode):
    index = OperatorIndex(60_000, lambda _wallet, _now_ms: NEW)
    place = {"coverage_lat": 1.0, "coverage_lng": 1.0, "coverage_radius_m": 1_000.0, "last_seen_at_ms": 0}
    index.put(a_workspace(**place), 0)
    choose = partial(index.choose, mode=mode, excluded=frozenset(), requires_coverage=True)
    assert choose(5.0, 5.0) is None
    assert choose(1.0, 1.0) is not None


async def test_the_longest_idle_comes_first_and_a_no_op_patch_keeps_the_place(world):
    consumer = await world.consumer()
    operators = []
    for _ in range(3):
        operators.append(await world.operator())
        await trio.sleep(1)
    patch = Patch(availability=Availability.ONLINE)
    await world.broker.patch_workspace(operators[0], world.caller(operators[0]), patch)
    for expected in operators:
        session = await world.request(consumer)
        assigned = (await world.broker.dispatch(session, world.caller(consumer))).value
        assert assigned.operator_workspace_id == expected


async def test_who_covers_the_point_comes_before_who_does_not_and_who_was_seen_before_who_went_silent(world):
    consumer = await world.consumer()
    far, silent, fresh = [await world.operator() for _ in range(3)]
    for operator, lat in ((far, LAT + 5), (silent, LAT), (fresh, LAT)):
        patch = Patch(coverage_lat=lat, coverage_lng=LNG, coverage_radius_m=1_000.0)
        await world.broker.patch_workspace(operator, world.caller(operator), patch)
    await world.heartbeat(silent, 1)
    await trio.sleep(61)
    await world.heartbeat(fresh, 1)
    for expected in (fresh, silent, far):
        session = await world.request(consumer)
        assigned = (await world.broker.dispatch(session, world.caller(consumer))).value
        assert assigned.operator_workspace_id == expected


async def test_who_was_never_seen_or_has_no_coverage_comes_after_who_covers_the_point(world):
    consumer = await world.consumer()
    unset, never, covering = [await world.operator() for _ in range(3)]
    patch = Patch(coverage_lat=LAT, coverage_lng=LNG, coverage_radius_m=1_000.0)
    for operator in (never, covering):
        await world.broker.patch_workspace(operator, world.caller(operator), patch)
    for operator in (unset, covering):
        await world.heartbeat(operator, 1)
    for expected in (covering, unset, never):
        session = await world.request(consumer)
        assigned = (await world.broker.dispatch(session, world.caller(consumer))).value
        assert assigned.operator_workspace_id == expected


# Halves that get lost.


async def test_a_relation_that_cannot_be_written_leaves_nobody_busy(world_apart):
    consumer, operator = await world_apart.consumer(), await world_apart.operator()
    session = await world_apart.request(consumer)
    world_apart.faults.at["stage"] = ["refused"]
    with pytest.raises(AuthzUnavailableError):
        await world_apart.broker.dispatch(session, world_apart.caller(consumer))
    await world_apart.until(lambda: is_availability(world_apart, operator, "ONLINE"), within_s=1)
    assert (await world_apart.broker.dispatch(session, world_apart.caller(consumer))).value.state == "ASSIGNED"


async def test_a_session_that_cannot_be_stored_leaves_nobody_busy(world_apart):
    consumer, operator = await world_apart.consumer(), await world_apart.operator()
    session = await world_apart.request(consumer)
    world_apart.faults.at["write_session"] = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await world_apart.broker.dispatch(session, world_apart.caller(consumer))
    await world_apart.until(lambda: is_availability(world_apart, operator, "ONLINE"), within_s=5)
    assert (await world_apart.broker.dispatch(session, world_apart.caller(consumer))).value.state == "ASSIGNED"


@pytest.mark.parametrize(("fault", "after"), [("lost", "ONLINE"), ("applied", "BUSY")])
async def test_an_assignment_of_unknown_outcome_keeps_its_operator_only_if_it_came_about(world_apart, fault, after):
    consumer, operator = await world_apart.consumer(), await world_apart.operator()
    session = await world_apart.request(consumer)
    world_apart.faults.at["write_session"] = [fault]
    with pytest.raises(OutcomeUnknownError):
        await world_apart.broker.dispatch(session, world_apart.caller(consumer))
    await trio.sleep(40)
    assert await world_apart.availability(operator) == after
    assert (await world_apart.view(session, consumer)).state == ("ASSIGNED" if fault == "applied" else "REQUESTED")


@pytest.mark.parametrize("fault", ["lost", "applied", "refused"])
async def test_a_claim_whose_outcome_is_not_known_is_given_back(world_apart, fault):
    consumer, operator = await world_apart.consumer(), await world_apart.operator()
    session = await world_apart.request(consumer)
    world_apart.faults.at["write_workspace"] = [fault]
    with pytest.raises(UnavailableError):
        await world_apart.broker.dispatch(session, world_apart.caller(consumer))
    await world_apart.until(lambda: is_availability(world_apart, operator, "ONLINE"), within_s=40)
    await trio.sleep(10)  # a dispatcher that set the operator aside takes it back
    assert (await world_apart.broker.dispatch(session, world_apart.caller(consumer))).value.state == "ASSIGNED"


async def test_an_expired_request_that_had_just_found_an_operator_gives_it_back(world_apart):
    consumer, operator = await world_apart.consumer(), await world_apart.operator()
    session = await world_apart.request(consumer, wait_timeout_s=5)
    await trio.sleep(4.9)
    world_apart.faults.on_call = lambda name: None
    stage = world_apart.relations.stage

    async def slow(updates):
        await trio.sleep(1)
        return await stage(updates)

    world_apart.relations.stage = slow
    refusal = await refusal_of(world_apart.broker.dispatch(session, world_apart.caller(consumer)))
    assert refusal.detail == "session:expired"
    await world_apart.until(lambda: is_availability(world_apart, operator, "ONLINE"), within_s=1)


# Claim and assignment in one transaction, where the graph is part of the store.


@pytest.mark.parametrize("way", ["dispatch", "accept"])
async def test_claim_assignment_and_relation_are_stored_in_one_write(world, way):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    writes = []
    world.faults.on_call = writes.append
    if way == "dispatch":
        answer = await world.broker.dispatch(session, world.caller(consumer))
    else:
        answer = await world.broker.accept(session, world.caller(operator), operator)
    assert [name for name in writes if name.startswith("before write")] == ["before write_assignment"]
    stored = await world.store.load_workspace(operator)
    assert session in stored.claims
    assert (await world.stored(session)).operator.workspace_id == operator
    edge = operator_edge(session, operator)
    assert await world.relations.check(edge.resource, edge.relation, edge.subject, at_least=answer.token)


@pytest.mark.parametrize("way", ["dispatch", "accept"])
async def test_a_session_is_read_as_assigned_from_the_moment_the_assignment_is_stored(world, nursery, way):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    stored = trio.Event()
    world.faults.at["write_assignment"] = ["late"]
    world.faults.on_call = lambda name: stored.set() if name == "after write_assignment" else None
    if way == "dispatch":
        nursery.start_soon(world.broker.dispatch, session, world.caller(consumer))
    else:
        nursery.start_soon(world.broker.accept, session, world.caller(operator), operator)
    await stored.wait()
    # The session's actor has not been told. A repeat of the call would be answered from its stored record.
    assert (await world.view(session, consumer)).state == "ASSIGNED"


async def test_an_assignment_that_cannot_be_stored_takes_no_operator(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    world.faults.at["write_assignment"] = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await world.broker.dispatch(session, world.caller(consumer))
    await trio.sleep(6)  # the dispatcher's reservation has passed
    assert await world.availability(operator) == "ONLINE"
    assert (await world.broker.dispatch(session, world.caller(consumer))).value.state == "ASSIGNED"


@pytest.mark.parametrize(
    ("fault", "answer", "after"),
    [
        ("lost", UnavailableError, ("REQUESTED", "ONLINE")),
        ("applied", OutcomeUnknownError, ("ASSIGNED", "BUSY")),
    ],
)
async def test_session_and_operator_agree_after_an_assignment_of_unknown_outcome(world, fault, answer, after):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    world.faults.at["write_assignment"] = [fault]
    with pytest.raises(answer):
        await world.broker.dispatch(session, world.caller(consumer))
    for _ in range(2):  # at once, and after the claims were compared with their sessions
        assert ((await world.view(session, consumer)).state, await world.availability(operator)) == after
        await trio.sleep(40)


def delay_assignments(world):
    """Delay the write of each assignment until after the ask timeout of the session."""
    write_assignment = world.store.write_assignment

    async def late(*writes):
        await trio.sleep(world.limits.ask_timeout_s + 1)
        return await write_assignment(*writes)

    world.store.write_assignment = late


@pytest.mark.parametrize("faults", [[], ["refused"], ["lost", "refused"]], ids=str)
async def test_an_assignment_whose_session_has_given_up_is_not_stored_later(world, faults):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    in_time = world.store.write_assignment
    delay_assignments(world)
    world.faults.at["write_session"] = faults
    with pytest.raises(UnavailableError):
        await world.broker.dispatch(session, world.caller(consumer))
    for _ in range(2):
        assert (await world.view(session, consumer)).state == "REQUESTED"
        await trio.sleep(1.5)
    world.store.write_assignment = in_time
    await trio.sleep(6)  # the dispatcher's reservation has passed
    assert await world.availability(operator) == "ONLINE"
    assert (await world.broker.dispatch(session, world.caller(consumer))).value.state == "ASSIGNED"


async def test_an_assignment_that_could_not_be_prevented_reaches_the_session(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    delay_assignments(world)
    world.faults.at["write_session"] = ["refused"] * 3
    with pytest.raises(OutcomeUnknownError):
        await world.broker.dispatch(session, world.caller(consumer))
    await trio.sleep(1.5)
    for _ in range(2):
        assert (await world.view(session, consumer)).state == "ASSIGNED"
        await trio.sleep(40)
    assert await world.availability(operator) == "BUSY"


async def test_a_claim_is_not_released_by_a_session_that_has_not_read_its_newest_row(world):
    """The write is stored after both actors have read their rows again, and nobody tells the session."""
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    write_assignment, written = world.store.write_assignment, []

    async def lost(*writes):
        written.append(writes)
        raise OutcomeUnknownError("the test lost the answer")

    world.store.write_assignment = lost
    world.faults.at["write_session"] = ["refused"] * 3  # the session cannot prevent that it is stored
    with pytest.raises(OutcomeUnknownError):
        await world.broker.dispatch(session, world.caller(consumer))
    assert (await world.view(session, consumer)).state == "REQUESTED"
    await write_assignment(*written[0])
    workspace = world.registry.ref(WORKSPACE, operator)
    world.store.write_assignment = write_assignment
    await trio.sleep(RESERVED_MS / 1_000)
    with pytest.raises(RefusedError):  # the operator's actor finds out that its row has moved on
        await world.broker.dispatch(await world.request(consumer), world.caller(consumer))
    await trio.sleep(40)
    assert session in (await workspace.ask(GetWorkspace(), timeout_s=1)).claims
    assert (await world.view(session, consumer)).state == "ASSIGNED"


async def test_a_session_whose_operator_is_found_before_it_expires_is_assigned_however_slow_the_write(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer, wait_timeout_s=5)
    await trio.sleep(4.9)
    write_assignment = world.store.write_assignment

    async def slow(*writes):
        await trio.sleep(1)
        return await write_assignment(*writes)

    world.store.write_assignment = slow
    answer = await world.broker.dispatch(session, world.caller(consumer))
    assert (answer.value.state, answer.value.operator_workspace_id) == ("ASSIGNED", operator)
    assert (await world.view(session, consumer)).state == "ASSIGNED"


async def test_a_session_that_expires_before_its_operator_answers_is_refused_and_the_operator_stays_free(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer, wait_timeout_s=5)
    await trio.sleep(4.9)
    world.faults.at["write_workspace"] = ["slow"]
    async with trio.open_nursery() as nursery:
        change = Patch(device_kind=DeviceKind.PTZ)
        nursery.start_soon(world.broker.patch_workspace, operator, world.caller(operator), change)
        await trio.testing.wait_all_tasks_blocked()
        refusal = await refusal_of(world.broker.dispatch(session, world.caller(consumer)))
    assert refusal.detail == "session:expired"
    assert await world.availability(operator) == "ONLINE"


async def test_a_read_while_an_operator_is_being_assigned_waits_and_shows_the_assignment(world):
    consumer, _operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    write_assignment, states = world.store.write_assignment, []

    async def slow(*writes):
        result = await write_assignment(*writes)
        await trio.sleep(1)  # the row is stored, and the session does not know it yet
        return result

    async def read():
        states.append((await world.view(session, consumer)).state)

    world.store.write_assignment = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.broker.dispatch, session, world.caller(consumer))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(read)
    assert states == ["ASSIGNED"]


async def test_an_operator_that_changes_while_it_is_picked_is_assigned_as_it_is_then(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    world.faults.at["write_workspace"] = ["slow"]
    change = Patch(device_kind=DeviceKind.PTZ)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.broker.patch_workspace, operator, world.caller(operator), change)
        await trio.testing.wait_all_tasks_blocked()
        await world.broker.dispatch(session, world.caller(consumer))
    assert (await world.stored(session)).operator.device_kind is DeviceKind.PTZ


async def test_an_operator_that_is_loaded_for_its_claim_stays_reserved(world, nursery):
    operator = await world.operator()
    world.kill()
    await nursery.start(world.run)
    dispatcher = world.registry.ref(DISPATCHER, DISPATCHER_ID)
    pick = PickOperator(LAT, LNG, frozenset())
    assert (await dispatcher.ask(pick, timeout_s=1)).workspace_id == operator
    await world.registry.ref(WORKSPACE, operator).ask(GetWorkspace(), timeout_s=1)
    assert await dispatcher.ask(pick, timeout_s=1) is None


async def test_an_assignment_that_waited_until_its_operator_was_free_begins_then(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    world.faults.at["write_workspace"] = ["slow"]
    caller = world.caller(operator)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.broker.patch_workspace, operator, caller, Patch(availability=Availability.OFFLINE))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(world.broker.patch_workspace, operator, caller, Patch(availability=Availability.ONLINE))
        await trio.testing.wait_all_tasks_blocked()
        await world.broker.dispatch(session, world.caller(consumer))
    assigned = await world.stored(session)
    assert assigned.phase.assigned_at_ms >= (await world.store.load_workspace(operator)).idle_since_ms


# Start.


@pytest.mark.parametrize("way", ["dispatch", "accept"])
async def test_video_that_fails_at_start_leaves_the_session_assigned_and_a_retry_works(world, way):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    if way == "dispatch":
        await world.broker.dispatch(session, world.caller(consumer))
    else:
        await world.broker.accept(session, world.caller(operator), operator)
    before = await world.availability(operator)
    world.faults.at["create_input"] = ["refused"]
    with pytest.raises(VideoUnavailableError):
        await world.broker.start(session, world.caller(operator))
    assert (await world.view(session, operator)).state == "ASSIGNED"
    await world.until(lambda: is_availability(world, operator, before), within_s=1)
    started = (await world.broker.start(session, world.caller(operator))).value
    assert started.state == "LIVE"


async def test_video_that_takes_too_long_is_unavailable_and_not_unknown(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await world.broker.dispatch(session, world.caller(consumer))
    world.faults.at["create_input"] = ["hang"]
    with pytest.raises(VideoUnavailableError):
        await world.broker.start(session, world.caller(operator))
    assert (await world.broker.start(session, world.caller(operator))).value.state == "LIVE"


async def test_a_start_that_cannot_be_stored_closes_its_input_and_vacates_the_operator(world):
    consumer, operator = await world.consumer(), await world.operator()
    session = await world.request(consumer)
    await world.broker.accept(session, world.caller(operator), operator)
    world.faults.at["write_session"] = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await world.broker.start(session, world.caller(operator))
    await world.until(lambda: is_availability(world, operator, "ONLINE"), within_s=5)
    await trio.testing.wait_all_tasks_blocked()
    assert not world.video.inputs
    assert (await world.broker.start(session, world.caller(operator))).value.state == "LIVE"


async def test_an_operator_that_fell_silent_is_of_the_first_tier_again_when_it_is_heard_of(world):
    consumer = await world.consumer()
    back, silent = [await world.operator() for _ in range(2)]
    for operator in (back, silent):
        await world.broker.patch_workspace(
            operator, world.caller(operator), Patch(coverage_lat=LAT, coverage_lng=LNG, coverage_radius_m=1000.0)
        )
        await world.heartbeat(operator, 1)
    await trio.sleep(120)
    fresh, never = [await world.operator() for _ in range(2)]
    await world.heartbeat(fresh, 1)
    first = await world.request(consumer, lat=LAT, lng=LNG)
    answer = await world.broker.dispatch(first, world.caller(consumer))
    assert answer.value.operator_workspace_id == fresh
    await world.heartbeat(back, 2)
    for expected in (back, silent, never):
        session = await world.request(consumer, lat=LAT, lng=LNG)
        answer = await world.broker.dispatch(session, world.caller(consumer))
        assert answer.value.operator_workspace_id == expected


async def test_an_operator_is_live_in_one_session_at_a_time(world):
    consumer, operator = await world.consumer(), await world.operator()
    sessions = [await world.request(consumer) for _ in range(2)]
    for session in sessions:
        await world.broker.accept(session, world.caller(operator), operator)
    results = await results_of(
        [lambda s=session: world.broker.start(s, world.caller(operator)) for session in sessions]
    )
    assert sorted(isinstance(result, Code) for result in results) == [False, True]


# The index.


SEEN_WITHIN_MS = 60_000


def all_are_new(_wallet, _now_ms):
    return NEW


def test_an_operator_is_looked_at_when_it_may_be_silent_and_not_at_each_pick():
    index, looked_at, seen_ms = OperatorIndex(SEEN_WITHIN_MS, all_are_new), [], {}
    for number in range(100):
        workspace = a_workspace(id=f"{number:03}", idle_since_ms=number, last_seen_at_ms=0)
        seen_ms[workspace.id] = 0 if number < 90 else 50_000
        index.put(workspace, 0)

    def pick(now_ms):
        def last_seen_ms(workspace):
            looked_at.append(workspace.id)
            return seen_ms[workspace.id]

        index.expire(now_ms, last_seen_ms)
        found = index.choose(0.0, 0.0, mode="prefer", excluded=frozenset())
        return found and found.id

    assert (pick(60_000), looked_at) == ("000", [])
    assert (pick(60_001), len(looked_at)) == ("090", 100)
    assert (pick(110_000), len(looked_at)) == ("090", 100)
    assert index.count_covering(0.0, 0.0) == 10
    assert (pick(110_001), len(looked_at)) == ("000", 110)  # none is seen: the second tier, longest idle first
    assert index.count_covering(0.0, 0.0) == 0
    index.seen("050", 110_001)
    assert (pick(110_001), index.count_covering(0.0, 0.0)) == ("050", 1)


tiers = st.tuples(
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["unset", "on", "off"]),
    st.sampled_from([PROVED, NEW, None]),
)


@given(st.lists(tiers, max_size=8), st.data())
def test_the_tiers_are_those_of_the_plain_rule(drawn, data):
    ranks = {f"0x{number}": each[-1] for number, each in enumerate(drawn)}
    index, known, seen_ms, now_ms = OperatorIndex(SEEN_WITHIN_MS, lambda wallet, _: ranks[wallet]), {}, {}, 1_000_000
    for number, (idle, has_claim, is_seen, _, coverage, _) in enumerate(drawn):
        claims = {"s": Claim(session_id="s", at_ms=0)} if has_claim else {}
        place = {} if coverage == "unset" else {"coverage_lat": 50.0 * (coverage == "off"), "coverage_radius_m": 9.0}
        place |= {} if coverage == "unset" else {"coverage_lng": 0.0}
        seen_ms[str(number)] = now_ms if is_seen else data.draw(st.sampled_from([None, now_ms - 60_001]))
        known[str(number)] = a_workspace(
            id=str(number),
            wallet_address=f"0x{number}",
            idle_since_ms=idle,
            claims=claims,
            last_seen_at_ms=seen_ms[str(number)],
            **place,
        )
        index.put(known[str(number)], now_ms)
    excluded = frozenset(str(number) for number, (_, _, _, is_excluded, *_) in enumerate(drawn) if is_excluded)

    def is_seen(workspace):
        at_ms = seen_ms[workspace.id]
        return at_ms is not None and now_ms - at_ms <= SEEN_WITHIN_MS

    def order(workspace, new_first):
        rank = ranks[workspace.wallet_address]
        covers = rank is not None and workspace.covers(0.0, 0.0)
        is_first = covers and not workspace.claims and is_seen(workspace)
        in_tier = ((rank == NEW) != new_first, workspace.coverage is None) if covers else (rank is None,)
        return (not is_first, not covers, in_tier, workspace.idle_since_ms, workspace.id)

    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            wallet = data.draw(st.sampled_from(sorted(ranks) or ["0x0"]))
            ranks[wallet] = data.draw(st.sampled_from([PROVED, NEW, None]))
            index.rank_again(wallet, now_ms)
        new_first = data.draw(st.booleans())
        choose = partial(index.choose, 0.0, 0.0, excluded=excluded, ranks=NEW_FIRST if new_first else IN_ORDER)
        present = [each for each in known.values() if each.id not in excluded]
        best = sorted(present, key=lambda each: order(each, new_first))
        assert choose(mode="prefer") == next(iter(best), None)
        listed = [each for each in known.values() if ranks[each.wallet_address] is not None]
        first_tier = [
            each for each in best if each in listed and each.covers(0.0, 0.0) and not each.claims and is_seen(each)
        ]
        assert choose(mode="strict") == next(iter(first_tier), None)
        longest_idle = min(best, key=lambda each: (each.idle_since_ms, each.id), default=None)
        assert choose(mode="literal") == longest_idle
        supply = [each for each in listed if each.covers(0.0, 0.0) and is_seen(each)]
        assert index.count_covering(0.0, 0.0) == len(supply)
        now_ms += data.draw(st.integers(0, 70_000))
        for awake in data.draw(st.sets(st.sampled_from(sorted(known)))) if known else ():
            is_news = not is_seen(known[awake])
            seen_ms[awake] = now_ms
            if is_news:  # as the workspace's actor does
                index.expire(now_ms, lambda workspace: seen_ms[workspace.id])
                index.seen(awake, now_ms)
        index.expire(now_ms, lambda workspace: seen_ms[workspace.id])


coverages = st.tuples(st.floats(-90, 90), st.floats(-180, 180), st.floats(1, 100_000), st.integers(0, 5), st.booleans())


@given(
    st.lists(st.one_of(st.none(), coverages), max_size=12),
    st.floats(-90, 90),
    st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, 180.0, 179.9, -179.9])),
    st.data(),
)
def test_the_index_finds_exactly_who_covers_a_point_in_the_order_of_dispatch(drawn, lat, lng, data):
    index, known = OperatorIndex(SEEN_WITHIN_MS, all_are_new), []
    for number, coverage in enumerate(drawn):
        workspace = a_workspace(id=f"{number:02}", last_seen_at_ms=0)
        if coverage is not None:
            c_lat, c_lng, radius_m, idle, is_near = coverage
            if is_near:  # close enough to matter, on whichever side of the antimeridian
                c_lat = max(-90.0, min(90.0, lat + data.draw(st.floats(-0.8, 0.8))))
                c_lng = (lng + data.draw(st.floats(-1.5, 1.5)) + 540.0) % 360.0 - 180.0
            workspace = a_workspace(
                id=f"{number:02}",
                last_seen_at_ms=0,
                coverage_lat=c_lat,
                coverage_lng=c_lng,
                coverage_radius_m=radius_m,
                idle_since_ms=idle,
            )
        known.append(workspace)
        index.put(workspace, 0)
    expected = sorted(
        (each for each in known if each.covers(lat, lng)),
        key=lambda each: (each.coverage is None, each.idle_since_ms, each.id),
    )
    assert [found.id for found in index.covering(lat, lng)] == [each.id for each in expected]
    assert index.count_covering(lat, lng) == len(expected)
    for workspace in known[::2]:
        index.remove(workspace.id)
    gone = {workspace.id for workspace in known[::2]}
    assert index.count_covering(lat, lng) == len([each for each in expected if each.id not in gone])
    for workspace in known:
        index.remove(workspace.id)
    assert len(index) == 0
    assert not list(index.covering(lat, lng))
