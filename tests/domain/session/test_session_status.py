"""What each side sees of a session in every state, field by field."""

import pytest

from sightline.domain.metering import PauseReason, Window
from sightline.domain.session.messages import Assign, Cancel, End, MediaBroke, Party, SettlementMined, Tick
from sightline.domain.session.model import EndReason, MeterState, SessionState
from sightline.domain.session.status import MeterStatus, SessionStatus, meter_status, parties_of, session_status
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from tests.domain.builders import (
    CONSUMER,
    LIMITS,
    OPERATOR,
    T0,
    VIDEO,
    Film,
    a_copy,
    a_live_session,
    a_requested_session,
    after,
    an_operator,
    terms,
)

TERMS = terms(metadata_json="{}")


def status(session, at_ms, workspace_id=CONSUMER):
    return session_status(session, at_ms, LIMITS, a_copy(workspace_id))


def stories():
    requested = a_requested_session(metadata_json="{}")
    assigned = after(requested, Assign(an_operator()), T0 + 1_000)
    film = Film(a_live_session(T0 + 1_000, metadata_json="{}")).both(T0 + 1_000, T0 + 5_000)
    paused = Film(film.session).tell(MediaBroke(T0 + 5_500), T0 + 5_500)
    ended = after(film.session, End(Party.CONSUMER), T0 + 6_500)
    return {
        "requested": requested,
        "assigned": assigned,
        "live": film.session,
        "paused": paused.session,
        "ended": ended,
        "settled": after(ended, SettlementMined("0xabc"), T0 + 9_000),
        "cancelled": after(requested, Cancel(), T0 + 7_000),
        "left": after(assigned, End(Party.CONSUMER), T0 + 8_000),
        "expired": after(requested, Tick(), T0 + 300_000),
    }


