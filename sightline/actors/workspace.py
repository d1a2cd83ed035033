"""The workspace actor: owns one workspace's availability, claims, and the order of its heartbeats.

Spoken to by the broker (commands and heartbeats), by sessions (claims) and by the heartbeat writer. Survives a crash by
its row and the recorded heartbeats. A heartbeat is accepted here, written in a batch with those of others, and only
then acknowledged and passed on to the session that is live.
"""

from dataclasses import replace
from typing import Final, final

import structlog
import trio

from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, SESSION, WORKSPACE, Deps
from sightline.actors.heartbeats import HeartbeatWriter, Submitted
from sightline.actors.idempotency import IN_PROGRESS
from sightline.actors.kernel.behaviour import Context
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import OverloadedError, ReloadRequestedError
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.messages import (
    CheckClaim,
    ClaimOperator,
    ClaimsChecked,
    ClaimStanding,
    CreateWorkspace,
    DoubtClaims,
    FreeOperator,
    GetWorkspace,
    HeartbeatsWritten,
    HeartbeatTaken,
    OccupyOperator,
    OperatorChanged,
    PatchWorkspace,
    ReportHeartbeat,
    ReportHeartbeats,
    RestoreClaim,
    VacateOperator,
)
from sightline.actors.rejected import workspace_rejected
from sightline.actors.reports import Writing, answer_of, heartbeat_of, judge, record_of
from sightline.actors.types import Answer, Caller
from sightline.domain.access import Role
from sightline.domain.errors import InvariantError, RefusedError, SightlineError
from sightline.domain.operator import machine
from sightline.domain.operator.machine import (
    ClaimByAccept,
    ClaimByDispatch,
    Occupy,
    Release,
    Restore,
    Vacate,
)
from sightline.domain.operator.model import Claim, Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Assigned, Live, Session
from sightline.domain.views import workspace_view
from sightline.ports.relations import TupleUpdate, member_edge, operator_edge
from sightline.ports.store import Heartbeat, IdempotencyRecord, Rejected, WorkspaceWrite

DOUBT_TIMER: Final = "doubt"
NOT_FOUND: Final = Refusal(Code.NOT_FOUND)
NOT_SUPPLIER: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:notSupplier", "The workspace is not a SUPPLIER")
NOT_OPERATOR: Final = Refusal(Code.NOT_OPERATOR)

log = structlog.get_logger("sightline.workspace")


