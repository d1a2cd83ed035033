"""What one heartbeat or one media event adds to a LIVE session, at the edges of each rule."""

import json

import pytest

from sightline.domain.geofence import FenceLimits
from sightline.domain.metering import OPEN, PauseReason
from sightline.domain.session import codec, machine
from sightline.domain.session.messages import FixReported, MediaBroke, MediaProved
from sightline.domain.session.model import EndReason, MediaCheckpoint, SessionState
from sightline.domain.value import replace
from tests.domain.builders import LIMITS, T0, Film, a_fix, a_live_session

STEP_MS = 2_000


def seen(film):
    """The fence's part of what is known, with instants relative to T0."""
    evidence, where = film.live.evidence, film.live.location
    windows = [
        (window.from_ms - T0, None if window.to_ms == OPEN else window.to_ms - T0, window.opened_ms - T0)
        for window in evidence.fence_windows
    ]
    first = evidence.first_outside_ms
    return where.is_inside, where.outside_in_row, None if first is None else first - T0, windows


@pytest.mark.parametrize(("at_ms", "runs"), [(T0 - 1, ()), (T0, ((T0, T0),)), (T0 + 1, ((T0 + 1, T0 + 1),))])
def test_a_heartbeat_counts_from_the_millisecond_of_the_start(at_ms, runs):
    film = Film().tell(FixReported(a_fix(at_ms), 1), T0 + 5)
    assert film.live.evidence.presence.runs == runs
    assert film.live.location.last_sequence == (1 if runs else -1)


@pytest.mark.parametrize(("at_ms", "runs"), [(T0 - 1, ()), (T0, ((T0, T0),)), (T0 + 1, ((T0 + 1, T0 + 1),))])
def test_media_counts_from_the_millisecond_of_the_start(at_ms, runs):
    assert Film().tell(MediaProved(at_ms), T0 + 5).live.evidence.media.runs == runs
    assert Film().tell(MediaBroke(at_ms), T0 + 5).live.evidence.media.breaks == tuple(first for first, _ in runs)


def test_a_clean_gap_joins_heartbeats_to_one_run_and_leaves_media_apart():
    film = Film().fix(T0).media(T0).fix(T0 + 3_000).media(T0 + 3_000)
    assert film.live.evidence.presence.runs == ((T0, T0 + 3_000),)
    assert film.live.evidence.media.runs == ((T0, T0), (T0 + 3_000, T0 + 3_000))


def test_evidence_from_the_future_counts_as_of_now():
    film = Film().tell(FixReported(a_fix(T0 + 9_000), 1), T0 + 5_000).tell(MediaProved(T0 + 9_000), T0 + 5_000)
    assert film.live.evidence.presence.runs == film.live.evidence.media.runs == ((T0 + 5_000, T0 + 5_000),)


@pytest.mark.parametrize(("accuracy_m", "is_proved", "coarse"), [(99.9, True, 0), (100, True, 0), (100.1, False, 1)])
def test_a_fix_proves_presence_up_to_the_limit_of_accuracy(accuracy_m, is_proved, coarse):
    film = Film().fix(T0, accuracy_m=accuracy_m)
    assert (bool(film.live.evidence.presence.runs), film.live.location.coarse_in_row) == (is_proved, coarse)
    assert film.live.location.last_fix == a_fix(T0, accuracy_m=accuracy_m)


@pytest.mark.parametrize(
    ("between", "breaks"),
    [
        ({"is_fresh": False}, (T0 + 6_000,)),
        ({"is_proof": False}, ()),
        ({"accuracy_m": 5.0}, ()),
    ],
    ids=["late", "typed", "good"],
)
def test_what_comes_between_coarse_fixes_starts_their_count_anew_unless_it_is_late(between, breaks):
    film = Film()
    for second in range(1, 5):
        film.fix(T0 + second * 1_000, accuracy_m=101)
    film.fix(T0 + 5_000, **between)
    assert (film.live.location.last_sequence, film.live.location.last_fix.at_ms) == (5, T0 + 5_000)
    film.fix(T0 + 6_000, accuracy_m=101)
    assert film.live.evidence.presence.breaks == breaks
    assert film.live.location.coarse_in_row == (5 if breaks else 1)


