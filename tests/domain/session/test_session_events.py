"""What each recorded event says, fact by fact, and when a session must be looked at again."""

import pytest

from sightline.domain.session import machine
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    ChargeHold,
    CloseVideo,
    ConsumerActive,
    End,
    Event,
    EventKind,
    GoLive,
    MediaBroke,
    Party,
    ReleaseOperator,
    Settle,
    Tick,
)
from sightline.domain.session.model import Delivery, EndReason, MediaCheckpoint, SessionState
from sightline.domain.session.record import chain
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from tests.domain.builders import (
    CONSUMER,
    LIMITS,
    OPERATOR,
    SESSION,
    T0,
    VIDEO,
    Film,
    a_live_session,
    a_requested_session,
    after,
    an_assigned_session,
    an_ended_session,
    an_operator,
    taken,
    terms,
)


def test_the_first_event_holds_the_terms():
    (event,) = machine.create(terms(lat=1.23456789, lng=-0.5)).events
    assert event == Event(
        EventKind.CREATED,
        T0,
        (
            ("consumerWorkspaceId", CONSUMER),
            ("payerAddress", "0x" + "c" * 40),
            ("ratePerSecondMicroUsdc", "1000"),
            ("holdMicroUsdc", "600000"),
            ("maxDurationSeconds", 600),
            ("platformFeeBps", 1500),
            ("requestedLat", "1.234568"),
            ("requestedLng", "-0.500000"),
            ("radiusMeters", 500),
        ),
    )


def test_the_first_event_holds_the_shortest_charge_of_a_session_that_has_one():
    (event,) = machine.create(terms(minimum_s=3)).events
    assert event.facts[-1] == ("minimumSeconds", 3)
    assert event.facts[:-1] == machine.create(terms()).events[0].facts


def test_each_later_event_holds_what_it_decided():
    requested = a_requested_session()
    assigned = taken(machine.step(requested, Assign(an_operator()), T0 + 1_000, LIMITS))
    assert assigned.events == (
        Event(EventKind.ASSIGNED, T0 + 1_000, (("operatorWorkspaceId", OPERATOR), ("payeeAddress", "0x" + "b" * 40))),
    )
    reopened = taken(machine.step(assigned.session, Tick(), T0 + 121_000, LIMITS))
    assert reopened.events == (
        Event(EventKind.REOPENED, T0 + 121_000, (("reason", "START_TIMEOUT"), ("operatorWorkspaceId", OPERATOR))),
    )
    cancelled = taken(machine.step(requested, Cancel(), T0 + 2_000, LIMITS))
    assert cancelled.events == (Event(EventKind.CANCELLED, T0 + 2_000, (("reason", "CONSUMER_CANCELLED"),)),)
    expired = taken(machine.step(requested, Tick(), T0 + 300_000, LIMITS))
    assert expired.events == (Event(EventKind.EXPIRED, T0 + 300_000, (("reason", "WAIT_TIMEOUT"),)),)


def test_the_events_of_a_live_session_with_two_pauses():
    film = Film().both(T0, T0 + 4_000).tell(MediaBroke(T0 + 4_500), T0 + 4_500).both(T0 + 6_000, T0 + 8_000)
    film.tell(MediaBroke(T0 + 8_200), T0 + 8_200)
    step = taken(machine.step(film.session, End(Party.OPERATOR), T0 + 9_000, LIMITS))
    lost = "MEDIA_LOST"
    assert film.events == [
        Event(EventKind.PAUSED, T0 + 4_500, (("reason", lost), ("fromMs", T0 + 4_500))),
        Event(EventKind.RESUMED, T0 + 6_000),
        Event(EventKind.PAUSED, T0 + 8_200, (("reason", lost), ("fromMs", T0 + 8_200))),
    ]
    assert step.events == (
        Event(
            EventKind.ENDED,
            T0 + 9_000,
            (
                ("reason", "OPERATOR_ENDED"),
                ("startedAtMs", T0),
                ("cleanSeconds", 6),
                ("chargedMicroUsdc", "6000"),
                ("windows", f"{T0 + 4_500}-{T0 + 6_000} {lost}; {T0 + 8_200}-{T0 + 9_000} {lost}"),
            ),
        ),
    )
    payload = SettlementPayload(
        session_id=SESSION, from_address="0x" + "c" * 40, to_address="0x" + "b" * 40, to_amount=MicroUsdc(5_100),
        fee_amount=MicroUsdc(900), rate=MicroUsdc(1_000), chargeable_seconds=6, consumer_workspace_id=CONSUMER,
        operator_workspace_id=OPERATOR, platform_fee_bps=1_500,
    )  # fmt: skip
    assert step.effects == (
        Settle(payload), ChargeHold(MicroUsdc(6_000)), ReleaseOperator(OPERATOR, start_timed_out=False),
        CloseVideo(VIDEO.ref),
    )  # fmt: skip


