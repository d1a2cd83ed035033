"""What is charged: only what was proved, for every order of events, as an independent meter confirms."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sightline.domain.metering import RUNS_MAX, Evidence, MeterLimits, PauseReason, Signal, read_final, union
from sightline.domain.session import codec, machine
from sightline.domain.session.messages import End, EventKind, MediaBroke, MediaProved, Party, Tick
from sightline.domain.session.model import Ended, EndReason, SessionState
from sightline.domain.value import replace
from tests.domain import histories, oracle
from tests.domain.builders import LIMITS, T0, Film, a_live_session, after, media_until

BY_PAUSES = {EndReason(reason.value) for reason in PauseReason}
seeds = st.integers(0, 2**63)


def hung_up(film, at_ms):
    return after(film.session, End(Party.CONSUMER), at_ms).phase


def spans(ended):
    return [(start - T0, end - T0) for start, end in union(ended.windows, ended.ended_at_ms)]


# The oracle.


@pytest.mark.parametrize("block", range(4))
def test_the_meter_agrees_with_one_written_from_the_specification_alone(block):
    found = [found for seed in range(block * 500, block * 500 + 500) if (found := histories.difference(seed))]
    assert not found, found[0]


@settings(deadline=None)
@given(seeds)
def test_the_windows_at_the_end_justify_an_end_by_pauses(seed):
    ended = histories.Player(histories.draw(seed)).play().session.phase
    assert isinstance(ended, Ended)
    assert all(window.from_ms < window.to_ms <= ended.ended_at_ms for window in ended.windows)
    if ended.reason not in BY_PAUSES:
        return
    lengths = [end - start for start, end in union(ended.windows, ended.ended_at_ms)]
    assert max(lengths) >= 60_000 or sum(lengths) >= 180_000
    assert ended.reason in {
        EndReason(window.reason.value) for window in ended.windows if window.to_ms == ended.ended_at_ms
    }


@settings(deadline=None)
@given(seeds)
@example(5_755)
@example(106_283)
@example(4_402_611_206_539_716)  # disconnects during pauses for the position
@example(5_557_346_381_125_126)
@example(7_107_608_407_635_701)  # a disconnect that is told after newer media
def test_a_crash_at_any_moment_charges_nothing_that_was_not_proved(seed):
    player = histories.Player(histories.draw(seed, crashes=True)).play()
    ended = player.session.phase
    assert isinstance(ended, Ended)
    told = player.judged
    if told[-1].at == ended.ended_at_ms:
        told = told[:-1]  # the session ended at this instant, before it was told
    facts: list[oracle.Fact] = []
    for fact in told:
        if isinstance(fact, oracle.Fix | oracle.Media) and not oracle.is_told_too_late(facts, fact):
            facts = sorted([*facts, fact], key=lambda each: each.at)
    terms = oracle.Terms(T0, player.history.max_duration_s * 1_000, minimum_s=player.history.minimum_s)
    newest = max([ended.ended_at_ms, *(fact.at for fact in facts)])
    shown = [window for window in oracle.windows_at(terms, facts, newest) if window.known_at <= ended.ended_at_ms]
    dirty = [window.until(ended.ended_at_ms) for window in shown]
    dirty += oracle.unproven_tail(terms, facts, ended.ended_at_ms)
    assert ended.clean_seconds <= oracle.clean_seconds(terms, dirty, ended.ended_at_ms)


# Ends by pauses.


def test_an_end_by_pauses_in_all_shows_the_window_that_reached_the_limit():
    """A heartbeat every 45 s and media all the time: the fifth window had not opened when the limit was reached."""
    film = Film(a_live_session(max_duration_s=3_600))
    for second in range(200):
        if second % 45 == 0:
            film.fix(T0 + second * 1_000)
        film.media(T0 + second * 1_000)
        if film.session.is_terminal:
            break
    ended = film.session.phase
    assert ended.reason is EndReason.LOCATION_STALE
    assert sum(end - start for start, end in spans(ended)) == 180_000
    assert spans(ended)[-1] == (182_000, 190_000)
    assert ended.clean_seconds == 10


def test_a_pause_that_two_reasons_make_ends_for_the_one_that_lasts():
    """One frame at 54.0 s, heartbeats from 57.9 s on: 60 s of pause at 60.0 s, known at 64.0 s."""
    film = Film().media(T0 + 54_000)
    for at_ms in range(57_900, 64_000, 2_000):
        film.fix(T0 + at_ms)
    film.tell(Tick(), T0 + 64_000)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms - T0, ended.clean_seconds) == (EndReason.MEDIA_LOST, 60_000, 0)
    assert spans(ended) == [(0, 60_000)]


def test_a_second_fix_outside_that_dates_the_pause_back_over_its_limit_ends_the_session_at_once():
    film = Film(a_live_session(max_duration_s=3_600))
    for start_s in (0, 60, 120):
        film.both(T0 + start_s * 1_000, T0 + (start_s + 2) * 1_000)
        media_until(film, T0 + (start_s + 3) * 1_000, T0 + (start_s + 59) * 1_000)
    # 168 s of pauses until here; at the edge of the fence, so that the next fixes are no jump.
    film.both(T0 + 180_000, T0 + 186_000, north_m=490.0).both(T0 + 188_000, T0 + 188_000, north_m=600.0)
    film.both(T0 + 190_000, T0 + 196_000, every_ms=1_000, north_m=600.0)
    film.both(T0 + 197_000, T0 + 202_000, every_ms=1_000, north_m=600.0)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms - T0) == (EndReason.GEOFENCE_EXIT, 200_000)


# Charge up to proof.


def test_a_session_without_any_proof_is_charged_nothing_however_short_it_was():
    for at_ms in (1_000, 5_000, 9_999):
        ended = hung_up(Film(), T0 + at_ms)
        assert (ended.clean_seconds, ended.charged, spans(ended)) == (0, 0, [(0, at_ms)])


def test_a_session_without_media_is_charged_nothing():
    film = Film()
    for at_ms in range(0, 9_000, 2_000):
        film.fix(T0 + at_ms)
    assert hung_up(film, T0 + 9_500).charged == 0


INSIDE_M, OUTSIDE_M = 480, 570


@pytest.mark.parametrize(
    ("fixes", "ended_ms"), [([OUTSIDE_M], 2_500), ([OUTSIDE_M] * 2, 4_000), ([OUTSIDE_M] * 9, 20_000)]
)
def test_a_session_whose_operator_was_never_inside_is_charged_nothing(fixes, ended_ms):
    session = a_live_session()
    film = Film(replace(session, terms=replace(session.terms, minimum_s=10)))
    for number, north_m in enumerate(fixes):
        film.fix(T0 + 700 + number * 2_000, north_m=north_m).media(T0 + 700 + number * 2_000)
    ended = hung_up(film, T0 + ended_ms)
    assert (ended.clean_seconds, ended.charged) == (0, 0)
    assert {(window.from_ms, window.reason) for window in ended.windows} >= {(T0, PauseReason.GEOFENCE_EXIT)}


def test_an_operator_that_comes_in_is_charged_from_then_on():
    film = Film()
    for at_ms, north_m in ((700, OUTSIDE_M), (2_700, OUTSIDE_M), (4_700, INSIDE_M), (6_700, INSIDE_M)):
        film.fix(T0 + at_ms, north_m=north_m).media(T0 + at_ms)
    ended = hung_up(film, T0 + 7_700)
    assert (spans(ended), ended.clean_seconds) == ([(0, 4_700)], 3)


def test_one_wrong_first_position_takes_nothing_away():
    film = Film()
    for at_ms, north_m in ((700, OUTSIDE_M), (2_700, INSIDE_M), (4_700, INSIDE_M)):
        film.fix(T0 + at_ms, north_m=north_m).media(T0 + at_ms)
    ended = hung_up(film, T0 + 5_000)
    assert (spans(ended), ended.clean_seconds) == ([], 5)


def test_time_after_the_last_proof_and_two_seconds_is_not_charged_at_the_end():
    """Proof stops at 10.0 s and the end is at 19.999 s, before the silence is complete."""
    ended = hung_up(Film().both(T0, T0 + 10_000), T0 + 19_999)
    assert (ended.clean_seconds, spans(ended)) == (12, [(12_000, 19_999)])


def test_the_maximum_duration_charges_up_to_proof_as_well():
    film = Film(a_live_session(max_duration_s=30)).both(T0, T0 + 24_000).tell(Tick(), T0 + 31_000)
    assert (film.session.phase.reason, film.session.phase.clean_seconds) == (EndReason.MAX_DURATION, 26)


# Breaks.


def test_a_publisher_that_reconnects_is_not_charged_for_the_time_between():
    """Connected for a second, away for a second, nine times: the 9 s without a publisher are not clean."""
    film = Film()
    for second in range(0, 18, 2):
        film.fix(T0 + second * 1_000).media(T0 + second * 1_000)
        film.media(T0 + second * 1_000 + 1_000).tell(
            MediaBroke(T0 + second * 1_000 + 1_000), T0 + second * 1_000 + 1_000
        )
    ended = hung_up(film.fix(T0 + 18_000).media(T0 + 18_000), T0 + 18_500)
    assert ended.clean_seconds == 9


def test_a_break_and_a_proof_of_one_millisecond_count_in_the_order_they_were_told():
    reconnected = Film().both(T0, T0 + 2_000).fix(T0 + 10_000)
    reconnected.tell(MediaBroke(T0 + 10_000), T0 + 10_000).media(T0 + 10_000)
    assert reconnected.live.pause_reason is None
    assert hung_up(reconnected.both(T0 + 19_000, T0 + 19_000), T0 + 19_500).clean_seconds == 19
    lost = Film().both(T0, T0 + 10_000).tell(MediaBroke(T0 + 10_000), T0 + 10_000)
    assert lost.live.pause_reason is PauseReason.MEDIA_LOST
    assert hung_up(lost.both(T0 + 19_000, T0 + 19_000), T0 + 19_500).clean_seconds == 10


def test_a_publisher_that_flaps_all_day_keeps_a_bounded_number_of_runs():
    signal, limits = Signal(), MeterLimits()
    for flap in range(2_000):
        signal = signal.prove(T0 + flap * 1_000, limits).prove(T0 + flap * 1_000 + 900 + flap % 7, limits)
        signal = signal.lose(T0 + flap * 1_000 + 900 + flap % 7)
    assert len(signal.runs) <= RUNS_MAX
    assert len(signal.breaks) <= RUNS_MAX
    evidence = Evidence(started_at_ms=T0, presence=Signal(((T0, T0 + 2_000_000),)), media=signal)
    assert read_final(evidence, T0 + 2_000_000, 14_400, limits).clean_seconds <= 1_806


# Gaps that no timer noticed.


def test_a_gap_that_a_frame_closes_before_the_timer_is_recorded():
    film = Film().both(T0, T0 + 20_000)
    for at_ms in range(22_000, 31_000, 2_000):
        film.fix(T0 + at_ms)
    film.media(T0 + 30_001)
    assert [event.kind for event in film.events] == [EventKind.PAUSED, EventKind.RESUMED]
    assert film.stored.phase.evidence == film.live.evidence


# Evidence that is handled late.


def test_a_heartbeat_received_before_the_deadline_and_handled_after_it_counts():
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 62_000)
    film.sequence += 1
    film.tell(histories.message_of(oracle.Fix(T0 + 62_999, 0.0, 5.0), film.sequence), T0 + 63_400)
    assert film.session.state is SessionState.LIVE
    assert film.live.pause_reason is None


def test_media_from_the_future_counts_as_of_now():
    film = Film().both(T0, T0 + 2_000).tell(MediaProved(T0 + 300_000), T0 + 3_000)
    assert film.live.evidence.media.last_proof_ms == T0 + 3_000


# A wall clock that steps back.


@pytest.mark.parametrize("back_ms", [1, 1_000, 3_600_000])
def test_a_wall_clock_that_steps_back_takes_no_time_and_no_charge_away(back_ms):
    film = Film().both(T0, T0 + 20_000)
    stepped_ms = T0 + 20_000 - back_ms
    film.fix(stepped_ms).tell(MediaProved(stepped_ms), stepped_ms).tell(Tick(), stepped_ms)
    assert film.session.state is SessionState.LIVE
    ended = hung_up(film, stepped_ms)
    assert (ended.ended_at_ms, ended.clean_seconds, ended.charged) == (T0 + 20_000, 20, 20_000)


@given(st.lists(st.tuples(st.integers(-3_600_000, 3_600_000), st.sampled_from("fmbt")), max_size=30))
def test_no_step_of_the_wall_clock_ends_a_session_before_its_newest_proof(told):
    film = Film().both(T0, T0 + 4_000)
    for offset, kind in told:
        if film.session.is_terminal:
            break
        at_ms = T0 + offset
        if kind == "f":
            film.fix(at_ms)
        else:
            film.tell({"m": MediaProved(at_ms), "b": MediaBroke(at_ms), "t": Tick()}[kind], at_ms)
    if film.session.is_terminal:
        assert film.session.phase.ended_at_ms >= T0 + 4_000
        return
    evidence = film.live.evidence
    newest_ms = max(evidence.presence.last_proof_ms, evidence.media.last_proof_ms)
    step = machine.step(film.session, End(Party.CONSUMER), T0 - 3_600_000, LIMITS)
    assert step.session.phase.ended_at_ms >= newest_ms >= T0 + 4_000


def test_a_fence_window_stored_without_its_opening_still_reads():
    film = Film().both(T0, T0 + 4_000, north_m=480).both(T0 + 6_000, T0 + 8_000, north_m=600)
    doc = json.loads(json.dumps(codec.to_doc(film.session)))
    doc["phase"]["evidence"]["fence_windows"] = [row[:2] for row in doc["phase"]["evidence"]["fence_windows"]]
    (window,) = codec.from_doc(doc, 1).phase.evidence.fence_windows
    assert window == replace_opening(film.live.evidence.fence_windows[0])


def replace_opening(window):
    return window._replace(opened_ms=window.from_ms)


# The shortest charge.


@pytest.mark.parametrize(
    ("minimum_s", "ended_ms", "charged_s"),
    [(0, 600, 0), (1, 600, 1), (1, 1, 1), (1, 0, 0), (1, 1_600, 1), (1, 2_600, 2), (10, 600, 1), (10, 2_600, 3)],
)
def test_a_session_with_one_proof_counts_its_minimum_and_never_more_than_its_duration_rounded_up(
    minimum_s, ended_ms, charged_s
):
    film = Film(a_live_session(minimum_s=minimum_s))
    film.fix(T0)
    film.tell(MediaProved(T0), T0)
    assert hung_up(film, T0 + ended_ms).clean_seconds == charged_s


@pytest.mark.parametrize("signal", ["nothing", "position", "video", "outside"])
def test_the_minimum_is_not_charged_without_position_and_video_together(signal):
    film = Film(a_live_session(minimum_s=10))
    if signal in {"position", "outside"}:
        film.fix(T0, north_m=0 if signal == "position" else 5_000)
        film.fix(T0 + 100, north_m=0 if signal == "position" else 5_000)
    if signal in {"video", "outside"}:
        film.tell(MediaProved(T0), T0)
    ended = hung_up(film, T0 + 900)
    assert (ended.clean_seconds, ended.charged) == (0, 0)


def test_position_and_video_that_were_never_proved_at_the_same_time_are_not_charged():
    film = Film(a_live_session(minimum_s=10))
    film.fix(T0)
    film.tell(MediaProved(T0 + 15_000), T0 + 15_000)
    assert hung_up(film, T0 + 16_000).clean_seconds == 0
