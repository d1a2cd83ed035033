"""The evidence of a LIVE session: what a heartbeat and a proof of media add to it. No state moves here."""

from dataclasses import replace
from typing import NamedTuple

from sightline.domain.geofence import Ring
from sightline.domain.metering import OPEN, Evidence, Interval
from sightline.domain.session.messages import FixReported, MediaBroke, MediaProved
from sightline.domain.session.model import Live, LocationState, Session, SessionLimits


def with_fix(phase: Live, message: FixReported, limits: SessionLimits) -> Live:
    """Take a heartbeat in: presence by receive time, the fence by the adopted position."""
    fix, where, evidence = message.fix, phase.location, phase.evidence
    if fix.at_ms < evidence.started_at_ms or message.sequence <= where.last_sequence:
        return phase
    if not message.is_fresh:
        return phase.with_proofs(evidence, replace(where, last_sequence=message.sequence, last_fix=fix))
    if not fix.is_proof or fix.accuracy_m > limits.fence.accuracy_max_m:
        return _with_coarse_fix(phase, message, limits)
    speed_mps = limits.fence.speed_limit_mps(where.device_kind)
    track = where.track.follow(fix, speed_mps, limits.fence.consistent_fixes)
    place = _Place(evidence.fence_windows, evidence.first_outside_ms, where.outside_in_row, where.is_inside)
    if track.adopted is fix:
        place = _follow_ring(place, where.fence.ring(fix, limits.fence), fix.at_ms, limits)
    # Made anew field by field, as is all that every heartbeat makes: `replace` takes several times as long.
    return phase.with_proofs(
        Evidence(
            started_at_ms=evidence.started_at_ms,
            presence=evidence.presence.prove(fix.at_ms, limits.meter, is_prompt=True),
            media=evidence.media,
            fence_windows=place.fence_windows,
            first_outside_ms=place.first_outside_ms,
        ),
        LocationState(
            fence=where.fence,
            device_kind=where.device_kind,
            track=track,
            is_inside=place.is_inside,
            outside_in_row=place.outside_in_row,
            coarse_in_row=0,
            last_fix=fix,
            last_sequence=message.sequence,
        ),
    )


def _with_coarse_fix(phase: Live, message: FixReported, limits: SessionLimits) -> Live:
    """A fix that proves nothing; enough of them in a row are as good as silence."""
    evidence, coarse = phase.evidence, phase.location.coarse_in_row + 1
    if coarse >= limits.fence.coarse_fixes:
        evidence, coarse = replace(evidence, presence=evidence.presence.lose(message.fix.at_ms)), 0
    where = replace(phase.location, coarse_in_row=coarse, last_fix=message.fix, last_sequence=message.sequence)
    return phase.with_proofs(evidence, where)


class _Place(NamedTuple):
    """What the fence knows of a device."""

    fence_windows: tuple[Interval, ...]
    first_outside_ms: int | None
    outside_in_row: int
    is_inside: bool | None


def _follow_ring(place: _Place, ring: Ring, at_ms: int, limits: SessionLimits) -> _Place:
    windows = place.fence_windows
    is_open = bool(windows) and windows[-1][1] == OPEN
    if ring is Ring.OUTSIDE:
        if is_open:
            return place
        outside = place.outside_in_row + 1
        first = at_ms if place.first_outside_ms is None else place.first_outside_ms
        if outside < limits.fence.outside_fixes:
            return _Place(windows, first, outside, place.is_inside)
        return _Place((*windows, (first, OPEN)), None, 0, is_inside=False)
    if ring is not Ring.INSIDE:
        return _Place(windows, None, 0, place.is_inside)
    if is_open:
        windows = (*windows[:-1], (windows[-1][0], at_ms))
    return _Place(windows, None, 0, is_inside=True)


def with_media(evidence: Evidence, message: MediaProved | MediaBroke, limits: SessionLimits) -> Evidence:
    """Take in that media came, or went away; of before the start it says nothing."""
    if message.at_ms < evidence.started_at_ms:
        return evidence
    media = evidence.media
    if isinstance(message, MediaProved):
        return evidence.with_media(media.prove(message.at_ms, limits.meter))
    return evidence.with_media(media.lose(message.at_ms))


def recover_media(session: Session, proved_at_ms: int, limits: SessionLimits) -> Session:
    """A LIVE session as stored, with a newer checkpoint of its media.

    Proofs between the row and the checkpoint were not kept one by one. While the row says RUNNING there was no
    silence between them, since that would have been recorded as a pause; while it says PAUSED nothing is assumed.
    """
    live = session.phase
    if not isinstance(live, Live) or proved_at_ms < live.started_at_ms:
        return session
    media = live.evidence.media
    since_ms = live.started_at_ms if media.last_proof_ms is None else media.last_proof_ms
    if live.pause_reason is not None:
        media = media.prove(proved_at_ms, limits.meter)
    elif proved_at_ms > since_ms:
        media = media.span(since_ms, proved_at_ms)
    return replace(session, phase=replace(live, evidence=replace(live.evidence, media=media)))
