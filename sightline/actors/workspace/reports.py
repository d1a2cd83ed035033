"""Reports of heartbeats: how the workspace's actor judges, keeps and answers one."""

from collections.abc import Sequence
from typing import NamedTuple

from sightline.actors.deps import Limits
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.messages import ReportHeartbeat, ReportHeartbeats
from sightline.actors.types import Answer, BatchVerdict, HeartbeatReport, HeartbeatVerdict
from sightline.domain.geofence import DeviceKind, Fix
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.ports.store import Heartbeat, IdempotencyKey


class Writing(NamedTuple):
    """A report whose accepted heartbeats are on their way to the store."""

    envelope: Envelope
    heartbeats: tuple[Heartbeat, ...]
    verdicts: tuple[Refusal | None, ...]
    answer: Answer[Workspace] | Answer[BatchVerdict] | None
    """What is recorded with the heartbeats; None of a report without a key, which is answered when it is known."""

    @property
    def key(self) -> IdempotencyKey | None:
        """The key of the call."""
        key: IdempotencyKey | None = self.envelope.message.key
        return key


def judge(
    workspace: Workspace, report: HeartbeatReport, last_sequence: int, now_ms: int, limits: Limits
) -> Refusal | None:
    """Why a heartbeat is refused; None if it is accepted."""
    captured = report.captured_at_ms
    if captured is not None and captured > now_ms + limits.captured_ahead_ms:
        return Refusal(Code.INVALID_INPUT, "location:capturedAt", "capturedAt lies in the future")
    if report.sequence <= last_sequence:
        message = f"The sequence must be greater than the last accepted one, {last_sequence}"
        return Refusal(Code.CONFLICT, "location:sequence", message, last_sequence=last_sequence)
    if report.session_id is not None and report.session_id != workspace.live_session_id:
        message = "sessionId is not a LIVE session of this workspace"
        return Refusal(Code.INVALID_STATE, "location:session", message)
    return None


def heartbeat_of(workspace: Workspace, report: HeartbeatReport, now_ms: int, limits: Limits) -> Heartbeat:
    """An accepted report as it is recorded."""
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
        sequence=report.sequence,
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


def answer_of(
    message: ReportHeartbeat | ReportHeartbeats, verdicts: Sequence[Refusal | None], workspace: Workspace, now_ms: int
) -> Answer[Workspace] | Answer[BatchVerdict]:
    """The answer to a report: the workspace, and for a batch also a verdict on each heartbeat."""
    if isinstance(message, ReportHeartbeat):
        return Answer(workspace, now_ms)
    items = [
        HeartbeatVerdict(report.sequence, refusal) for report, refusal in zip(message.reports, verdicts, strict=True)
    ]
    return Answer(BatchVerdict(tuple(items), workspace), now_ms)
