"""A session's deadlines, fences of state and money, from request to end."""

import pytest

from sightline.domain.geofence import DeviceKind
from sightline.domain.metering import PauseReason
from sightline.domain.refusal import Code
from sightline.domain.session import machine
from sightline.domain.session.machine import EXPIRED, NOT_AGAIN, wrong_state
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    CancelAssignment,
    ChargeHold,
    CloseVideo,
    ConsumerActive,
    Decline,
    End,
    EventKind,
    FixReported,
    FundsReported,
    GoLive,
    MediaBroke,
    MediaProved,
    Party,
    RecordNoShow,
    RecordProof,
    ReleaseHold,
    ReleaseOperator,
    Settle,
    SettlementMined,
    Tick,
    Withdraw,
)
from sightline.domain.session.model import EndReason, MediaCheckpoint, SessionState
from sightline.domain.session.status import parties_of, session_status
from sightline.domain.units import MicroUsdc
from tests.domain.builders import (
    CONSUMER,
    LIMITS,
    OPERATOR,
    T0,
    VIDEO,
    Film,
    a_cancelled_session,
    a_copy,
    a_fix,
    a_live_session,
    a_requested_session,
    after,
    an_assigned_session,
    an_ended_session,
    an_operator,
    media_until,
    taken,
)


def refused(session, message, at_ms):
    return machine.step(session, message, at_ms, LIMITS)


# REQUESTED.


WALLET = an_operator().wallet_address


def test_a_request_can_be_assigned_until_the_last_millisecond_of_its_wait():
    session = a_requested_session(wait_timeout_s=5)
    assert after(session, Assign(an_operator()), T0 + 4_999).state is SessionState.ASSIGNED
    assert refused(session, Assign(an_operator()), T0 + 5_000) is EXPIRED


@pytest.mark.parametrize("looked_at_ms", [T0 + 5_000, T0 + 5_001, T0 + 900_000])
def test_an_expired_request_ended_exactly_at_its_deadline(looked_at_ms):
    step = taken(machine.step(a_requested_session(wait_timeout_s=5), Tick(), looked_at_ms, LIMITS))
    closed = step.session.phase
    assert (step.session.state, closed.reason) == (SessionState.EXPIRED, EndReason.WAIT_TIMEOUT)
    assert closed.closed_at_ms == T0 + 5_000
    assert step.effects == (ReleaseHold(),)


def test_a_late_call_is_expired_and_not_merely_in_the_wrong_state():
    assert (EXPIRED.code, EXPIRED.detail) == (Code.INVALID_STATE, "session:expired")
    expired = after(a_requested_session(wait_timeout_s=5), Tick(), T0 + 5_000)
    assert refused(expired, Cancel(), T0 + 6_000) is EXPIRED
    assert refused(a_cancelled_session(), Cancel(), T0 + 6_000) == wrong_state(a_cancelled_session())
    assert (EXPIRED.state, wrong_state(a_cancelled_session()).state) == ("EXPIRED", "CANCELLED")


def test_a_withdrawn_request_releases_its_hold_and_charges_nothing():
    step = taken(machine.step(a_requested_session(), Cancel(), T0 + 7, LIMITS))
    assert (step.session.state, step.session.phase.closed_at_ms) == (SessionState.CANCELLED, T0 + 7)
    assert step.effects == (ReleaseHold(),)


# ASSIGNED.


@pytest.mark.parametrize(("kind", "wait_ms"), [(DeviceKind.PHONE, 120_000), (DeviceKind.DRONE, 300_000)])
def test_an_assignment_must_be_started_in_time_and_a_drone_has_longer(kind, wait_ms):
    session = an_assigned_session(operator=an_operator(kind))
    assert after(session, GoLive(VIDEO), T0 + wait_ms - 1).state is SessionState.LIVE
    step = taken(machine.step(session, Tick(), T0 + wait_ms + 77, LIMITS))
    assert step.session.state is SessionState.REQUESTED
    release = ReleaseOperator(OPERATOR, start_timed_out=True, is_withdrawn=True)
    assert step.effects == (release, RecordNoShow(WALLET, T0 + wait_ms))
    assert refused(session, GoLive(VIDEO), T0 + wait_ms) == wrong_state(step.session)


