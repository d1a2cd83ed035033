"""The intake of heartbeats: from a report to its answer, for one workspace.

A heartbeat is accepted here, written in a batch with those of others, and only then acknowledged and passed on to the
session that is live.
"""

from typing import Final, final

from sightline.actors.answers import record_of
from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, SESSION, Deps
from sightline.actors.kernel.behaviour import Context
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import OverloadedError, ReloadRequestedError
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.messages import HeartbeatsWritten, HeartbeatTaken, OperatorSeen, ReportHeartbeat, ReportHeartbeats
from sightline.actors.refusals import IN_PROGRESS
from sightline.actors.workspace.heartbeat_writer import HeartbeatWriter, Submitted
from sightline.actors.workspace.reports import Writing, answer_of, heartbeat_of, judge
from sightline.domain.errors import RefusedError
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.ports.store import Heartbeat

NOT_SUPPLIER: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:notSupplier", "The workspace is not a SUPPLIER")


@final
class HeartbeatIntake:
    """Accepts heartbeats in the order of their sequence."""

    __slots__ = ("_accepted", "_context", "_deps", "_ticket", "_writer", "_writing")

    def __init__(self, context: Context, deps: Deps, writer: HeartbeatWriter) -> None:
        self._context = context
        self._deps = deps
        self._writer = writer
        self._accepted = -1
        """Sequence of the newest heartbeat handed to the writer."""
        self._writing: dict[int, Writing] = {}
        self._ticket = 0

    @property
    def is_writing(self) -> bool:
        """Whether a heartbeat is on its way to the store."""
        return bool(self._writing)

    def resume_after(self, sequence: int) -> None:
        """Accept only what is newer than this."""
        self._accepted = sequence

    async def take(self, envelope: Envelope, message: ReportHeartbeat | ReportHeartbeats, workspace: Workspace) -> None:
        """Hand what is accepted of a report to the writer; answer a report of which nothing is."""
        key = message.key
        if not workspace.is_supplier:
            raise RefusedError(NOT_SUPPLIER)
        if key is not None and any(writing.key == key for writing in self._writing.values()):
            raise RefusedError(IN_PROGRESS)
        now_ms, before, limits = self._context.clock.now_ms(), self._accepted, self._deps.limits
        accepted: list[Heartbeat] = []
        verdicts: list[Refusal | None] = []
        for report in (message.report,) if isinstance(message, ReportHeartbeat) else message.reports:
            refusal = judge(workspace, report, self._accepted, now_ms, limits)
            verdicts.append(refusal)
            if refusal is None:
                self._accepted = report.sequence
                accepted.append(heartbeat_of(workspace, report, now_ms, limits))
        if not accepted:
            await self._refuse(envelope, message, workspace, verdicts)
            return
        answer = None
        if key is not None:
            answer = answer_of(message, verdicts, workspace.seen(accepted[-1].sequence, now_ms), now_ms)
        self._ticket += 1
        ticket = self._ticket
        submitted = Submitted(
            tuple(accepted),
            lambda error: self._told(ticket, error),
            record_of(key, answer) if key is not None and answer is not None else None,
        )
        if not self._writer.submit(submitted):
            self._accepted = before
            envelope.fail(OverloadedError("too many heartbeats wait to be written"))
            return
        self._writing[ticket] = Writing(envelope, submitted.heartbeats, tuple(verdicts), answer)

    def conclude(self, written: HeartbeatsWritten, workspace: Workspace | None) -> Workspace | None:
        """Acknowledge what was written and pass it on; the workspace with what the heartbeats say."""
        writing = self._writing.pop(written.ticket, None)
        if writing is None:
            return workspace  # of an earlier life; what was written was read by load
        envelope, heartbeats, verdicts, answer = writing
        if written.error is not None:
            envelope.fail(written.error)
            raise ReloadRequestedError("heartbeats may not have been written")
        assert workspace is not None
        last = heartbeats[-1]
        self._end_silence(workspace, last.fix.at_ms)
        workspace = workspace.seen(last.sequence, last.fix.at_ms)
        session_id = workspace.live_session_id
        if session_id is not None:
            session = self._context.registry.ref(SESSION, session_id)
            for heartbeat in heartbeats:
                session.tell(HeartbeatTaken(heartbeat), conflate_key="heartbeat")
        if answer is None:
            answer = answer_of(envelope.message, verdicts, workspace, self._context.clock.now_ms())
        envelope.reply(answer)
        return workspace

    def _end_silence(self, workspace: Workspace, now_ms: int) -> None:
        seen_ms = workspace.last_seen_at_ms
        if seen_ms is not None and now_ms - seen_ms > self._deps.limits.seen_within_ms:
            dispatcher = self._context.registry.ref(DISPATCHER, DISPATCHER_ID)
            dispatcher.tell(OperatorSeen(workspace.id), lane=Lane.CONTROL)

    async def _refuse(
        self,
        envelope: Envelope,
        message: ReportHeartbeat | ReportHeartbeats,
        workspace: Workspace,
        verdicts: list[Refusal | None],
    ) -> None:
        """Answer a report of which nothing was accepted."""
        if isinstance(message, ReportHeartbeat):
            assert verdicts[0] is not None
            raise RefusedError(verdicts[0])
        answer = answer_of(message, verdicts, workspace, self._context.clock.now_ms())
        if message.key is not None and not await self._deps.store.record_idempotent(record_of(message.key, answer)):
            raise RefusedError(IN_PROGRESS)  # the first call with this key has just been answered: look again
        envelope.reply(answer)

    def _told(self, ticket: int, error: Exception | None) -> None:
        self._context.ref.tell(HeartbeatsWritten(ticket, error), lane=Lane.CONTROL)