def test_every_coarse_fix_after_the_fifth_keeps_the_first_break():
    film = Film()
    for second in range(1, 9):
        film.fix(T0 + second * 1_000, accuracy_m=101)
    assert film.live.evidence.presence.breaks == (T0 + 5_000,)


INSIDE, BETWEEN, OUTSIDE = 480, 520, 600
"""Metres from the centre of a fence of 500 m. The device is outside above 550 m and its accuracy of 5 m."""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([INSIDE], (True, 0, None, [])),
        ([BETWEEN], (None, 0, None, [])),
        ([OUTSIDE], (None, 1, 0, [])),
        ([INSIDE, OUTSIDE], (True, 1, 2_000, [])),
        ([INSIDE, OUTSIDE, BETWEEN], (True, 0, None, [])),
        ([INSIDE, OUTSIDE, INSIDE], (True, 0, None, [])),
        ([INSIDE, OUTSIDE, OUTSIDE], (False, 0, None, [(2_000, None, 4_000)])),
        ([INSIDE, OUTSIDE, OUTSIDE, OUTSIDE], (False, 0, None, [(2_000, None, 4_000)])),
        ([INSIDE, OUTSIDE, OUTSIDE, BETWEEN], (False, 0, None, [(2_000, None, 4_000)])),
        ([INSIDE, OUTSIDE, OUTSIDE, INSIDE], (True, 0, None, [(2_000, 6_000, 4_000)])),
        ([INSIDE, OUTSIDE, OUTSIDE, INSIDE, INSIDE], (True, 0, None, [(2_000, 6_000, 4_000)])),
        ([INSIDE, OUTSIDE, OUTSIDE, INSIDE, OUTSIDE], (True, 1, 8_000, [(2_000, 6_000, 4_000)])),
        (
            [INSIDE, OUTSIDE, OUTSIDE, INSIDE, OUTSIDE, OUTSIDE],
            (False, 0, None, [(2_000, 6_000, 4_000), (8_000, None, 10_000)]),
        ),
        (
            [INSIDE, OUTSIDE, OUTSIDE, INSIDE, OUTSIDE, OUTSIDE, INSIDE],
            (True, 0, None, [(2_000, 6_000, 4_000), (8_000, 12_000, 10_000)]),
        ),
    ],
)  # fmt: skip
def test_the_fence_after_each_path(path, expected):
    film = Film()
    for number, north_m in enumerate(path):
        film.fix(T0 + number * STEP_MS, north_m=north_m)
    assert seen(film) == expected


def test_an_exit_is_dated_to_the_first_of_any_number_of_fixes():
    film = Film(limits=replace(LIMITS, fence=FenceLimits(outside_fixes=3)))
    for number, north_m in enumerate([INSIDE, OUTSIDE, OUTSIDE]):
        film.fix(T0 + number * STEP_MS, north_m=north_m)
    assert seen(film) == (True, 2, 2_000, [])
    film.fix(T0 + 3 * STEP_MS, north_m=OUTSIDE)
    assert seen(film) == (False, 0, None, [(2_000, None, 6_000)])


def test_an_exit_reads_back_with_the_instant_at_which_it_was_settled():
    film = Film()
    for number, north_m in enumerate([INSIDE, OUTSIDE, OUTSIDE]):
        film.fix(T0 + number * STEP_MS, north_m=north_m)
    assert codec.from_doc(json.loads(json.dumps(codec.to_doc(film.session))), film.session.version) == film.session
    assert film.live.evidence.fence_windows[0].opened_ms == T0 + 4_000


def test_a_lower_number_of_fixes_counts_those_that_came_before_it_was_set():
    film = Film(limits=replace(LIMITS, fence=FenceLimits(outside_fixes=5)))
    for number, north_m in enumerate([INSIDE, OUTSIDE, OUTSIDE, OUTSIDE]):
        film.fix(T0 + number * STEP_MS, north_m=north_m)
    film.limits = LIMITS
    film.fix(T0 + 4 * STEP_MS, north_m=OUTSIDE)
    assert seen(film) == (False, 0, None, [(2_000, None, 8_000)])