def test_a_request_that_is_not_started_waits_for_the_rest_of_its_time_without_that_operator():
    session = an_assigned_session(T0 + 40_000, wait_timeout_s=60)
    assert machine.deadline_ms(session) == T0 + 160_000
    reopened = after(session, Tick(), T0 + 160_000)
    assert (reopened.operator, reopened.unstarted_by) == (None, (OPERATOR,))
    assert machine.deadline_ms(reopened) == T0 + 180_000
    assert refused(reopened, Assign(an_operator()), T0 + 161_000) is NOT_AGAIN
    other = after(reopened, Assign(an_operator(workspace_id="other")), T0 + 170_000)
    again = after(other, Tick(), T0 + 290_000)
    assert (again.unstarted_by, machine.deadline_ms(again)) == ((OPERATOR, "other"), T0 + 300_000)
    expired = after(again, Tick(), T0 + 300_000).phase
    assert (expired.reason, expired.closed_at_ms) == (EndReason.WAIT_TIMEOUT, T0 + 300_000)


def test_a_request_expires_at_a_start_timeout_when_less_than_a_second_of_waiting_is_left():
    at_ms = T0 + 5_000 - 999
    step = taken(machine.step(an_assigned_session(at_ms, wait_timeout_s=5), Tick(), at_ms + 130_000, LIMITS))
    closed = step.session.phase
    assert (step.session.state, closed.reason) == (SessionState.EXPIRED, EndReason.START_TIMEOUT)
    assert closed.closed_at_ms == at_ms + 120_000
    release = ReleaseOperator(OPERATOR, start_timed_out=True)
    assert step.effects == (ReleaseHold(), release, RecordNoShow(WALLET, at_ms + 120_000))


def test_a_request_that_a_hundred_operators_did_not_start_expires():
    session = a_requested_session(wait_timeout_s=3_600)
    now_ms = T0
    for number in range(101):
        session = after(session, Assign(an_operator(workspace_id=f"operator-{number}")), now_ms)
        now_ms += 120_000
        session = after(session, Tick(), now_ms)
    assert (session.state, session.phase.reason) == (SessionState.EXPIRED, EndReason.START_TIMEOUT)


def test_both_deadlines_that_passed_while_the_server_was_down_are_settled_in_one_step():
    session = an_assigned_session(T0 + 40_000, wait_timeout_s=60)
    step = machine.settle_deadline(session, T0 + 900_000, LIMITS)
    assert [event.kind for event in step.events] == [EventKind.REOPENED, EventKind.EXPIRED]
    assert (step.session.phase.reason, step.session.phase.closed_at_ms) == (EndReason.WAIT_TIMEOUT, T0 + 180_000)
    assert step.effects == (
        ReleaseOperator(OPERATOR, start_timed_out=True, is_withdrawn=True),
        RecordNoShow(WALLET, T0 + 160_000),
        ReleaseHold(),
    )


def test_a_dispatch_that_is_not_acknowledged_opens_the_request_again_as_a_no_show():
    session = an_assigned_session(T0 + 40_000, wait_timeout_s=60)
    step = taken(machine.step(session, Withdraw(), T0 + 50_000, LIMITS))
    assert (step.session.state, step.session.unstarted_by) == (SessionState.REQUESTED, (OPERATOR,))
    assert machine.deadline_ms(step.session) == T0 + 70_000
    assert dict(step.events[0].facts)["reason"] == "NOT_ACKNOWLEDGED"
    assert step.effects[1] == RecordNoShow(WALLET, T0 + 50_000)
    for state in (a_requested_session(), a_cancelled_session(), Film().session):
        assert refused(state, Withdraw(), T0 + 1) == wrong_state(state)


@pytest.mark.parametrize(("after_ms", "is_no_show"), [(0, False), (20_000, False), (20_001, True)])
def test_an_operator_declines_and_the_request_is_open_again_without_a_no_show_within_20_s(after_ms, is_no_show):
    session, at_ms = an_assigned_session(T0 + 40_000, wait_timeout_s=60), T0 + 40_000 + after_ms
    step = taken(machine.step(session, Decline(), at_ms, LIMITS))
    assert (step.session.state, step.session.operator) == (SessionState.REQUESTED, None)
    assert machine.deadline_ms(step.session) == at_ms + 20_000
    assert step.events[0].facts == (("reason", "DECLINED"), ("operatorWorkspaceId", OPERATOR))
    assert step.effects[0] == ReleaseOperator(OPERATOR, start_timed_out=is_no_show, is_withdrawn=True)
    assert step.effects[1:] == ((RecordNoShow(WALLET, at_ms),) if is_no_show else ())
    assert refused(step.session, Assign(an_operator()), at_ms + 1) == machine.NOT_AGAIN


