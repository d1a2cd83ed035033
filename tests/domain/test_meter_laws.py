"""Laws of the meter, for any evidence."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.domain.metering import (
    OPEN,
    RUNS_MAX,
    Evidence,
    FenceWindow,
    PauseEnd,
    PauseReason,
    Signal,
    next_check_ms,
    open_pause,
    pause_end,
    pause_end_ms,
    read_final,
    read_live,
    windows_at,
)
from sightline.domain.value import replace
from tests.domain.builders import METER, T0

SPAN_MS = 120_000
instants = st.integers(0, SPAN_MS).map(lambda offset: T0 + offset)
proofs = st.lists(instants, max_size=20)
breaks = st.lists(instants, max_size=4)


@st.composite
def fences(draw):
    """Sorted disjoint fence windows, the last one maybe open."""
    edges = sorted(set(draw(st.lists(instants, max_size=6))))
    windows = [FenceWindow(edges[at], edges[at + 1], edges[at]) for at in range(0, len(edges) - 1, 2)]
    if len(edges) % 2:
        windows.append(FenceWindow(edges[-1], OPEN, edges[-1]))
    return tuple(windows)


def signal_of(facts):
    signal = Signal()
    for kind, at_ms in facts:
        signal = signal.prove(at_ms, METER) if kind == "proof" else signal.lose(at_ms)
    return signal


def facts_of(proved, broke):
    return [("proof", at_ms) for at_ms in proved] + [("break", at_ms) for at_ms in broke]


signals = st.builds(lambda proved, broke: signal_of(facts_of(sorted(proved), broke)), proofs, breaks)
evidences = st.builds(
    lambda presence, media, windows: Evidence(started_at_ms=T0, presence=presence, media=media, fence_windows=windows),
    signals,
    signals,
    fences(),
)


@given(evidences, instants, st.integers(1, 200))
def test_clean_seconds_are_within_the_session_and_its_maximum(evidence, at_ms, max_duration_s):
    at_ms = max(at_ms, evidence.newest_ms)
    for reading in (
        read_live(evidence, at_ms, max_duration_s, METER),
        read_final(evidence, at_ms, max_duration_s, METER),
    ):
        assert 0 <= reading.clean_seconds <= min(max_duration_s, (at_ms - T0) // 1000)


@given(evidences, instants, st.integers(1, 200))
def test_final_is_the_floor_of_time_less_the_union_of_the_windows(evidence, ended_at_ms, max_duration_s):
    reading = read_final(evidence, ended_at_ms, max_duration_s, METER)
    # Counted millisecond by edge, without the code's own union.
    edges = {T0, ended_at_ms}
    for window in reading.windows:
        edges |= {window.from_ms, ended_at_ms if window.to_ms is None else window.to_ms}
    dirty_ms = 0
    for start, end in itertools.pairwise(sorted(edge for edge in edges if T0 <= edge <= ended_at_ms)):
        inside = any(
            window.from_ms <= start and (window.to_ms is None or end <= window.to_ms) for window in reading.windows
        )
        dirty_ms += (end - start) * inside
    assert reading.clean_seconds == min(max_duration_s, (ended_at_ms - T0 - dirty_ms) // 1000)


@given(evidences, instants, st.integers(1, 200))
def test_what_was_shown_live_is_never_more_than_what_is_charged(evidence, at_ms, max_duration_s):
    at_ms = max(at_ms, evidence.newest_ms)
    live = read_live(evidence, at_ms, max_duration_s, METER)
    assert live.clean_seconds <= read_final(evidence, at_ms, max_duration_s, METER).clean_seconds


@given(evidences, instants)
def test_the_open_pause_of_the_hot_path_is_that_of_the_reading(evidence, at_ms):
    at_ms = max([at_ms, evidence.newest_ms, *(max(window) for window in evidence.fence_windows)])
    pause = read_live(evidence, at_ms, 10_000, METER).pause
    assert open_pause(evidence, at_ms, METER) == pause
    assert (pause_end_ms(evidence, at_ms, METER) is None) == (pause is None)


@given(evidences, instants)
def test_windows_lie_in_order_after_the_start_and_at_most_one_of_a_kind_is_open(evidence, at_ms):
    windows = windows_at(evidence, at_ms, METER)
    assert [window.from_ms for window in windows] == sorted(window.from_ms for window in windows)
    assert all(window.from_ms >= T0 for window in windows)
    opened = [window.reason for window in windows if window.to_ms is None]
    assert len(opened) == len(set(opened))


@given(proofs, st.randoms(use_true_random=False), instants)
def test_the_order_of_late_proofs_does_not_matter(proved, rng, at_ms):
    shuffled = rng.sample(proved, len(proved))
    in_order, late = (
        Evidence(started_at_ms=T0, media=signal_of(facts_of(facts, []))) for facts in (sorted(proved), shuffled)
    )
    assert read_final(late, at_ms, 10_000, METER) == read_final(in_order, at_ms, 10_000, METER)


def test_a_span_after_a_gap_is_a_run_of_its_own_and_one_without_a_gap_goes_on():
    apart = Signal().span(0, 5).span(9, 20)
    assert apart.runs == ((0, 5), (9, 20))
    assert apart.span(20, 30).runs == ((0, 5), (9, 30))


@given(signals, instants)
def test_a_break_told_after_a_newer_proof_is_ignored(signal, at_ms):
    if signal.last_proof_ms is not None and at_ms < signal.last_proof_ms:
        assert signal.lose(at_ms) is signal


@given(st.lists(st.tuples(st.sampled_from(["heartbeat", "media", "break", "look"]), instants), max_size=40))
def test_the_live_reading_never_runs_backwards_with_events_in_order(events):
    evidence, shown = Evidence(started_at_ms=T0), 0
    for kind, at_ms in sorted(events, key=lambda event: event[1]):
        presence, media = evidence.presence, evidence.media
        if kind == "heartbeat":
            presence = presence.prove(at_ms, METER, is_prompt=True)
        elif kind == "media":
            media = media.prove(at_ms, METER)
        elif kind == "break":
            media = media.lose(at_ms)
        for evidence in (evidence, Evidence(started_at_ms=T0, presence=presence, media=media)):  # noqa: B020
            reading = read_live(evidence, at_ms, 10_000, METER).clean_seconds
            assert reading >= shown
            shown = reading


@given(evidences, instants, st.sampled_from(["presence", "media"]), st.integers(0, 15_000))
def test_a_break_told_late_takes_nothing_back_that_was_shown_live(evidence, looked_at_ms, lost, behind_ms):
    """A look, then a break that was before it, of a signal that has proved nothing since that break."""
    newest_ms = max(evidence.presence.last_proof_ms or T0, evidence.media.last_proof_ms or T0)
    looked_at_ms = max(looked_at_ms, newest_ms)
    signal = getattr(evidence, lost)
    last_ms = signal.last_proof_ms
    broke_at_ms = max(looked_at_ms - behind_ms, T0 if last_ms is None else last_ms + 1)
    shown = read_live(evidence, looked_at_ms, 10_000, METER).clean_seconds
    told = replace(evidence, **{lost: signal.lose(broke_at_ms)})
    assert read_live(told, looked_at_ms, 10_000, METER).clean_seconds >= shown
    assert read_live(told, looked_at_ms + 20_000, 10_000, METER).clean_seconds >= shown
    assert read_final(told, looked_at_ms, 10_000, METER).clean_seconds >= shown


def test_a_live_reading_ends_at_the_last_proof_and_the_charge_has_the_grace():
    proved = Signal().prove(T0, METER).prove(T0 + 2_000, METER)
    evidence = Evidence(started_at_ms=T0, presence=proved, media=Signal(((T0, T0 + 30_000),)))
    assert read_live(evidence, T0 + 9_000, 10_000, METER).clean_seconds == 2
    assert read_live(evidence, T0 + 30_000, 10_000, METER).clean_seconds == 2
    assert read_final(evidence, T0 + 30_000, 10_000, METER).clean_seconds == 4


@given(proofs, instants)
def test_forgetting_quiet_gaps_of_a_prompt_signal_changes_no_reading(proved, at_ms):
    exact, folded = Signal(), Signal()
    for each in sorted(proved):
        exact, folded = exact.prove(each, METER), folded.prove(each, METER, is_prompt=True)
    readings = [
        read_final(Evidence(started_at_ms=T0, presence=signal), at_ms, 10_000, METER) for signal in (exact, folded)
    ]
    assert readings[0] == readings[1]


def test_a_prompt_signal_of_a_quiet_night_is_one_run():
    signal = Signal()
    for beat in range(7_000):
        signal = signal.prove(T0 + beat * 2_050, METER, is_prompt=True)
    assert signal.runs == ((T0, T0 + 6_999 * 2_050),)


def test_a_slow_camera_keeps_a_bounded_number_of_runs_and_the_same_meter():
    signal = Signal()
    for frame in range(1_000):
        signal = signal.prove(T0 + frame * 3_000, METER)
    assert len(signal.runs) == RUNS_MAX
    end_ms = T0 + 999 * 3_000
    assert (
        read_final(
            Evidence(started_at_ms=T0, media=signal, presence=Signal(((T0, end_ms),))), end_ms, 10_000, METER
        ).clean_seconds
        == 999 * 3
    )


def test_folding_never_closes_a_gap_that_is_dirty():
    signal = Signal().prove(T0, METER).prove(T0 + 30_000, METER)
    for frame in range(500):
        signal = signal.prove(T0 + 30_000 + frame * 3_000, METER)
    assert signal.runs[0] == (T0, T0)


@settings(max_examples=50)
@given(evidences, instants, instants)
def test_a_pause_ends_the_session_at_the_same_instant_whenever_it_is_looked_at(evidence, at_ms, later_ms):
    """Nothing new arrives: the pause that is open at one look is due at the same instant at a later one."""
    first, second = sorted((at_ms, later_ms))
    quiet = Evidence(
        started_at_ms=T0,
        presence=signal_of([("proof", run[1]) for run in evidence.presence.runs if run[1] < first]),
        media=Signal(((T0, T0 + SPAN_MS),)),
    )
    due_ms = pause_end_ms(quiet, first, METER)
    if due_ms is not None and first <= second:
        assert pause_end_ms(quiet, second, METER) == due_ms


def test_a_dropped_run_leaves_one_gap_with_its_first_break():
    """All gaps are dirty: the shortest run between the first and the last is dropped, and its gaps become one."""
    period, short = 100_000, 5

    def run(number):
        return T0 + number * period, T0 + number * period + (1_000 if number == short else 2_000)

    runs = tuple(run(number) for number in range(RUNS_MAX))
    begin, end = runs[short - 1][1], runs[short + 1][0]
    around = (T0 + 2 * period + 50_000, T0 + 8 * period + 50_000)
    last = T0 + RUNS_MAX * period
    for broke, kept in (
        ((begin, begin + 10), (begin,)),
        ((begin + 10, begin + 60_000), (begin + 10,)),
        ((end - 1,), (end - 1,)),
        ((end - 1, end), (end - 1, end)),
        ((begin - 1, end), (begin - 1, end)),
    ):
        signal = Signal(runs, tuple(sorted((*around, *broke)))).prove(last, METER)
        assert signal.runs == (*runs[:short], *runs[short + 1 :], (last, last))
        assert signal.breaks == tuple(sorted((*around, *kept)))


@pytest.mark.parametrize(
    ("runs", "at_ms", "from_ms"),
    [
        ((), 5_000, 0),
        (((1_000, 4_000),), 500, None),
        (((1_000, 4_000),), 2_000, None),
        (((1_000, 4_000),), 4_000, 6_000),
        (((1_000, 4_000),), 9_000, 6_000),
        (((1_000, 4_000), (13_999, 13_999)), 9_000, None),
        (((1_000, 4_000), (14_000, 14_000)), 9_000, 6_000),
        (((1_000, 4_000), (14_000, 14_000)), 14_000, 16_000),
        (((10_000, 10_000),), 5_000, 0),
        (((9_999, 9_999),), 5_000, None),
    ],
)
def test_from_where_on_nothing_proves_an_instant(runs, at_ms, from_ms):
    signal = Signal(tuple((T0 + first, T0 + last) for first, last in runs))
    expected = None if from_ms is None else T0 + from_ms
    assert signal.unproven_from_ms(T0, T0 + at_ms, METER) == expected


@pytest.mark.parametrize(
    ("runs", "breaks", "now_ms", "gap"),
    [
        ((), (), 9_999, None),
        ((), (), 10_000, (0, 10_000)),
        ((), (3_000,), 2_999, None),
        ((), (3_000,), 3_000, (0, 3_000)),
        (((0, 1_000),), (), 10_999, None),
        (((0, 1_000),), (), 11_000, (3_000, 11_000)),
        (((0, 1_000),), (1_500,), 1_499, None),
        (((0, 1_000),), (1_500,), 1_500, (1_500, 1_500)),
        (((0, 1_000),), (5_000,), 5_000, (3_000, 5_000)),
        (((0, 1_000), (20_000, 20_000)), (), 15_000, (3_000, 11_000)),
        (((0, 1_000), (20_000, 20_000)), (), 500, None),
        (((0, 1_000), (20_000, 20_000)), (), 20_000, None),
    ],
)
def test_the_open_gap_at_an_instant(runs, breaks, now_ms, gap):
    signal = Signal(tuple((T0 + first, T0 + last) for first, last in runs), tuple(T0 + each for each in breaks))
    found = signal.open_gap(T0, T0 + now_ms, METER)
    assert (found and (found.from_ms - T0, found.opened_ms - T0)) == gap


@pytest.mark.parametrize(
    ("presence", "media", "newest_ms"),
    [
        (Signal(), Signal(), 0),
        (Signal(((T0, T0 + 5),)), Signal(), 5),
        (Signal(), Signal(((T0, T0 + 6),)), 6),
        (Signal(((T0, T0 + 5),), (T0 + 9,)), Signal(((T0, T0 + 6),)), 9),
        (Signal(((T0, T0 + 5),), (T0 + 3,)), Signal(((T0, T0 + 4),), (T0 + 8,)), 8),
        (Signal(((T0, T0 + 9),)), Signal(((T0, T0 + 4),), (T0 + 8,)), 9),
    ],
)
def test_the_newest_instant_that_evidence_speaks_of(presence, media, newest_ms):
    assert Evidence(started_at_ms=T0, presence=presence, media=media).newest_ms == T0 + newest_ms


def looked_at(at_ms, *, presence=(), media=()):
    """When the meter is to be looked at next, in ms after the start."""
    told = Evidence(
        started_at_ms=T0,
        presence=signal_of([("proof", T0 + each) for each in presence]),
        media=signal_of([("proof", T0 + each) for each in media]),
    )
    return next_check_ms(told, T0 + at_ms, METER) - T0


def test_the_next_look_is_when_the_signal_that_is_silent_longer_has_been_silent_for_ten_seconds():
    assert looked_at(8_000, presence=[4_000], media=[7_000]) == 14_000
    assert looked_at(8_000, presence=[7_000], media=[4_000]) == 14_000
    assert looked_at(8_000, media=[7_000]) == 10_000
    assert looked_at(8_000) == 10_000


def test_while_paused_the_next_look_is_when_the_other_signal_falls_silent_or_the_pause_ends_the_session():
    assert looked_at(15_000, presence=[4_000], media=[14_500]) == 24_500
    assert looked_at(15_000, presence=[4_000], media=[5_000]) == 6_000 + METER.pause_max_ms
    assert looked_at(50_000, presence=[40_000], media=[49_000]) == 59_000


def test_a_break_after_the_newest_proof_keeps_the_earlier_of_two():
    signal = signal_of([("proof", T0), ("break", T0)])
    assert signal.lose(T0 + 2).breaks == (T0,)
    assert signal_of([("proof", T0), ("break", T0 + 5)]).lose(T0 + 2).breaks == (T0 + 2,)


@pytest.mark.parametrize("shortest", [1, RUNS_MAX - 1])
def test_the_shortest_run_is_dropped_wherever_it_is_between_the_first_and_the_last(shortest):
    period = 100_000
    runs = tuple(
        (T0 + number * period, T0 + number * period + (1_000 if number == shortest else 2_000))
        for number in range(RUNS_MAX)
    )
    last = T0 + RUNS_MAX * period
    expected = (*runs[:shortest], *runs[shortest + 1 :], (last, last))
    assert Signal(runs).prove(last, METER).runs == expected


def test_the_newest_gap_is_folded_if_it_is_the_only_clean_one():
    runs = tuple((T0 + number * 12_000, T0 + number * 12_000) for number in range(RUNS_MAX))
    newest = runs[-1][0] + 5_000
    assert Signal(runs).prove(newest, METER).runs == (*runs[:-1], (runs[-1][0], newest))


def test_a_pause_that_ended_the_session_is_known_at_its_limit_although_another_one_follows():
    told = Evidence(
        started_at_ms=T0,
        presence=signal_of([("proof", T0), ("proof", T0 + 100_000), ("proof", T0 + 130_000)]),
        media=Signal(((T0, T0 + 140_000),)),
    )
    limit_ms = T0 + METER.grace_ms + METER.pause_max_ms
    assert pause_end(told, T0 + 140_000, METER) == PauseEnd(limit_ms, limit_ms, PauseReason.LOCATION_STALE)


def test_a_pause_is_open_at_an_instant_of_the_past_although_a_proof_came_later():
    told = Evidence(
        started_at_ms=T0, presence=Signal(((T0, T0), (T0 + 40_000, T0 + 40_000))), media=Signal(((T0, T0 + 50_000),))
    )
    for at_ms in (T0 + 39_999, T0 + 25_000, T0 + 10_000):
        pause = open_pause(told, at_ms, METER)
        assert pause is not None
        assert pause.from_ms == T0 + METER.grace_ms
    assert open_pause(told, T0 + 9_999, METER) is None
    assert open_pause(told, T0 + 40_000, METER) is None


def test_a_proof_that_arrives_late_joins_the_run_whose_end_is_near():
    runs = ((T0, T0 + 9_000), (T0 + 30_000, T0 + 40_000))
    assert Signal(runs).prove(T0 + 10_000, METER).runs == ((T0, T0 + 10_000), runs[1])
    assert Signal(runs).prove(T0 + 12_000, METER).runs == (runs[0], (T0 + 12_000, T0 + 12_000), runs[1])
    three = (*runs, (T0 + 60_000, T0 + 61_000))
    assert Signal(three).prove(T0 + 41_000, METER).runs == (runs[0], (T0 + 30_000, T0 + 41_000), three[2])