def test_the_start_names_the_video():
    step = taken(machine.step(an_assigned_session(), GoLive(VIDEO), T0 + 3, LIMITS))
    assert step.events == (Event(EventKind.STARTED, T0 + 3, (("videoBackendRef", VIDEO.ref),)),)
    live = step.session.phase
    assert (live.started_at_ms, live.ends_at_ms, live.assigned_at_ms) == (T0 + 3, T0 + 600_003, T0)
    assert live.consumer_seen_ms == 0


def test_a_request_with_a_whole_second_of_waiting_left_is_opened_again():
    at_ms = T0 + 5_000 - 1_000
    reopened = after(an_assigned_session(at_ms, wait_timeout_s=5), Tick(), at_ms + 120_000)
    assert (reopened.state, machine.deadline_ms(reopened)) == (SessionState.REQUESTED, at_ms + 121_000)


# When to look again.


@pytest.mark.parametrize(
    ("session", "due_ms"),
    [
        (a_requested_session(), T0 + 300_000),
        (an_assigned_session(T0 + 5), T0 + 120_005),
        (a_live_session(), T0 + 10_000),
        (Film().both(T0, T0 + 4_000).session, T0 + 14_000),
        (Film().both(T0, T0 + 4_000).fix(T0 + 6_000).session, T0 + 14_000),
        (Film(a_live_session(max_duration_s=12)).both(T0, T0 + 4_000).session, T0 + 12_000),
        (Film(a_live_session(consumer_lease_s=7)).both(T0, T0 + 4_000).session, T0 + 7_000),
        (Film().both(T0, T0 + 4_000).tell(MediaBroke(T0 + 4_500), T0 + 4_500).session, T0 + 14_000),
        (an_ended_session(), None),
    ],
)
def test_a_session_is_looked_at_when_its_next_deadline_or_silence_comes(session, due_ms):
    assert machine.next_due_ms(session, T0 + 1_000, LIMITS) == due_ms


def test_a_paused_session_is_looked_at_when_its_pause_ends_it():
    film = Film().both(T0, T0 + 4_000).tell(Tick(), T0 + 14_000)
    assert machine.next_due_ms(film.session, T0 + 14_000, LIMITS) == T0 + 66_000


@pytest.mark.parametrize(
    ("lease_s", "reason", "ended_ms"),
    [(29, EndReason.CONSUMER_LOST, 29_000), (30, EndReason.MAX_DURATION, 30_000), (31, EndReason.MAX_DURATION, 30_000)],
)
def test_of_the_lease_and_the_maximum_the_earlier_one_ends_the_session(lease_s, reason, ended_ms):
    film = Film(a_live_session(max_duration_s=30, consumer_lease_s=lease_s)).both(T0, T0 + 28_000)
    ended = film.tell(Tick(), T0 + 30_000).session.phase
    assert (ended.reason, ended.ended_at_ms) == (reason, T0 + ended_ms)


def test_a_call_of_the_consumer_renews_its_lease_from_then():
    film = Film(a_live_session(consumer_lease_s=10)).both(T0, T0 + 8_000).tell(ConsumerActive(), T0 + 9_000)
    assert film.live.consumer_seen_ms == T0 + 9_000
    film.both(T0 + 10_000, T0 + 18_000)
    assert film.session.state is SessionState.LIVE
    assert film.tell(Tick(), T0 + 19_000).session.phase.ended_at_ms == T0 + 19_000