def test_a_decline_without_wait_time_left_expires_the_request_as_unanswered():
    session = an_assigned_session(T0 + 59_500, wait_timeout_s=60)
    step = taken(machine.step(session, Decline(), T0 + 62_000, LIMITS))
    assert (step.session.state, step.session.phase.reason) == (SessionState.EXPIRED, EndReason.WAIT_TIMEOUT)
    assert step.effects == (ReleaseHold(), ReleaseOperator(OPERATOR, start_timed_out=False))


def test_only_an_assignment_can_be_declined():
    for state in (a_requested_session(), a_cancelled_session(), Film().session, an_ended_session()):
        assert refused(state, Decline(), T0 + 5_000) == wrong_state(state)


def test_a_session_of_thirty_clean_seconds_is_a_proof_of_its_operators_wallet():
    for seconds, is_proof in ((29, False), (30, True)):
        film = Film().both(T0, T0 + 1_000 * seconds, every_ms=1_000)
        step = taken(machine.step(film.session, End(Party.CONSUMER), T0 + 1_000 * seconds, LIMITS))
        assert (RecordProof(WALLET, T0 + 1_000 * seconds) in step.effects) == is_proof


def test_a_consumer_withdraws_a_request_whose_start_deadline_just_passed():
    step = taken(machine.step(an_assigned_session(), Cancel(), T0 + 121_000, LIMITS))
    assert (step.session.state, step.session.phase.reason) == (SessionState.CANCELLED, EndReason.CONSUMER_CANCELLED)
    assert [event.kind for event in step.events] == [EventKind.REOPENED, EventKind.CANCELLED]


def test_an_assignment_cannot_be_ended_by_its_operator():
    assert refused(an_assigned_session(), End(Party.OPERATOR), T0 + 1) == wrong_state(an_assigned_session())


def test_a_consumer_that_leaves_an_assignment_cancels_it_without_charge():
    step = taken(machine.step(an_assigned_session(), End(Party.CONSUMER), T0 + 9, LIMITS))
    assert (step.session.state, step.session.phase.reason) == (SessionState.CANCELLED, EndReason.CONSUMER_CANCELLED)
    assert step.effects == (ReleaseHold(), ReleaseOperator(OPERATOR, start_timed_out=False))
    assert refused(step.session, End(Party.CONSUMER), T0 + 10) == wrong_state(step.session)


def test_the_platform_cancels_a_session_that_is_not_live():
    for session in (a_requested_session(), an_assigned_session()):
        step = taken(machine.step(session, End(Party.PLATFORM), T0 + 9, LIMITS))
        assert (step.session.state, step.session.phase.reason) == (SessionState.CANCELLED, EndReason.PLATFORM_ENDED)
        assert ReleaseHold() in step.effects
        assert refused(step.session, End(Party.PLATFORM), T0 + 10) == wrong_state(step.session)


def test_an_assigned_session_cannot_be_withdrawn_by_its_consumer():
    assert refused(an_assigned_session(), Cancel(), T0 + 1) == wrong_state(an_assigned_session())


def test_a_dropped_assignment_frees_the_operator_and_is_no_start_timeout():
    step = taken(machine.step(an_assigned_session(), CancelAssignment(), T0 + 9, LIMITS))
    assert (step.session.state, step.session.phase.reason) == (SessionState.CANCELLED, EndReason.OPERATOR_CANCELLED)
    assert step.effects == (ReleaseHold(), ReleaseOperator(OPERATOR, start_timed_out=False))


# LIVE to ENDED.


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (Party.CONSUMER, EndReason.CONSUMER_ENDED),
        (Party.OPERATOR, EndReason.OPERATOR_ENDED),
        (Party.PLATFORM, EndReason.PLATFORM_ENDED),
    ],
)
def test_either_side_and_the_platform_may_hang_up(by, reason):
    ended = after(Film().both(T0, T0 + 2_000).session, End(by), T0 + 3_500).phase
    assert (ended.reason, ended.ended_at_ms, ended.clean_seconds, ended.charged) == (reason, T0 + 3_500, 3, 3_000)