STORIES = stories()
REQUESTED = SessionStatus(TERMS, SessionState.REQUESTED, T0 + 300_000, None, "{}")
ASSIGNED = SessionStatus(TERMS, SessionState.ASSIGNED, T0 + 121_000, OPERATOR, "{}", T0 + 1_000)
LIVE = SessionStatus(
    TERMS, SessionState.LIVE, T0 + 601_000, OPERATOR, "{}", T0 + 1_000, started_at_ms=T0 + 1_000,
    meter_state=MeterState.RUNNING, clean_seconds=4, video_ref=VIDEO.ref, whep_url=VIDEO.whep_url,
)  # fmt: skip
ENDED = SessionStatus(
    TERMS, SessionState.ENDED, None, OPERATOR, "{}", T0 + 1_000, started_at_ms=T0 + 1_000, ended_at_ms=T0 + 6_500,
    end_reason=EndReason.CONSUMER_ENDED, meter_state=MeterState.STOPPED, clean_seconds=5, charged=MicroUsdc(5_000),
    video_ref=VIDEO.ref,
)  # fmt: skip
CANCELLED = SessionStatus(
    TERMS, SessionState.CANCELLED, None, None, "{}", ended_at_ms=T0 + 7_000, end_reason=EndReason.CONSUMER_CANCELLED
)
EXPECTED = {
    "requested": REQUESTED,
    "assigned": ASSIGNED,
    "live": LIVE,
    "paused": replace(LIVE, meter_state=MeterState.PAUSED, pause_reason=PauseReason.MEDIA_LOST),
    "ended": ENDED,
    "settled": replace(ENDED, settlement_tx_hash="0xabc"),
    "cancelled": CANCELLED,
    "left": replace(
        CANCELLED, operator_workspace_id=OPERATOR, assigned_at_ms=T0 + 1_000, ended_at_ms=T0 + 8_000
    ),
    "expired": replace(
        CANCELLED, state=SessionState.EXPIRED, ended_at_ms=T0 + 300_000, end_reason=EndReason.WAIT_TIMEOUT
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_what_the_consumer_sees(name):
    at_ms = T0 + 5_500 if name in ("live", "paused") else T0 + 900_000
    seen = status(STORIES[name], at_ms)
    assert seen == replace(EXPECTED[name], terms=STORIES[name].terms)
    assert seen.terms.metadata_json == "{}"
    assert seen.charged == (5_000 if name in ("ended", "settled") else 0)


@pytest.mark.parametrize("name", ["requested", "assigned", "ended", "cancelled"])
def test_the_operator_sees_the_same_without_the_metadata(name):
    session = STORIES[name]
    expected = replace(EXPECTED[name], terms=session.terms, metadata_json=None)
    assert status(session, T0 + 900_000, OPERATOR) == expected


def test_the_meter_in_every_state():
    head = {
        name: {"head_hash": "", "rate": MicroUsdc(1_000), "hold": MicroUsdc(600_000), "session_id": TERMS.id}
        for name in STORIES
    }
    media_lost = Window(T0 + 5_500, None, PauseReason.MEDIA_LOST)
    live = {"started_at_ms": T0 + 1_000, "state": MeterState.RUNNING, "clean_seconds": 4}
    over = {
        "started_at_ms": T0 + 1_000, "ended_at_ms": T0 + 6_500, "state": MeterState.STOPPED, "clean_seconds": 5,
        "charged": MicroUsdc(5_000),
    }  # fmt: skip
    expected = {
        "requested": {},
        "assigned": {},
        "live": live,
        "paused": live | {"state": MeterState.PAUSED, "windows": (media_lost,)},
        "ended": over,
        "settled": over,
        "cancelled": {"ended_at_ms": T0 + 7_000},
        "left": {"ended_at_ms": T0 + 8_000},
        "expired": {"ended_at_ms": T0 + 300_000},
    }
    found = {name: meter_status(session, T0 + 5_500, LIMITS) for name, session in STORIES.items()}
    assert found == {name: MeterStatus(**(head[name] | fields)) for name, fields in expected.items()}
    assert (found["requested"].clean_seconds, found["requested"].charged, found["requested"].windows) == (0, 0, ())


def test_the_cost_so_far_grows_with_the_clean_seconds_and_ends_as_the_charge():
    film, shown = Film(a_live_session(max_duration_s=60, minimum_s=1)), [0]
    for at_ms in range(T0 + 500, T0 + 30_000, 500):
        if not T0 + 8_000 < at_ms < T0 + 19_000:
            film.both(at_ms, at_ms)
        seen = (status(film.session, at_ms), meter_status(film.session, at_ms, LIMITS))
        assert [each.charged for each in seen] == [0, 0]
        assert seen[0].accrued == seen[1].accrued == 1_000 * seen[0].clean_seconds
        assert shown[-1] <= seen[0].accrued <= seen[0].terms.hold
        shown.append(seen[0].accrued)
    assert shown[1] == 1_000  # the shortest charge, from the first proof on
    ended = after(film.session, End(Party.CONSUMER), T0 + 30_000)
    over = status(ended, T0 + 30_000)
    assert over.accrued == over.charged == meter_status(ended, T0 + 30_000, LIMITS).accrued
    assert over.accrued >= shown[-1] > 10_000


def test_the_sides_of_a_session_are_known_by_the_value_of_the_id():
    assert parties_of(STORIES["live"], a_copy(CONSUMER)) == {Party.CONSUMER}
    assert parties_of(STORIES["live"], a_copy(OPERATOR)) == {Party.OPERATOR}
    assert parties_of(STORIES["requested"], a_copy(OPERATOR)) == set()
    own = a_live_session(consumer_workspace_id=OPERATOR)
    assert parties_of(own, a_copy(OPERATOR)) == {Party.CONSUMER, Party.OPERATOR}


def test_no_text_of_a_session_shows_the_urls_of_its_video():
    live = STORIES["live"]
    for text in map(repr, (VIDEO, live, status(live, T0 + 5_500), status(live, T0 + 5_500, OPERATOR))):
        assert VIDEO.whip_url not in text
        assert VIDEO.whep_url not in text