def test_a_fix_that_is_too_far_to_be_true_proves_presence_and_leaves_the_fence_alone():
    film = Film().fix(T0, north_m=INSIDE).fix(T0 + STEP_MS, north_m=OUTSIDE)
    before = seen(film)
    film.fix(T0 + 2 * STEP_MS, north_m=90_000)
    assert seen(film) == before
    assert film.live.evidence.presence.runs == ((T0, T0 + 4_000),)
    assert film.live.location.last_fix.at_ms == T0 + 4_000


# Recovery.


def recovered(session, proved_at_ms, now_ms, heartbeats=()):
    media = None if proved_at_ms is None else MediaCheckpoint(proved_at_ms=proved_at_ms)
    return machine.recover(session, media, heartbeats, now_ms, LIMITS)


@pytest.mark.parametrize(
    ("proved_at_ms", "runs"),
    [
        (T0 - 1, ()),
        (T0, ()),
        (T0 + 1, ((T0, T0 + 1),)),
    ],
)
def test_a_checkpoint_of_media_counts_from_the_start_on(proved_at_ms, runs):
    step = recovered(a_live_session(), proved_at_ms, T0 + 5)
    assert step.session.phase.evidence.media.runs == runs


@pytest.mark.parametrize(
    ("proved_at_ms", "runs"),
    [
        (T0 + 1_999, ((T0, T0 + 2_000),)),
        (T0 + 2_000, ((T0, T0 + 2_000),)),
        (T0 + 2_001, ((T0, T0 + 2_001),)),
    ],
)
def test_a_checkpoint_extends_the_media_of_the_row_only_forwards(proved_at_ms, runs):
    film = Film().both(T0, T0 + 2_000)
    step = recovered(film.session, proved_at_ms, T0 + 3_000)
    assert step.session.phase.evidence.media.runs == runs


def test_a_checkpoint_after_a_stored_break_proves_only_itself():
    film = Film().both(T0, T0 + 2_000)
    broken = film.session.phase.evidence.media.lose(T0 + 2_500)
    session = replace(film.session, phase=replace(film.live, evidence=replace(film.live.evidence, media=broken)))
    step = recovered(session, T0 + 4_000, T0 + 4_000)
    assert step.session.phase.evidence.media.runs == ((T0, T0 + 2_000), (T0 + 4_000, T0 + 4_000))


@pytest.mark.parametrize(("proved_at_ms", "runs"), [(T0 - 1, ()), (T0, ((T0, T0),)), (T0 + 1, ((T0 + 1, T0 + 1),))])
def test_a_checkpoint_of_a_row_without_media_counts_from_the_start_on(proved_at_ms, runs):
    live = replace(a_live_session().phase, pause_reason=PauseReason.MEDIA_LOST)
    step = recovered(replace(a_live_session(), phase=live), proved_at_ms, T0 + 5)
    assert step.session.phase.evidence.media.runs == runs


def test_recovery_without_news_keeps_the_session_and_records_nothing():
    session = Film().both(T0, T0 + 2_000).session
    step = recovered(session, None, T0 + 3_000)
    assert (step.session, step.events, step.effects) == (session, (), ())


def test_a_stay_outside_that_lasts_a_minute_ends_the_session_from_the_first_fix():
    film = Film()
    for number in range(40):
        film.fix(T0 + number * STEP_MS, north_m=INSIDE if number == 0 else OUTSIDE)
        if film.session.state is not SessionState.LIVE:
            break
        film.media(T0 + number * STEP_MS)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms - T0) == (EndReason.GEOFENCE_EXIT, 62_000)
    assert [(each.from_ms - T0, each.to_ms - T0) for each in ended.windows] == [(2_000, 62_000)]
    assert ended.clean_seconds == 2