@pytest.mark.parametrize("late_ms", [0, 1, 59_000])
def test_the_longest_session_ends_exactly_at_its_deadline_however_late_it_is_looked_at(late_ms):
    film = Film(a_live_session(max_duration_s=30)).both(T0, T0 + 28_000)
    film.tell(Tick(), T0 + 30_000 + late_ms)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms) == (EndReason.MAX_DURATION, T0 + 30_000)
    assert (ended.clean_seconds, ended.charged) == (30, 30_000)


def test_an_end_gives_the_charge_the_settlement_and_everything_back():
    film = Film().both(T0, T0 + 10_000)
    step = taken(machine.step(film.session, End(Party.CONSUMER), T0 + 10_999, LIMITS))
    settle, charge, release, close = step.effects
    assert isinstance(settle, Settle)
    payload = settle.payload
    assert (payload.to_amount, payload.fee_amount, payload.chargeable_seconds) == (8_500, 1_500, 10)
    assert payload.to_amount + payload.fee_amount == payload.rate * payload.chargeable_seconds
    assert charge == ChargeHold(10_000)
    assert release == ReleaseOperator(OPERATOR, start_timed_out=False)
    assert close == CloseVideo(VIDEO.ref)


def test_a_session_that_proved_nothing_is_not_charged_but_settled():
    film = Film().tell(Tick(), T0 + 61_000)
    ended = film.session.phase
    assert (ended.ended_at_ms, ended.clean_seconds, ended.charged) == (T0 + 60_000, 0, 0)


def test_a_second_end_is_refused_and_changes_nothing():
    ended = an_ended_session()
    assert refused(ended, End(Party.CONSUMER), T0 + 9_000) == wrong_state(ended)
    assert refused(ended, End(Party.OPERATOR), T0 + 900_000) == wrong_state(ended)


def test_evidence_that_arrives_after_the_end_does_not_change_the_charge():
    ended = an_ended_session()
    step = taken(machine.step(ended, MediaBroke(T0 + 1), T0 + 9_000, LIMITS))
    assert step.session == ended
    assert not step.events


def test_a_settlement_is_noted_once():
    mined = taken(machine.step(an_ended_session(), SettlementMined("0xabc"), T0 + 9_000, LIMITS))
    assert mined.session.phase.settlement_tx_hash == "0xabc"
    assert len(mined.events) == 1
    assert not taken(machine.step(mined.session, SettlementMined(a_copy("0xabc")), T0 + 9_001, LIMITS)).events
    moved = taken(machine.step(mined.session, SettlementMined("0xdef"), T0 + 9_002, LIMITS))
    assert (moved.session.phase.settlement_tx_hash, moved.events[0].facts) == ("0xdef", (("txHash", "0xdef"),))


@pytest.mark.parametrize(
    ("session", "deadline_ms"),
    [
        (a_requested_session(), T0 + 300_000),
        (an_assigned_session(T0 + 5), T0 + 120_005),
        (a_live_session(T0 + 5), T0 + 600_005),
        (an_ended_session(), None),
        (a_cancelled_session(), None),
    ],
    ids=["REQUESTED", "ASSIGNED", "LIVE", "ENDED", "CANCELLED"],
)
def test_callers_see_the_deadline_of_the_present_state(session, deadline_ms):
    assert machine.deadline_ms(session) == deadline_ms


# The consumer's lease and its funds.


def test_a_session_whose_consumer_made_no_call_for_its_lease_ends_exactly_then():
    film = Film(a_live_session(consumer_lease_s=15)).both(T0, T0 + 10_000)
    film.tell(ConsumerActive(), T0 + 10_000).both(T0 + 12_000, T0 + 24_000)
    assert machine.next_due_ms(film.session, T0 + 24_000, LIMITS) == T0 + 25_000
    film.tell(Tick(), T0 + 24_999)
    assert film.session.state is SessionState.LIVE
    film.tell(Tick(), T0 + 31_000)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms, ended.clean_seconds) == (EndReason.CONSUMER_LOST, T0 + 25_000, 25)


def test_a_lease_that_outlasts_the_session_does_not_end_it():
    film = Film(a_live_session(consumer_lease_s=600, max_duration_s=30)).both(T0, T0 + 30_000)
    assert (film.session.phase.reason, film.session.phase.ended_at_ms) == (EndReason.MAX_DURATION, T0 + 30_000)


