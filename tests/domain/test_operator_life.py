"""An operator's availability and claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.geofence import DeviceKind, distance_m
from sightline.domain.operator import machine
from sightline.domain.operator.machine import (
    BUSY,
    NO_CLAIM,
    NOT_ONLINE,
    OTHER_LIVE,
    AcceptPolicy,
    ClaimByAccept,
    ClaimByDispatch,
    Occupy,
    Patch,
    Release,
    ResetSequence,
    Restore,
    Vacate,
)
from sightline.domain.operator.model import Availability
from sightline.domain.refusal import Code, Refusal
from sightline.domain.value import replace
from tests.domain.builders import T0, a_workspace

ONLINE, OFFLINE = Availability.ONLINE, Availability.OFFLINE


def after(workspace, *messages, at_ms=T0 + 1_000):
    for message in messages:
        workspace = machine.step(workspace, message, at_ms)
        assert not isinstance(workspace, Refusal), workspace
    return workspace


def test_a_dispatch_takes_an_online_operator_and_makes_it_busy():
    busy = after(a_workspace(), ClaimByDispatch("s"))
    assert (busy.availability, busy.rest, list(busy.claims)) == (Availability.BUSY, ONLINE, ["s"])


@pytest.mark.parametrize(
    "workspace", [a_workspace(OFFLINE), after(a_workspace(), ClaimByDispatch("x"))], ids=["OFFLINE", "BUSY"]
)
def test_a_dispatch_takes_nobody_who_is_not_online(workspace):
    assert machine.step(workspace, ClaimByDispatch("s"), T0) is NOT_ONLINE


def test_a_dispatch_makes_busy_whatever_an_accept_of_the_same_session_left_behind():
    claimed = after(a_workspace(), ClaimByAccept("s"), ClaimByDispatch("s"))
    assert claimed.availability is Availability.BUSY
    assert claimed.claims["s"].is_dispatched


@pytest.mark.parametrize("availability", [ONLINE, OFFLINE])
def test_accept_leaves_availability_as_it_is(availability):
    assert after(a_workspace(availability), ClaimByAccept("s")).availability is availability


def test_a_lower_maximum_of_assignments_refuses_also_an_operator_that_is_above_it():
    three = after(a_workspace(), *(ClaimByAccept(each) for each in "abc"))
    refused = machine.step(three, ClaimByAccept("d", policy=AcceptPolicy(assignments_max=2)), T0)
    assert isinstance(refused, Refusal)
    assert refused.detail == "operator:assignments"


def test_a_reset_lets_the_sequence_start_again_above_all_that_was_stored():
    reset = after(a_workspace(last_sequence=41, sequence_base=7), ResetSequence())
    assert (reset.sequence_base, reset.last_sequence) == (42, 41)
    assert after(reset, ResetSequence()) is reset


def test_an_operator_accepts_three_sessions_that_are_not_started_and_one_that_is_live_beside_them():
    three = after(a_workspace(), *(ClaimByAccept(each) for each in "abc"))
    refused = machine.step(three, ClaimByAccept("d"), T0)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.detail) == ("INVALID_STATE", "operator:assignments")
    assert after(three, ClaimByAccept("a")).claims.keys() == three.claims.keys()  # a repeat is no further one
    assert set(after(three, Occupy("a"), ClaimByAccept("d")).claims) == set("abcd")


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({}, None),
        ({"availability": OFFLINE}, "operator:offline"),
        ({"last_seen_at_ms": None}, "operator:notSeen"),
        ({"last_seen_at_ms": T0 - 60_001}, "operator:notSeen"),
        ({"coverage_lat": 50.0}, "operator:notCovering"),
        ({"coverage_lat": None}, None),
    ],
)
def test_the_verified_policy_takes_only_who_is_online_and_seen_and_covers_the_point(changes, detail):
    ready = {"coverage_lat": 10.0, "coverage_lng": 20.0, "coverage_radius_m": 500.0, "last_seen_at_ms": T0 - 60_000}
    workspace = replace(a_workspace(), **(ready | changes))
    claim = ClaimByAccept("s", 10.001, 20.001, AcceptPolicy(is_verified=True))
    result = machine.step(workspace, claim, T0)
    assert (result.detail if isinstance(result, Refusal) else None) == detail


@pytest.mark.parametrize("availability", [ONLINE, OFFLINE])
def test_start_makes_busy_and_the_end_gives_back_what_was_before(availability):
    busy = after(a_workspace(availability), ClaimByAccept("s"), Occupy("s"))
    assert (busy.availability, busy.live_session_id) == (Availability.BUSY, "s")
    freed = after(busy, Release("s"), at_ms=T0 + 9_000)
    assert (freed.availability, freed.claims, freed.idle_since_ms) == (availability, {}, T0 + 9_000)


def test_a_dispatched_operator_comes_back_online_idle_since_its_release():
    freed = after(after(a_workspace(), ClaimByDispatch("s")), Release("s"), at_ms=T0 + 5_000)
    assert (freed.availability, freed.idle_since_ms) == (ONLINE, T0 + 5_000)


def test_busy_lasts_while_another_assignment_is_open():
    two = after(a_workspace(), ClaimByAccept("a"), ClaimByDispatch("b"))
    one = after(two, Release("b"))
    assert one.availability is Availability.BUSY
    assert after(one, Release("a")).availability is ONLINE


def test_a_failed_start_after_accept_gives_availability_back():
    assert after(a_workspace(), ClaimByAccept("s"), Occupy("s"), Vacate("s")).availability is ONLINE


def test_a_failed_start_after_dispatch_leaves_the_operator_busy_with_its_assignment():
    vacated = after(a_workspace(), ClaimByDispatch("s"), Occupy("s"), Vacate("s"))
    assert (vacated.availability, vacated.live_session_id, list(vacated.claims)) == (Availability.BUSY, None, ["s"])


def test_an_operator_is_live_in_one_session_at_a_time():
    live = after(a_workspace(), ClaimByAccept("a"), ClaimByAccept("b"), Occupy("a"))
    assert machine.step(live, Occupy("b"), T0) is OTHER_LIVE


def test_a_session_without_a_claim_cannot_be_started():
    assert machine.step(a_workspace(), Occupy("s"), T0) is NO_CLAIM


@pytest.mark.parametrize(
    "message", [ClaimByDispatch("s"), Occupy("s"), Vacate("s"), Restore("s"), Release("s"), Patch(name="x")], ids=str
)
def test_every_message_may_be_repeated(message):
    first = after(a_workspace(), ClaimByDispatch("s"), message)
    assert after(first, message) == first


@pytest.mark.parametrize("before", [ONLINE, OFFLINE], ids=str)
def test_a_restored_dispatch_makes_busy_and_its_release_gives_back_what_was(before):
    restored = after(a_workspace(before), Restore("s", is_dispatched=True))
    assert (restored.availability, restored.claims["s"].is_dispatched) == (Availability.BUSY, True)
    assert after(restored, Release("s")).availability is before


def test_a_restored_acceptance_leaves_availability_as_it_is():
    assert after(a_workspace(), Restore("s")).availability is ONLINE


def test_a_claim_that_is_there_is_not_changed_by_its_restoration():
    for claimed in (after(a_workspace(), ClaimByDispatch("s"), Occupy("s")), after(a_workspace(), ClaimByAccept("s"))):
        assert machine.step(claimed, Restore("s"), T0 + 9_000) is claimed


def test_a_claim_restored_as_an_acceptance_becomes_a_dispatch_when_the_session_says_so():
    restored = after(a_workspace(), Restore("s"), Restore("s", is_dispatched=True))
    assert (restored.availability, restored.claims["s"].is_dispatched) == (Availability.BUSY, True)


def missed(workspace, *consumers):
    """After a START_TIMEOUT for each of these consumers; None stands for one that is not funded."""
    for number, consumer in enumerate(consumers):
        release = Release(str(number), start_timed_out=True, funded_consumer=consumer)
        workspace = after(workspace, ClaimByDispatch(str(number)), release)
    return workspace


@pytest.mark.parametrize(
    ("consumers", "availability"),
    [
        (["c", "d"], ONLINE),
        (["c", "d", "c"], OFFLINE),
        (["c", "d", "e"], OFFLINE),
        (["c", "c", "c", "c"], ONLINE),
        (["c", "c", "c", "c", "d"], OFFLINE),
        ([None, None, None, None], ONLINE),
        (["c", None, "d", None, None, "d"], OFFLINE),
    ],
)
def test_three_start_timeouts_in_a_row_for_two_funded_consumers_put_the_operator_offline(consumers, availability):
    assert missed(a_workspace(), *consumers).availability is availability


@pytest.mark.parametrize("between", [[Occupy("x"), Release("x")], [Release("x")]], ids=["a start", "a release"])
def test_what_happens_between_breaks_the_row_of_start_timeouts(between):
    workspace = after(missed(a_workspace(), "c", "d"), ClaimByDispatch("x"), *between)
    assert missed(workspace, "c").availability is ONLINE


def test_coming_online_again_starts_the_count_anew():
    back = after(missed(a_workspace(), "c", "d", "c"), Patch(availability=ONLINE))
    assert (back.availability, back.unstarted_for) == (ONLINE, ())


def test_becoming_online_is_idle_since_now_and_a_no_op_keeps_it():
    online = machine.step(a_workspace(OFFLINE), Patch(availability=ONLINE), T0 + 7_000)
    assert online.idle_since_ms == T0 + 7_000
    assert machine.step(online, Patch(availability=ONLINE), T0 + 9_000) is online


def test_availability_cannot_be_set_while_busy_but_a_name_can():
    busy = after(a_workspace(), ClaimByDispatch("s"))
    assert machine.step(busy, Patch(availability=OFFLINE), T0) is BUSY
    assert after(busy, Patch(name="New")).name == "New"


def test_coverage_is_set_as_a_pair():
    assert isinstance(machine.step(a_workspace(), Patch(coverage_lat=1.0), T0), Refusal)
    covered = after(a_workspace(), Patch(coverage_lat=1.0, coverage_lng=2.0, coverage_radius_m=100.0))
    assert covered.covers(1.0, 2.0)
    assert not covered.covers(1.0, 2.01)


def test_an_operator_without_coverage_serves_everywhere():
    assert a_workspace().covers(-89.0, 179.0)


@pytest.mark.parametrize("unset", ["coverage_lat", "coverage_lng", "coverage_radius_m"])
def test_a_coverage_with_a_part_that_is_not_set_counts_as_none(unset):
    covered = a_workspace(coverage_lat=1.0, coverage_lng=2.0, coverage_radius_m=5.0)
    assert covered.coverage is not None
    assert replace(covered, **{unset: None}).coverage is None


def test_the_edge_of_a_coverage_is_served():
    away_m = distance_m(1.0, 2.0, 1.01, 2.0)
    covered = a_workspace(coverage_lat=1.0, coverage_lng=2.0, coverage_radius_m=away_m)
    assert covered.covers(1.01, 2.0)
    assert not replace(covered, coverage_radius_m=away_m - 0.001).covers(1.01, 2.0)


def test_what_a_session_freezes_of_its_operator_is_what_stands_now():
    operator = replace(a_workspace(), device_kind=DeviceKind.DRONE, coverage_lat=1.0, coverage_lng=2.0).as_operator()
    assert (operator.device_kind, operator.coverage_lat, operator.coverage_lng) == (DeviceKind.DRONE, 1.0, 2.0)


names = st.sampled_from(["a", "b", "c"])
messages = st.one_of(
    st.builds(ClaimByDispatch, names),
    st.builds(ClaimByAccept, names),
    st.builds(Occupy, names),
    st.builds(Vacate, names),
    st.builds(Restore, names, st.booleans()),
    st.builds(Release, names, st.booleans()),
    st.builds(Patch, availability=st.sampled_from([ONLINE, OFFLINE])),
)


@given(st.lists(messages, max_size=30))
def test_busy_needs_a_claim_and_one_session_at_most_is_live(told):
    workspace = a_workspace()
    for turn, message in enumerate(told):
        result = machine.step(workspace, message, T0 + turn)
        workspace = workspace if isinstance(result, Refusal) else result
        assert sum(claim.is_live for claim in workspace.claims.values()) <= 1
        if workspace.availability is Availability.BUSY:
            assert workspace.claims
        else:
            assert not any(claim.is_live or claim.is_dispatched for claim in workspace.claims.values())
            assert workspace.rest is workspace.availability
        assert workspace.rest is not Availability.BUSY


def test_a_heartbeat_changes_only_what_was_seen_and_never_back():
    workspace = after(a_workspace(coverage_lat=1.0, coverage_lng=2.0, coverage_radius_m=3.0), ClaimByDispatch("s"))
    seen = workspace.seen(7, T0 + 5, (1.5, 2.5))
    assert seen == replace(workspace, last_sequence=7, last_seen_at_ms=T0 + 5, last_place=(1.5, 2.5))
    assert seen.seen(3, T0 + 1, (9.0, 9.0)) == seen
    assert seen.seen(7, T0 + 5, (9.0, 9.0)).last_place == (9.0, 9.0)
    first = a_workspace().seen(0, T0, (0.0, 0.0))
    assert (first.last_sequence, first.sequence_base, first.last_place) == (0, 0, (0.0, 0.0))


def test_a_distance_is_measured_from_the_newest_heartbeat_else_from_the_centre_of_the_coverage():
    assert a_workspace().distance_m(1.0, 2.0) is None
    covering = a_workspace(coverage_lat=1.0, coverage_lng=2.0, coverage_radius_m=3.0)
    assert covering.distance_m(1.01, 2.0) == 1112
    assert covering.seen(0, T0, (1.02, 2.0)).distance_m(1.01, 2.0) == 1112
    assert covering.seen(0, T0, (0.0, 0.0)).distance_m(0.0, 0.0) == 0


def test_a_dispatcher_that_finds_nobody_is_told_when_to_ask_again():
    assert (NOT_ONLINE.code, NOT_ONLINE.retry_after_s) == (Code.UNAVAILABLE, 5)
    assert (BUSY.code, BUSY.state) == (Code.INVALID_STATE, "BUSY")
    assert (OTHER_LIVE.code, OTHER_LIVE.state) == (Code.INVALID_STATE, "ASSIGNED")
