"""Judges, records and answers one report of heartbeats.

A recorded sequence is the reported one plus the workspace's `sequence_base`, so recorded sequences rise for ever,
through every reset.
"""

from collections.abc import Sequence
from typing import Final

from sightline.actors.deps import ActorLimits
from sightline.actors.types import BatchVerdict, HeartbeatReport, HeartbeatVerdict
from sightline.domain.geofence import DeviceKind, Fix
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.ports.store import Heartbeat

SEQUENCE_JUMP_MAX: Final = 2**31
"""One heartbeat cannot use up the numbers of those to come."""


def judge(
    workspace: Workspace, report: HeartbeatReport, last_recorded: int, now_ms: int, limits: ActorLimits
) -> Refusal | None:
    """Why a heartbeat is refused; None if it is accepted. `last_recorded` is the last accepted recorded sequence."""
    captured = report.captured_at_ms
    if captured is not None and captured > now_ms + limits.captured_ahead_ms:
        return Refusal(Code.INVALID_INPUT, "location:capturedAt", "capturedAt lies in the future")
    last_sequence = last_recorded - workspace.sequence_base
    if report.sequence <= last_sequence:
        message = f"The sequence must be greater than the last accepted one, {last_sequence}"
        return Refusal(Code.CONFLICT, "location:sequence", message, last_sequence=last_sequence)
    if last_sequence >= 0 and report.sequence - last_sequence > SEQUENCE_JUMP_MAX:
        message = f"The sequence may be at most 2^31 above the last accepted one, {last_sequence}"
        return Refusal(Code.INVALID_INPUT, "location:sequence", message, last_sequence=last_sequence)
    if report.session_id is not None and report.session_id != workspace.live_session_id:
        message = "sessionId is not a LIVE session of this workspace"
        return Refusal(Code.INVALID_STATE, "location:session", message)
    return None


def heartbeat_of(workspace: Workspace, report: HeartbeatReport, now_ms: int, limits: ActorLimits) -> Heartbeat:
    """The record of an accepted heartbeat."""
    captured = now_ms if report.captured_at_ms is None else report.captured_at_ms
    is_typed_or_mocked = report.source == "MANUAL" or report.is_mock is True
    fix = Fix(
        lat=report.lat,
        lng=report.lng,
        accuracy_m=report.accuracy_m,
        at_ms=now_ms,
        taken_at_ms=captured,
        is_proof=not is_typed_or_mocked or workspace.device_kind in {DeviceKind.FIXED, DeviceKind.PTZ},
    )
    return Heartbeat(
        workspace_id=workspace.id,
        sequence=workspace.sequence_base + report.sequence,
        fix=fix,
        is_fresh=now_ms - captured <= limits.captured_late_ms,
        session_id=report.session_id,
        heading_degrees=report.heading_degrees,
        speed_mps=report.speed_mps,
        altitude_m=report.altitude_m,
        battery_percent=report.battery_percent,
        source=report.source,
        is_mock=report.is_mock,
    )


def verdict_on(
    reports: Sequence[HeartbeatReport], refusals: Sequence[Refusal | None], workspace: Workspace
) -> BatchVerdict:
    """The verdict on each heartbeat of a batch, and the workspace after it."""
    items = [HeartbeatVerdict(report.sequence, refusal) for report, refusal in zip(reports, refusals, strict=True)]
    return BatchVerdict(tuple(items), workspace)
