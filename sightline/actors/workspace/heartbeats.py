"""Handles reported heartbeats of one workspace: judges, writes, acknowledges, and forwards them to the LIVE session.

One turn of the workspace actor handles every report that waits in its mailbox with one write. The turn waits for the
write, so heartbeats of one workspace are written by one writer at a time and acknowledged in order.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from sightline.actors.answers import record_of
from sightline.actors.deps import DISPATCHER, SESSION, Deps
from sightline.actors.kernel import Context, Envelope, Lane, OverloadedError, ReloadRequestedError
from sightline.actors.messages import (
    HeartbeatResumed,
    OperatorAcknowledged,
    ReportHeartbeat,
    ReportHeartbeats,
    WorkspaceMessage,
)
from sightline.actors.shards import DISPATCHER_ID
from sightline.actors.types import Answer, BatchVerdict
from sightline.actors.workspace.heartbeat_writer import HeartbeatWriter
from sightline.actors.workspace.reports import heartbeat_of, judge, verdict_on
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.messages import FixReported
from sightline.domain.value import Value
from sightline.ports.store import IN_PROGRESS, Heartbeat, HeartbeatWrite, IdempotencyKey, IdempotencyRecord, ShardLease

NOT_SUPPLIER: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:notSupplier", "The workspace is not a SUPPLIER")


@final
class Judged(Value):
    """A report, its accepted heartbeats and its answer."""

    envelope: Envelope[WorkspaceMessage]
    key: IdempotencyKey | None
    heartbeats: tuple[Heartbeat, ...]
    workspace: Workspace
    """The workspace after the accepted heartbeats."""
    answer: Answer[Workspace] | Answer[BatchVerdict]
    reply: Callable[[], None]
    """Gives the answer to the asker."""


@final
class HeartbeatIntake:
    """Handles the reports of one workspace."""

    __slots__ = ("_context", "_deps", "_writer")

    def __init__(self, context: Context[WorkspaceMessage], deps: Deps, writer: HeartbeatWriter) -> None:
        self._context = context
        self._deps = deps
        self._writer = writer

    async def take(self, envelope: Envelope[WorkspaceMessage], workspace: Workspace, lease: ShardLease) -> Workspace:
        """Handle a report and the reports that wait behind it; returns the workspace with the newest heartbeat.

        Raises:
            ReloadRequestedError: The write failed and its outcome may be unknown; the askers have been answered.
        """
        reports = (envelope, *self._context.take_following(_is_report))
        before, accepted = workspace, list[Judged]()
        keys: set[IdempotencyKey] = set()
        now_ms = self._context.clock.now_ms()
        for each in reports:
            message = each.message
            assert isinstance(message, ReportHeartbeat | ReportHeartbeats)
            try:
                if message.key in keys:
                    raise RefusedError(IN_PROGRESS)
                judged = self._judge(each, message, workspace, now_ms)
                if not judged.heartbeats:
                    await self._answer_refused(judged)
                    continue
            except RefusedError as refused:
                each.fail(refused)
                continue
            accepted.append(judged)
            if message.key is not None:
                keys.add(message.key)
            workspace = judged.workspace
        if accepted:
            try:
                await self._write(accepted, lease)
            except OverloadedError as error:
                _fail(accepted, error)
                return before
            self._forward(accepted, before, now_ms)
        for report in accepted:
            report.reply()
        return workspace

    def _judge(
        self,
        envelope: Envelope[WorkspaceMessage],
        message: ReportHeartbeat | ReportHeartbeats,
        workspace: Workspace,
        now_ms: int,
    ) -> Judged:
        """Judge each heartbeat of a report.

        Raises:
            RefusedError: The report has one heartbeat and it is refused, or the workspace is not a SUPPLIER.
        """
        if not workspace.is_supplier:
            raise RefusedError(NOT_SUPPLIER)
        limits, last = self._deps.limits, workspace.last_sequence
        heartbeats: list[Heartbeat] = []
        verdicts: list[Refusal | None] = []
        for report in (message.report,) if isinstance(message, ReportHeartbeat) else message.reports:
            refusal = judge(workspace, report, last, now_ms, limits)
            verdicts.append(refusal)
            if refusal is None:
                heartbeats.append(heartbeat_of(workspace, report, now_ms, limits))
                last = heartbeats[-1].sequence
        if isinstance(message, ReportHeartbeat) and verdicts[0] is not None:
            raise RefusedError(verdicts[0])
        seen = workspace
        if heartbeats:
            newest = heartbeats[-1].fix
            seen = workspace.seen(last, now_ms, (newest.lat, newest.lng))
        if isinstance(message, ReportHeartbeat):
            answer = Answer(seen, now_ms)
            reply = partial(envelope.reply, message, answer)
            return Judged(envelope, message.key, tuple(heartbeats), seen, answer, reply)
        batch = Answer(verdict_on(message.reports, verdicts, seen), now_ms)
        return Judged(envelope, message.key, tuple(heartbeats), seen, batch, partial(envelope.reply, message, batch))

    async def _write(self, accepted: list[Judged], lease: ShardLease) -> None:
        """Write the accepted heartbeats with the answers of calls that have a key."""
        heartbeats: list[Heartbeat] = []
        answers: list[IdempotencyRecord] = []
        for report in accepted:
            heartbeats += report.heartbeats
            if report.key is not None:
                answers.append(record_of(report.key, report.answer))
        try:
            await self._writer.write(HeartbeatWrite(lease, tuple(heartbeats), tuple(answers)))
        except OverloadedError:
            raise
        except SightlineError as error:
            _fail(accepted, error)
            raise ReloadRequestedError("the heartbeats may not have been written") from error

    def _forward(self, accepted: list[Judged], before: Workspace, now_ms: int) -> None:
        """Tell the LIVE session the fixes, and the dispatcher the first one ever or after a silence."""
        seen_ms = before.last_seen_at_ms
        if seen_ms is None or now_ms - seen_ms > self._deps.limits.seen_within_ms:
            dispatcher = self._context.registry.ref(DISPATCHER, DISPATCHER_ID)
            dispatcher.tell(HeartbeatResumed(before.id), lane=Lane.CONTROL)
        for claim in before.claims.values():
            if claim.is_dispatched and not claim.is_live:
                assigned = self._context.registry.ref(SESSION, claim.session_id)
                assigned.tell(OperatorAcknowledged(before.id), conflate_key="acknowledged")
        if before.live_session_id is None:
            return
        session = self._context.registry.ref(SESSION, before.live_session_id)
        previous, previous_at_ms = before.last_sequence, seen_ms
        for report in accepted:
            for heartbeat in report.heartbeats:
                fact = FixReported(heartbeat.fix, heartbeat.sequence, heartbeat.is_fresh, previous, previous_at_ms)
                session.tell(fact, conflate_key="heartbeat")
                previous, previous_at_ms = heartbeat.sequence, heartbeat.fix.at_ms

    async def _answer_refused(self, report: Judged) -> None:
        """Answer a report of several heartbeats of which none is accepted."""
        key = report.key
        if key is not None and not await self._deps.store.record_idempotent(record_of(key, report.answer)):
            raise RefusedError(IN_PROGRESS)  # a call with this key has just been answered: look it up again
        report.reply()


def _is_report(message: WorkspaceMessage) -> bool:
    return isinstance(message, ReportHeartbeat | ReportHeartbeats)


def _fail(reports: list[Judged], error: Exception) -> None:
    for report in reports:
        report.envelope.fail(error)