def test_a_restart_renews_the_lease():
    stored = Film(a_live_session(consumer_lease_s=15)).both(T0, T0 + 8_000).session
    session = recovered(stored, T0 + 8_000, T0 + 16_000)
    assert session.state is SessionState.LIVE
    assert after(session, Tick(), T0 + 30_999).state is SessionState.LIVE
    assert after(session, Tick(), T0 + 31_000).phase.reason is EndReason.CONSUMER_LOST


@pytest.mark.parametrize(
    ("available", "state"),
    [(40_000, SessionState.LIVE), (10**12, SessionState.LIVE), (39_999, SessionState.ENDED), (0, SessionState.ENDED)],
)
def test_a_live_session_needs_funds_for_what_is_charged_and_thirty_seconds(available, state):
    film = Film().both(T0, T0 + 10_000).tell(FundsReported(MicroUsdc(available)), T0 + 10_500)
    assert film.session.state is state
    if state is SessionState.ENDED:
        assert (film.session.phase.reason, film.session.phase.charged) == (EndReason.FUNDS_LOST, 10_000)


def test_funds_for_the_whole_hold_are_enough():
    film = Film(a_live_session(max_duration_s=20)).both(T0, T0 + 10_000)
    assert film.tell(FundsReported(MicroUsdc(20_000)), T0 + 10_500).session.state is SessionState.LIVE


# Recovery.


def recovered(session, proved_at_ms, now_ms, heartbeats=()):
    media = None if proved_at_ms is None else MediaCheckpoint(proved_at_ms=proved_at_ms)
    return machine.recover(session, media, heartbeats, now_ms, LIMITS).session


def heartbeats(*seconds):
    return [FixReported(a_fix(T0 + second * 1_000), 100 + second) for second in seconds]


def test_media_between_the_row_and_its_checkpoint_counts_as_unbroken_while_running():
    stored = Film().both(T0, T0 + 2_000).session
    session = recovered(stored, T0 + 100_000, T0 + 100_000, heartbeats(*range(4, 100, 2)))
    ended = after(session, End(Party.CONSUMER), T0 + 100_000).phase
    assert ended.clean_seconds == 100


def test_a_live_session_stored_before_any_media_survives_a_restart_after_minutes():
    session = recovered(a_live_session(), T0 + 100_000, T0 + 100_000, heartbeats(*range(1, 100, 2)))
    assert session.state is SessionState.LIVE
    assert session.phase.pause_reason is None


def test_only_the_checkpoint_of_media_counts_while_the_row_says_paused():
    film = Film().both(T0, T0 + 4_000).tell(MediaBroke(T0 + 4_500), T0 + 4_500)
    session = recovered(film.session, T0 + 20_000, T0 + 20_000, heartbeats(*range(5, 20, 2)))
    ended = after(session, End(Party.CONSUMER), T0 + 20_000).phase
    assert [(window.from_ms - T0, window.to_ms - T0) for window in ended.windows if window.reason == "MEDIA_LOST"] == [
        (4_500, 20_000)
    ]


@pytest.mark.parametrize("late", [MediaProved(T0 + 43_000), MediaProved(T0 + 44_000)])
def test_evidence_that_is_handled_late_does_not_end_a_pause_that_goes_on(late):
    film = Film()
    for at_ms in range(0, 43_000, 2_000):
        film.fix(T0 + at_ms).media(T0 + at_ms + 900)
    film.tell(Tick(), T0 + 52_000).tell(late, T0 + 53_000).tell(Tick(), T0 + 53_100)
    assert film.live.pause_reason is PauseReason.LOCATION_STALE
    assert [(event.kind, event.at_ms) for event in film.events] == [(EventKind.PAUSED, T0 + 52_000)]


def test_events_are_in_the_order_in_which_they_were_recorded_whatever_their_evidence():
    film = Film()
    for at_ms in range(0, 43_000, 2_000):
        film.fix(T0 + at_ms).media(T0 + at_ms + 900)
    film.tell(Tick(), T0 + 52_000).tell(MediaBroke(T0 + 43_000), T0 + 53_000)
    film.fix(T0 + 54_000).tell(MediaProved(T0 + 54_000), T0 + 54_500)
    times = [event.at_ms for event in film.events]
    assert times == sorted(times)
    assert [event.kind for event in film.events] == [EventKind.PAUSED, EventKind.PAUSED, EventKind.RESUMED]