def test_a_message_before_the_newest_instant_happens_at_that_instant():
    session = an_assigned_session(T0 + 50_000)
    live = after(session, GoLive(VIDEO), T0 + 10)
    assert live.phase.started_at_ms == T0 + 50_000
    cancelled = after(a_requested_session(), Cancel(), T0 - 5)
    assert cancelled.phase.closed_at_ms == T0


@pytest.mark.parametrize("session", [a_requested_session(), an_assigned_session(), an_ended_session()])
def test_recovery_of_a_session_that_is_not_live_only_settles_its_deadline(session):
    step = machine.recover(session, None, (), T0 + 6_000, LIMITS)
    assert (step.session, step.events, step.effects) == (session, (), ())
    late = machine.recover(session, None, (), T0 + 900_000, LIMITS)
    assert late.session.is_terminal
    assert bool(late.events) is not session.is_terminal


def test_an_assignment_of_an_older_row_opens_again_for_the_time_since_it_was_assigned():
    session = an_assigned_session(T0 + 40_000, wait_timeout_s=60)
    old = replace(session, phase=replace(session.phase, wait_left_ms=None))
    reopened = after(old, Tick(), T0 + 160_000)
    assert (reopened.state, machine.deadline_ms(reopened)) == (SessionState.REQUESTED, T0 + 180_000)


@pytest.mark.parametrize("kind", EventKind)
def test_only_the_end_sets_the_hash_of_the_end(kind):
    session, ((_, _, head),) = chain(a_requested_session(), [Event(kind, T0)])
    assert (session.head_hash, session.events) == (head, 1)
    assert session.ended_head_hash == (head if kind is EventKind.ENDED else None)


@pytest.mark.parametrize(
    ("count", "state"), [(99, SessionState.REQUESTED), (100, SessionState.EXPIRED), (150, SessionState.EXPIRED)]
)
def test_a_request_is_given_up_after_a_hundred_operators_or_more(count, state):
    session = an_assigned_session()
    many = tuple(f"operator-{number}" for number in range(count))
    session = replace(session, phase=replace(session.phase, unstarted_by=many))
    assert after(session, Tick(), T0 + 120_000).state is state


def test_a_picture_counts_from_the_start_on_and_a_later_one_moves_the_last():
    session = a_live_session()
    assert after(session, ConsumerActive(None, T0 - 1), T0 + 1_000).delivery is None
    told = ((5_000, 5_000, 0), (9_000, 9_000, 4_000), (2_000, 9_000, 4_000), (10_000, 10_000, 4_000))
    for at_ms, last_ms, gap_ms in told:
        session = after(session, ConsumerActive(CONSUMER, T0 + at_ms), T0 + 10_000)
        assert session.delivery == Delivery(T0 + 5_000, T0 + last_ms, gap_ms)
    # No picture has arrived later than now.
    assert after(session, ConsumerActive(None, T0 + 99_000), T0 + 11_000).delivery.last_at_ms == T0 + 11_000


def test_who_watches_and_is_not_the_consumer_changes_nothing():
    session = a_live_session(consumer_lease_s=10)
    step = machine.step(session, ConsumerActive("operator", T0 + 5_000), T0 + 5_000, LIMITS)
    assert step.session is session


def test_recovery_knows_the_pictures_of_the_row_and_of_the_checkpoint():
    session = after(a_live_session(), ConsumerActive(None, T0 + 2_000), T0 + 2_000)
    newer, older = Delivery(T0 + 2_000, T0 + 4_000, 2_000), session.delivery
    for row, stored in (
        (session, newer),
        (replace(session, delivery=newer), older),
        (replace(session, delivery=newer), None),
    ):
        media = MediaCheckpoint(proved_at_ms=T0 + 4_000, delivery=stored)
        assert machine.recover(row, media, (), T0 + 5_000, LIMITS).session.delivery == newer
