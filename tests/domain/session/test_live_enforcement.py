"""When a LIVE session pauses, resumes and ends by itself; every number is the default setting."""

import pytest

from sightline.domain.geofence import DeviceKind
from sightline.domain.metering import PauseReason, read_live
from sightline.domain.session import machine
from sightline.domain.session.messages import End, EventKind, MediaBroke, MediaProved, Party, Tick
from sightline.domain.session.model import EndReason, SessionState
from tests.domain.builders import LIMITS, METER, T0, Film, a_live_session, an_operator, media_until, taken


def paused(film, at_ms):
    film.tell(Tick(), at_ms)
    return film.live.pause_reason


def windows(film, at_ms):
    reading = read_live(film.live.evidence, at_ms, 600, METER)
    return [(window.from_ms - T0, window.to_ms and window.to_ms - T0, window.reason) for window in reading.windows]


# Freshness.


def test_a_session_that_has_proved_nothing_runs_unpaused_for_ten_seconds():
    film = Film()
    assert paused(film, T0 + 9_999) is None
    assert paused(film, T0 + 10_000) is PauseReason.LOCATION_STALE


def test_silence_of_ten_seconds_pauses_and_is_dated_back_to_the_last_proof_and_two_seconds():
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 20_000)
    assert windows(film, T0 + 20_000) == [(3_000, None, PauseReason.LOCATION_STALE)]
    kinds = [(event.kind, event.at_ms - T0) for event in film.events]
    assert kinds == [(EventKind.PAUSED, 11_000)]


def test_a_session_that_never_proved_presence_is_dirty_from_its_start():
    film = media_until(Film(), T0, T0 + 15_000)
    assert windows(film, T0 + 15_000) == [(0, None, PauseReason.LOCATION_STALE)]


def test_the_next_accepted_heartbeat_resumes():
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 20_000).fix(T0 + 20_000)
    assert film.live.pause_reason is None
    assert windows(film, T0 + 20_000) == [(3_000, 20_000, PauseReason.LOCATION_STALE)]
    assert film.events[-1].kind is EventKind.RESUMED


def test_a_heartbeat_captured_long_ago_does_not_refresh():
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 12_000)
    film.fix(T0 + 12_000, is_fresh=False)
    assert film.live.pause_reason is PauseReason.LOCATION_STALE


def test_a_heartbeat_that_was_taken_in_already_changes_nothing():
    film = Film().both(T0, T0 + 4_000)
    film.sequence -= 1
    before = film.session
    film.fix(T0 + 6_000, north_m=9_000)
    assert film.session == before


def test_five_fixes_in_a_row_over_a_hundred_metres_open_the_stale_window_at_once():
    film = media_until(Film().fix(T0), T0, T0 + 1_000)
    for second in range(1, 5):
        film.fix(T0 + second * 1_000, accuracy_m=101)
    assert film.live.pause_reason is None
    film.fix(T0 + 5_000, accuracy_m=101)
    assert film.live.pause_reason is PauseReason.LOCATION_STALE
    assert windows(film, T0 + 6_000) == [(2_000, None, PauseReason.LOCATION_STALE)]


def test_four_coarse_fixes_and_a_good_one_start_the_count_anew():
    film = Film().both(T0, T0)
    for _ in range(3):
        start = T0 + film.sequence * 500
        for step in range(4):
            film.fix(start + step * 500, accuracy_m=150).media(start + step * 500)
        film.fix(start + 2_000).media(start + 2_000)
    assert film.live.pause_reason is None


def test_a_coarse_fix_proves_nothing():
    film = media_until(Film(), T0, T0 + 9_000)
    for second in range(2, 10, 3):
        film.fix(T0 + second * 1_000, accuracy_m=101)
    assert paused(film, T0 + 10_000) is PauseReason.LOCATION_STALE


def test_a_typed_or_mocked_position_never_proves_presence():
    film = media_until(Film(), T0, T0 + 9_000)
    for second in range(1, 9, 4):
        film.fix(T0 + second * 1_000, is_proof=False)
    assert paused(film, T0 + 10_000) is PauseReason.LOCATION_STALE


def test_a_suspect_fix_keeps_presence_but_does_not_move_the_device():
    film = Film().both(T0, T0 + 4_000).both(T0 + 6_000, T0 + 8_000, north_m=90_000)
    assert film.live.pause_reason is None
    assert film.live.location.is_inside is True
    assert len(film.live.location.track.suspects) == 2


# Geofence.


def test_one_fix_outside_is_no_exit():
    film = Film().both(T0, T0 + 4_000).both(T0 + 6_000, T0 + 6_000, north_m=600)
    assert film.live.pause_reason is None


def test_two_fixes_in_a_row_outside_pause_and_are_dated_back_to_the_first():
    film = Film().both(T0, T0 + 4_000, north_m=480).both(T0 + 6_000, T0 + 8_000, north_m=600)
    assert film.live.pause_reason is PauseReason.GEOFENCE_EXIT
    assert windows(film, T0 + 8_000) == [(6_000, None, PauseReason.GEOFENCE_EXIT)]


def test_a_fix_between_the_rings_breaks_the_row_of_outside_fixes():
    film = Film().both(T0, T0 + 4_000, north_m=480)
    for at_ms, north_m in ((6_000, 600), (8_000, 520), (10_000, 600)):
        film.both(T0 + at_ms, T0 + at_ms, north_m=north_m)
    assert film.live.pause_reason is None