@final
class WorkspaceActor:
    """One workspace."""

    def __init__(self, context: Context, deps: Deps, writer: HeartbeatWriter) -> None:
        self._context = context
        self._deps = deps
        self._writer = writer
        self._workspace: Workspace | None = None
        self._accepted = -1
        """Sequence of the newest heartbeat handed to the writer."""
        self._writing: dict[int, Writing] = {}
        self._ticket = 0

    # The kernel's side.

    async def load(self) -> None:
        """Read the workspace; claims are doubted soon, since a crash may have cut a dispatch in two."""
        self._workspace = await self._deps.store.load_workspace(self._context.id)
        if self._workspace is not None:
            self._accepted = self._workspace.last_sequence
            self._announce(self._workspace)
            self._arm_doubt()

    def snapshot(self) -> Workspace | None:
        """The workspace as stored, with what its durable heartbeats say."""
        return self._workspace

    def may_passivate(self) -> bool:
        """Whether no heartbeat is on its way; claims are watched over by a timer that wakes the actor."""
        return not self._writing

    async def handle(self, envelope: Envelope) -> None:
        """Take one turn."""
        try:
            await self._handle(envelope)
        except RefusedError as refused:
            envelope.fail(refused)

    async def _handle(self, envelope: Envelope) -> None:
        message = envelope.message
        match message:
            case ReportHeartbeat():
                await self._heartbeats(envelope, message)
            case HeartbeatsWritten():
                self._written(message)
            case ReportHeartbeats():
                await self._heartbeats(envelope, message)
            case GetWorkspace():
                envelope.reply(self._workspace)
            case CreateWorkspace():
                envelope.reply(await self._create(message))
            case PatchWorkspace():
                envelope.reply(await self._patch(message))
            case ClaimOperator(session_id=session_id, is_dispatch=is_dispatch):
                claim: ClaimByDispatch | ClaimByAccept = (
                    ClaimByDispatch(session_id) if is_dispatch else ClaimByAccept(session_id)
                )
                envelope.reply(await self._tie(claim))
            case OccupyOperator(session_id=session_id):
                envelope.reply(await self._tie(Occupy(session_id)))
            case VacateOperator(session_id=session_id):
                await self._fact(Vacate(session_id))
            case FreeOperator(session_id=session_id, start_timed_out=timed_out, claimed_at_ms=claimed_at_ms):
                await self._free(session_id, claimed_at_ms, timed_out=timed_out)
            case RestoreClaim():
                await self._restore(message)
            case DoubtClaims():
                self._doubt_claims()
            case ClaimsChecked(standings=standings):
                await self._claims_checked(standings)
            case _:
                raise InvariantError(f"a workspace does not understand {type(message).__name__}")

    def _existing(self) -> Workspace:
        if self._workspace is None:
            raise RefusedError(NOT_FOUND)
        return self._workspace

    # Commands.

    async def _create(self, command: CreateWorkspace) -> Answer:
        if self._workspace is not None:
            raise ReloadRequestedError("the workspace exists already")
        new, now_ms = command.workspace, self._now()
        workspace = Workspace(
            id=self._context.id,
            slug=new.slug,
            name=new.name,
            wallet_address=new.wallet_address,
            roles=new.roles,
            created_at_ms=now_ms,
            created_by_wallet=new.wallet_address,
        )
        owner = TupleUpdate(member_edge(workspace.id, new.wallet_address, Role.OWNER))
        staged = await self._deps.relations.stage([owner])
        return await self._commit_command(workspace, command.caller, tuples=staged.in_commit)

    async def _patch(self, command: PatchWorkspace) -> Answer:
        workspace, patch = self._existing(), command.patch
        if not workspace.is_supplier and patch != replace(machine.Patch(), name=patch.name):
            raise RefusedError(NOT_SUPPLIER)
        changed = machine.step(workspace, patch, self._now())
        if isinstance(changed, Refusal):
            raise RefusedError(changed)
        if changed is workspace:
            return await self._answer_unchanged(workspace, command.caller)
        return await self._commit_command(changed, command.caller)

    async def _answer_unchanged(self, workspace: Workspace, caller: Caller) -> Answer:
        """Nothing to store but the answer: a repeat after somebody else's change must not change it back."""
        answer = Answer(workspace_view(workspace), self._now())
        if caller.idempotency is not None:
            await self._deps.store.record_idempotent(record_of(caller.idempotency, answer))
        return answer

    # Claims.

    async def _tie(self, message: ClaimByDispatch | ClaimByAccept | Occupy) -> object:
        """Claim or occupy: the operator as it now stands, or a refusal as a value."""
        workspace = self._existing()
        if not workspace.is_supplier:
            return NOT_OPERATOR
        changed = machine.step(workspace, message, self._now())
        if isinstance(changed, Refusal):
            self._announce(workspace)
            return changed
        if changed is not workspace:
            await self._commit(changed)
        return self._existing().as_operator()

    async def _fact(self, message: Vacate | Release) -> None:
        if self._workspace is None:
            return
        changed = machine.step(self._workspace, message, self._now())
        assert not isinstance(changed, Refusal), "giving back cannot be refused"
        if changed is not self._workspace:
            await self._commit(changed)
        else:
            self._announce(changed)

    async def _free(self, session_id: str, claimed_at_ms: int | None, *, timed_out: bool) -> None:
        claim = self._workspace.claims.get(session_id) if self._workspace is not None else None
        if claimed_at_ms is not None and (claim is None or claim.at_ms != claimed_at_ms):
            return
        await self._fact(Release(session_id, timed_out))

    async def _restore(self, message: RestoreClaim) -> None:
        """A session that stands by its operator after a restart; normally the claim is there already."""
        workspace = self._workspace
        if workspace is None:
            return
        changed = machine.step(workspace, Restore(message.session_id, message.is_dispatched), self._now())
        if message.is_live and isinstance(changed, Workspace):
            changed = machine.step(changed, Occupy(message.session_id), self._now())
        if isinstance(changed, Workspace) and changed is not workspace:
            await self._commit(changed)

    def _doubt_claims(self) -> None:
        """Ask the sessions of older claims whether they stand; the answers come back as a message."""
        workspace = self._workspace
        if workspace is None or not workspace.claims:
            return
        limit_ms = self._now() - self._deps.limits.claim_doubt_ms
        doubted = [
            (claim.session_id, claim.at_ms)
            for claim in workspace.claims.values()
            if claim.at_ms <= limit_ms and not self._is_stood_by(claim)
        ]
        self._arm_doubt()
        if doubted:
            self._context.spawn(
                lambda: self._ask_sessions(doubted), on_value=ClaimsChecked, on_error=lambda _error: None
            )

    def _is_stood_by(self, claim: Claim) -> bool:
        """Whether the session is in memory and says what the claim says; then it need not be asked."""
        session: Session | None = self._context.registry.peek(SESSION, claim.session_id)
        phase = session.phase if session is not None else None
        if not isinstance(phase, Assigned | Live) or phase.operator.workspace_id != self._context.id:
            return False
        return isinstance(phase, Live) == claim.is_live

    async def _ask_sessions(self, doubted: list[tuple[str, int]]) -> tuple[tuple[str, int, ClaimStanding], ...]:
        standings = []
        for session_id, at_ms in doubted:
            session = self._context.registry.ref(SESSION, session_id)
            try:
                check = CheckClaim(self._context.id)
                standing = await session.ask(check, timeout_s=self._deps.limits.ask_timeout_s)
            except SightlineError:
                continue
            standings.append((session_id, at_ms, standing))
        return tuple(standings)

    async def _claims_checked(self, standings: tuple[tuple[str, int, ClaimStanding], ...]) -> None:
        for session_id, at_ms, standing in standings:
            claim = self._workspace.claims.get(session_id) if self._workspace is not None else None
            if claim is None or claim.at_ms != at_ms:
                continue
            if standing is ClaimStanding.NEVER and not await self._is_unrelated(session_id):
                continue
            if standing in (ClaimStanding.GONE, ClaimStanding.NEVER):
                await self._fact(Release(session_id))
            elif standing is ClaimStanding.ASSIGNED and claim.is_live:
                await self._fact(Vacate(session_id))

    async def _is_unrelated(self, session_id: str) -> bool:
        """Take away the edge that a dispatch cut in two may have left in a graph of its own (not in our transaction).

        Before the claim goes, so that a crash in between finds it again; and in a turn, so that no new claim, with a
        new edge, can come in between. False if the graph does not answer: the claim is doubted again later.
        """
        edge = operator_edge(session_id, self._context.id)
        try:
            with trio.fail_after(self._deps.limits.ask_timeout_s):
                await self._deps.relations.write([TupleUpdate(edge, present=False)])
        except (SightlineError, trio.TooSlowError) as error:
            log.warning("relation_not_cleared", session_id=session_id, error=str(error))
            return False
        return True

    def _arm_doubt(self) -> None:
        timers = self._context.timers
        if self._workspace is None or not self._workspace.claims:
            timers.cancel(self._context.ref, DOUBT_TIMER)
        elif timers.due_ms(self._context.ref, DOUBT_TIMER) is None:
            # One that is armed stays: a busy operator's commits must not put the doubt off for ever.
            at_ms = self._now() + self._deps.limits.claim_doubt_ms
            timers.set(self._context.ref, at_ms, DoubtClaims(), name=DOUBT_TIMER)

    # Heartbeats.

    async def _heartbeats(self, envelope: Envelope, message: ReportHeartbeat | ReportHeartbeats) -> None:
        workspace, key = self._existing(), message.key
        if not workspace.is_supplier:
            raise RefusedError(NOT_SUPPLIER)
        if key is not None and any(writing.key == key for writing in self._writing.values()):
            raise RefusedError(IN_PROGRESS)
        now_ms, before, limits = self._now(), self._accepted, self._deps.limits
        accepted: list[Heartbeat] = []
        verdicts: list[Refusal | None] = []
        for report in (message.report,) if isinstance(message, ReportHeartbeat) else message.reports:
            refusal = judge(workspace, report, self._accepted, now_ms, limits)
            verdicts.append(refusal)
            if refusal is None:
                self._accepted = report.sequence
                accepted.append(heartbeat_of(workspace, report, now_ms, limits))
        if not accepted:
            await self._refuse_heartbeats(envelope, message, verdicts)
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

    async def _refuse_heartbeats(
        self, envelope: Envelope, message: ReportHeartbeat | ReportHeartbeats, verdicts: list[Refusal | None]
    ) -> None:
        """Answer a report of which nothing was accepted."""
        if isinstance(message, ReportHeartbeat):
            assert verdicts[0] is not None
            raise RefusedError(verdicts[0])
        answer = answer_of(message, verdicts, self._existing(), self._now())
        if message.key is not None and not await self._deps.store.record_idempotent(record_of(message.key, answer)):
            raise RefusedError(IN_PROGRESS)  # the first call with this key has just been answered: look again
        envelope.reply(answer)

    def _told(self, ticket: int, error: Exception | None) -> None:
        self._context.ref.tell(HeartbeatsWritten(ticket, error), lane=Lane.CONTROL)

    def _written(self, written: HeartbeatsWritten) -> None:
        writing = self._writing.pop(written.ticket, None)
        if writing is None:
            return  # of an earlier life; what was written was read by load
        envelope, heartbeats, verdicts, answer = writing
        if written.error is not None:
            envelope.fail(written.error)
            raise ReloadRequestedError("heartbeats may not have been written")
        workspace = self._existing()
        last = heartbeats[-1]
        self._workspace = workspace = workspace.seen(last.sequence, last.fix.at_ms)
        session_id = workspace.live_session_id
        if session_id is not None:
            session = self._context.registry.ref(SESSION, session_id)
            for heartbeat in heartbeats:
                session.tell(HeartbeatTaken(heartbeat), conflate_key="heartbeat")
        if answer is None:
            answer = answer_of(envelope.message, verdicts, workspace, self._now())
        envelope.reply(answer)

    # Durability.

    async def _commit_command(
        self, workspace: Workspace, caller: Caller, *, tuples: tuple[TupleUpdate, ...] = ()
    ) -> Answer:
        answer = Answer(workspace_view(workspace), self._now())
        record = record_of(caller.idempotency, answer) if caller.idempotency is not None else None
        await self._commit(workspace, tuples=tuples, record=record)
        return answer

    async def _commit(
        self, workspace: Workspace, *, tuples: tuple[TupleUpdate, ...] = (), record: IdempotencyRecord | None = None
    ) -> None:
        write = WorkspaceWrite(
            lease=self._deps.lease(workspace.id),
            workspace=workspace,
            at_ms=self._now(),
            tuples=tuples,
            idempotency=record,
        )
        result = await self._deps.store.write_workspace(write)
        if isinstance(result, Rejected):
            raise workspace_rejected(result)
        self._workspace = replace(workspace, version=result.version)
        self._announce(self._workspace)
        self._arm_doubt()
        self._deps.watchers.notify(WORKSPACE, workspace.id)

    def _announce(self, workspace: Workspace) -> None:
        if workspace.is_supplier:
            dispatcher = self._context.registry.ref(DISPATCHER, DISPATCHER_ID)
            dispatcher.tell(OperatorChanged(workspace), lane=Lane.CONTROL)

    def _now(self) -> int:
        return self._context.clock.now_ms()
