"""Hand-written copies of frozen values keep every field that they do not change."""

from dataclasses import fields, replace

import pytest

from sightline.domain.geofence import DeviceKind
from sightline.domain.metering import Evidence, FenceWindow, PauseReason, Signal
from sightline.domain.session.model import Requested, SessionExtension
from sightline.domain.units import MicroUsdc
from tests.domain.builders import T0, Film, a_fix, a_workspace

EVIDENCE = Evidence(
    started_at_ms=T0,
    presence=Signal(((T0, T0 + 1),)),
    media=Signal(((T0, T0 + 2),)),
    fence_windows=(FenceWindow(T0, T0 + 3, T0 + 1),),
    first_outside_ms=T0 + 4,
)
FILM = Film().both(T0, T0 + 4_000)
LIVE = replace(FILM.live, pause_reason=PauseReason.MEDIA_LOST, consumer_seen_ms=T0 + 9, hold_tx_hash="0xef")
MORE = SessionExtension(id="e", seconds=1, amount=MicroUsdc(1))
SESSION = replace(
    FILM.session,
    version=7,
    head_hash="ab",
    events=3,
    ended_head_hash="cd",
    extensions=(MORE,),
    extending=MORE,
    ended_by="0xab",
)
LOCATION = replace(LIVE.location, last_fix=a_fix(T0 + 77), last_sequence=77)
WORKSPACE = a_workspace(
    sequence_base=3,
    device_kind=DeviceKind.DRONE,
    coverage_lat=1.0,
    coverage_lng=2.0,
    coverage_radius_m=3.0,
    unstarted_for=("c",),
    claims={"s": object()},
    deleted_at_ms=T0 + 5,
    version=9,
)

COPIES = {
    "Evidence.with_media": (EVIDENCE, EVIDENCE.with_media(Signal()), {"media": Signal()}),
    "Live.with_proofs": (
        LIVE,
        LIVE.with_proofs(EVIDENCE, LOCATION),
        {"evidence": EVIDENCE, "location": LOCATION},
    ),
    "Session.in_phase": (SESSION, SESSION.in_phase(Requested()), {"phase": Requested()}),
    "Workspace.seen": (
        WORKSPACE,
        WORKSPACE.seen(8, T0 + 6, (1.0, 2.0)),
        {"last_sequence": 8, "last_seen_at_ms": T0 + 6, "last_place": (1.0, 2.0)},
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_changes_only_what_it_says(name):
    original, copy, changed = COPIES[name]
    assert copy == replace(original, **changed)


@pytest.mark.parametrize("name", COPIES)
def test_every_other_field_of_the_original_differs_from_its_default(name):
    """Otherwise a copy that forgets a field would pass."""
    original, _, changed = COPIES[name]
    for field in fields(original):
        if field.name not in changed:
            assert getattr(original, field.name) != field.default, f"{field.name} is the default"