def test_a_fix_between_the_rings_does_not_end_an_exit_and_one_inside_does():
    film = Film().both(T0, T0 + 4_000, north_m=480).both(T0 + 6_000, T0 + 8_000, north_m=600)
    film.both(T0 + 10_000, T0 + 10_000, north_m=520)
    assert film.live.pause_reason is PauseReason.GEOFENCE_EXIT
    film.both(T0 + 12_000, T0 + 12_000, north_m=499)
    assert film.live.pause_reason is None
    assert windows(film, T0 + 12_000) == [(6_000, 12_000, PauseReason.GEOFENCE_EXIT)]


def test_a_mounted_camera_may_not_move():
    operator = an_operator(DeviceKind.PTZ)
    film = Film(a_live_session(operator=operator)).both(T0, T0 + 58_000)
    film.both(T0 + 60_000, T0 + 70_000, north_m=126)
    assert film.live.pause_reason is PauseReason.GEOFENCE_EXIT


# Media.


def test_a_disconnect_pauses_at_once():
    film = Film().both(T0, T0 + 4_000).fix(T0 + 5_000).tell(MediaBroke(T0 + 5_000), T0 + 5_500)
    assert film.live.pause_reason is PauseReason.MEDIA_LOST
    assert windows(film, T0 + 5_500) == [(5_000, None, PauseReason.MEDIA_LOST)]


def test_no_frame_for_ten_seconds_pauses_dated_back_to_the_last_frame_and_two_seconds():
    film = Film().both(T0, T0 + 4_000)
    for second in (6, 8, 10, 12):
        film.fix(T0 + second * 1_000)
    assert film.live.pause_reason is None
    film.fix(T0 + 14_000)
    assert windows(film, T0 + 14_000) == [(6_000, None, PauseReason.MEDIA_LOST)]


def test_the_next_frame_resumes():
    film = Film().both(T0, T0 + 4_000).tell(MediaBroke(T0 + 4_500), T0 + 4_500).fix(T0 + 6_000).media(T0 + 9_000)
    assert film.live.pause_reason is None
    assert windows(film, T0 + 9_000) == [(4_500, 9_000, PauseReason.MEDIA_LOST)]


# Pauses that end the session.


@pytest.mark.parametrize("looked_at_s", [63, 64, 120, 599, 700])
def test_sixty_seconds_in_one_pause_end_the_session_counted_from_the_dated_back_start(looked_at_s):
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 62_000)
    assert film.session.state is SessionState.LIVE
    film.tell(Tick(), T0 + looked_at_s * 1_000)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms - T0) == (EndReason.LOCATION_STALE, 63_000)
    assert ended.clean_seconds == 3


def test_a_call_in_the_sixtieth_second_of_a_pause_is_in_time_and_one_later_is_expired():
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 62_000)
    assert taken(machine.step(film.session, End(Party.CONSUMER), T0 + 62_999, LIMITS)).events
    assert machine.step(film.session, End(Party.CONSUMER), T0 + 63_000, LIMITS) is machine.EXPIRED


def test_pauses_of_a_hundred_and_eighty_seconds_in_all_end_the_session():
    film = Film(a_live_session(max_duration_s=3_600))
    start_s = 0
    for _ in range(3):  # 50 s each: 52 s of silence, two of them graced
        film.both(T0 + start_s * 1_000, T0 + (start_s + 10) * 1_000, every_ms=1_000)
        media_until(film, T0 + (start_s + 11) * 1_000, T0 + (start_s + 62) * 1_000)
        start_s += 62
    film.both(T0 + start_s * 1_000, T0 + (start_s + 10) * 1_000, every_ms=1_000)
    assert film.session.state is SessionState.LIVE
    media_until(film, T0 + (start_s + 11) * 1_000, T0 + (start_s + 60) * 1_000)
    ended = film.session.phase
    # 150 s were used; the fourth pause began at 186 + 10 + 2 s and may last 30 s.
    assert (ended.reason, ended.ended_at_ms - T0) == (EndReason.LOCATION_STALE, 228_000)


def test_overlapping_windows_make_one_pause():
    """Stale from 3 s to 40 s, media lost from 30 s on: one pause that began at 3 s."""
    film = media_until(Film().fix(T0 + 1_000), T0, T0 + 28_000)
    film.fix(T0 + 40_000).fix(T0 + 50_000)
    assert film.live.pause_reason is PauseReason.MEDIA_LOST
    film.tell(Tick(), T0 + 62_999)
    assert film.session.state is SessionState.LIVE
    film.tell(Tick(), T0 + 63_000)
    ended = film.session.phase
    assert (ended.reason, ended.ended_at_ms - T0) == (EndReason.MEDIA_LOST, 63_000)


# Late evidence.


def test_media_of_before_the_deadline_that_arrives_after_it_still_counts():
    film = Film()
    for second in range(1, 60, 2):
        film.fix(T0 + second * 1_000)
    assert film.live.pause_reason is PauseReason.MEDIA_LOST
    film.tell(MediaProved(T0 + 59_500), T0 + 60_400)
    assert film.session.state is SessionState.LIVE
    assert film.live.pause_reason is None


def test_media_of_after_the_deadline_does_not_bring_a_session_back():
    film = Film()
    for second in range(1, 60, 2):
        film.fix(T0 + second * 1_000)
    film.tell(MediaProved(T0 + 60_100), T0 + 60_400)
    assert (film.session.phase.reason, film.session.phase.ended_at_ms) == (EndReason.MEDIA_LOST, T0 + 60_000)


def test_late_media_never_dates_the_end_of_a_session_into_the_future():
    film = Film()
    for second in range(1, 60, 2):
        film.fix(T0 + second * 1_000)
    film.tell(MediaProved(T0 + 20_000), T0 + 90_000).tell(Tick(), T0 + 90_000)
    assert film.session.phase.ended_at_ms <= T0 + 90_000