def outside_from_6_s():
    """Filmed since the start, outside the fence from 6.0 s on, and paused for that since 8.0 s."""
    film = Film().both(T0, T0 + 4_000, north_m=490).both(T0 + 6_000, T0 + 12_000, north_m=600)
    assert film.live.pause_reason is PauseReason.GEOFENCE_EXIT
    return film


def test_media_during_a_pause_for_the_position_is_not_called_lost_after_a_restart():
    film = media_until(outside_from_6_s(), T0 + 13_000, T0 + 40_000)
    stray = [FixReported(a_fix(T0 + second * 1_000, north_m=600), 100 + second) for second in range(14, 41, 2)]
    ended = after(recovered(film.stored, T0 + 40_000, T0 + 41_000, stray), End(Party.CONSUMER), T0 + 41_000).phase
    assert {window.reason for window in ended.windows} == {PauseReason.GEOFENCE_EXIT}


def test_a_disconnect_during_a_pause_for_the_position_is_in_the_row_and_not_charged_after_a_restart():
    film = outside_from_6_s()
    events = list(film.events)
    film.tell(MediaBroke(T0 + 12_500), T0 + 12_500)
    back = FixReported(a_fix(T0 + 14_000, north_m=490), 100)
    restarted = recovered(film.stored, T0 + 12_000, T0 + 14_000, [back])
    for session in (film.fix(T0 + 14_000, north_m=490).session, restarted):
        ended = after(after(session, MediaProved(T0 + 17_500), T0 + 17_500), End(Party.CONSUMER), T0 + 17_900).phase
        assert ended.clean_seconds == 6  # until 6.0 s, and 0.4 s at the end
    assert film.events[: len(events)] == events


def test_a_gap_of_media_that_closes_during_a_pause_for_the_position_is_in_the_row():
    film = outside_from_6_s()
    film.media(T0 + 12_000 + 15_000)
    assert film.stored.phase.evidence.media == film.live.evidence.media
    assert film.stored.phase.evidence.media.last_proof_ms == T0 + 27_000


def test_a_checkpoint_older_than_the_row_changes_nothing():
    session = Film().both(T0, T0 + 20_000).session
    assert recovered(session, T0 + 10_000, T0 + 21_000) == session


def test_recovery_after_a_long_outage_ends_the_session_where_its_evidence_ends():
    """Heartbeats that were recorded after the pauses had ended the session do not move its end."""
    session = Film().both(T0, T0 + 20_000).session
    ended = recovered(session, T0 + 20_000, T0 + 900_000, heartbeats(*range(21, 200, 2))).phase
    assert (ended.reason, ended.ended_at_ms - T0, ended.clean_seconds) == (EndReason.MEDIA_LOST, 82_000, 22)


def test_a_restart_after_a_gap_that_no_timer_noticed_charges_what_was_charged_without_it():
    """Frames until 20.0 s, the next at 30.001 s, before the timer of the silence fired; then a crash."""
    film = media_until(Film(), T0, T0 + 20_000)
    for second in range(0, 40, 2):
        film.fix(T0 + second * 1_000)
        if second == 30:
            film.media(T0 + 30_001)
    stored = film.stored
    film = media_until(film, T0 + 31_000, T0 + 40_000)
    restarted = recovered(stored, T0 + 40_000, T0 + 40_000, heartbeats(*range(32, 41, 2)))
    charged = [after(session, End(Party.CONSUMER), T0 + 40_000).phase.charged for session in (film.session, restarted)]
    assert charged == [31_000, 31_000]


# What each side sees.


@pytest.mark.parametrize(
    ("workspace_id", "is_consumer", "is_operator"),
    [
        (CONSUMER, True, False),
        (OPERATOR, False, True),
        ("0a" + CONSUMER[2:], False, False),
        ("ff" + CONSUMER[2:], False, False),
    ],
)
def test_each_side_of_a_live_session_sees_its_own_urls_and_metadata(workspace_id, is_consumer, is_operator):
    session = a_live_session(metadata_json="{}")
    seen = session_status(session, T0 + 1_000, LIMITS, workspace_id)
    assert seen.whep_url == (VIDEO.whep_url if is_consumer or is_operator else None)
    assert seen.whip_url == (VIDEO.whip_url if is_operator else None)
    assert seen.metadata_json == ("{}" if is_consumer else None)
    sides = {Party.CONSUMER: is_consumer, Party.OPERATOR: is_operator}
    assert parties_of(session, workspace_id) == {side for side, is_on in sides.items() if is_on}
