"""What a heartbeat or a media event adds to the evidence of a LIVE session. No state changes here."""

from collections.abc import Sequence
from typing import NamedTuple

from sightline.domain.geofence import Ring
from sightline.domain.metering import OPEN, Evidence, FenceWindow, MeterLimits, PauseReason, Signal
from sightline.domain.session.messages import FixReported, MediaBroke, MediaProved
from sightline.domain.session.model import Live, SessionLimits
from sightline.domain.value import replace


def with_fix(phase: Live, message: FixReported, now_ms: int, limits: SessionLimits) -> Live:
    """Add a heartbeat: presence by the time it was received, the fence by the adopted position.

    A heartbeat from before the start, or one that was added already, changes nothing.
    """
    fix, where, evidence = message.fix, phase.location, phase.evidence
    at_ms = min(fix.at_ms, now_ms)
    if at_ms < evidence.started_at_ms or message.sequence <= where.last_sequence:
        return phase
    if not message.is_fresh:
        return replace(phase, evidence=evidence, location=replace(where, last_sequence=message.sequence, last_fix=fix))
    if fix.accuracy_m > limits.fence.accuracy_max_m:
        return _with_coarse_fix(phase, message, at_ms, limits)
    if not fix.is_proof:
        where = replace(where, coarse_in_row=0, last_sequence=message.sequence, last_fix=fix)
        return replace(phase, evidence=evidence, location=where)
    speed_mps = limits.fence.speed_limit_mps(where.device_kind)
    track = where.track.follow(fix, speed_mps, limits.fence.consistent_fixes)
    place = _Place(evidence.fence_windows, evidence.first_outside_ms, where.outside_in_row, where.is_inside)
    if track.adopted is fix:
        # Before the first position of a session, presence inside the fence is not proved.
        since_ms = at_ms if evidence.presence.runs else evidence.started_at_ms
        place = _follow_ring(place, where.fence.ring(fix, limits.fence), at_ms, since_ms, limits)
    presence = evidence.presence.prove(at_ms, limits.meter, is_prompt=True)
    windows, first_outside_ms = place.fence_windows, place.first_outside_ms
    return replace(
        phase,
        evidence=replace(evidence, presence=presence, fence_windows=windows, first_outside_ms=first_outside_ms),
        location=replace(
            where,
            track=track,
            is_inside=place.is_inside,
            outside_in_row=place.outside_in_row,
            coarse_in_row=0,
            last_fix=fix,
            last_sequence=message.sequence,
        ),
    )


def follows_missed(phase: Live, message: FixReported) -> bool:
    """Whether the heartbeat before this one was not reported to the session, although it was accepted while LIVE."""
    if message.previous is None or message.previous_at_ms is None:
        return False
    is_unknown = message.previous > phase.location.last_sequence
    return is_unknown and message.previous_at_ms >= phase.evidence.started_at_ms


def _with_coarse_fix(phase: Live, message: FixReported, at_ms: int, limits: SessionLimits) -> Live:
    """Add a fix that is too inaccurate to prove presence; several in a row end presence immediately."""
    evidence, coarse = phase.evidence, phase.location.coarse_in_row + 1
    if coarse >= limits.fence.coarse_fixes:
        evidence = replace(evidence, presence=evidence.presence.lose(at_ms))
    where = replace(phase.location, coarse_in_row=coarse, last_fix=message.fix, last_sequence=message.sequence)
    return replace(phase, evidence=evidence, location=where)


class _Place(NamedTuple):
    """What the fence knows about a device."""

    fence_windows: tuple[FenceWindow, ...]
    first_outside_ms: int | None
    outside_in_row: int
    is_inside: bool | None


def _follow_ring(place: _Place, ring: Ring, at_ms: int, since_ms: int, limits: SessionLimits) -> _Place:
    """Follow a fix into or out of the fence. `since_ms`: from when on the device is outside, if it is."""
    windows = place.fence_windows
    is_open = bool(windows) and windows[-1].to_ms == OPEN
    if ring is Ring.OUTSIDE:
        if is_open:
            return place
        outside = place.outside_in_row + 1
        first = since_ms if place.first_outside_ms is None else place.first_outside_ms
        if outside < limits.fence.outside_fixes:
            return _Place(windows, first, outside, place.is_inside)
        return _Place((*windows, FenceWindow(first, OPEN, at_ms)), None, 0, is_inside=False)
    if ring is not Ring.INSIDE:
        return _Place(windows, None, 0, place.is_inside)
    if is_open:
        windows = (*windows[:-1], windows[-1]._replace(to_ms=at_ms))
    return _Place(windows, None, 0, is_inside=True)


def with_media(evidence: Evidence, message: MediaProved | MediaBroke, now_ms: int, limits: SessionLimits) -> Evidence:
    """Add a proof or a loss of media. One from before the start is ignored; one from the future counts as of now."""
    at_ms = min(message.at_ms, now_ms)
    if at_ms < evidence.started_at_ms:
        return evidence
    media = evidence.media
    if isinstance(message, MediaProved):
        return replace(evidence, media=media.prove(at_ms, limits.meter))
    return replace(evidence, media=media.lose(at_ms))


def has_new_gap(before: Evidence, after: Evidence, limits: MeterLimits) -> bool:
    """Whether a media event opened a gap by a break, or closed a dirty one."""
    known, media = before.media, after.media
    if media.breaks != known.breaks:
        return True
    last, newest = known.last_proof_ms, media.last_proof_ms
    return newest is not None and newest != last and known.gap(before.started_at_ms, last, newest, limits) is not None


def recovered(
    live: Live, media_proved_at_ms: int | None, heartbeats: Sequence[FixReported], limits: SessionLimits
) -> Live:
    """Add what was recorded after the session's row was written: its heartbeats and the newest checkpoint of media."""
    for message in heartbeats:
        live = with_fix(live, message, message.fix.at_ms, limits)
    if media_proved_at_ms is None or media_proved_at_ms < live.started_at_ms:
        return live
    return replace(live, evidence=replace(live.evidence, media=_recovered_media(live, media_proved_at_ms, limits)))


def _recovered_media(live: Live, proved_at_ms: int, limits: SessionLimits) -> Signal:
    """Return the media signal of a stored row with a newer checkpoint.

    Proofs between the row and the checkpoint were not stored one by one, and there was no dirty gap between them: a row
    is written when one opens by a break and when one closes (ADR 0261). After a gap only the checkpoint itself counts.
    A checkpoint that the row knows is not proved again: a break of the same millisecond came after it.
    """
    media = live.evidence.media
    if media.last_proof_ms is not None and proved_at_ms <= media.last_proof_ms:
        return media
    since_ms = live.started_at_ms if media.last_proof_ms is None else media.last_proof_ms
    if live.pause_reason is PauseReason.MEDIA_LOST or media.first_break(since_ms, proved_at_ms) is not None:
        return media.prove(proved_at_ms, limits.meter)
    return media.span(since_ms, proved_at_ms) if proved_at_ms > since_ms else media
