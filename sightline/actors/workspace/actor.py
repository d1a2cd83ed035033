"""The workspace actor: owns the availability and the claims of one workspace, and the order of its heartbeats.

Receives commands and heartbeats from the broker, and claims from sessions. After a crash it loads its row and the
newest recorded heartbeat. `heartbeats` handles heartbeats; `claim_reconciliation` compares claims with their sessions.
"""

from typing import Final, assert_never, final

from sightline.actors.answers import record_of
from sightline.actors.deps import DISPATCHER, SESSION, WORKSPACE, Deps
from sightline.actors.kernel import Context, Envelope, Lane, ReloadRequestedError
from sightline.actors.messages import (
    AssignOperator,
    ClaimOperator,
    ClaimsChecked,
    ClaimState,
    CreateWorkspace,
    FreeOperator,
    GetWorkspace,
    OccupyOperator,
    OperatorChanged,
    OperatorDiffers,
    PatchWorkspace,
    ReconcileClaims,
    ReportHeartbeat,
    ReportHeartbeats,
    ResetLocation,
    RestoreClaim,
    RowWritten,
    VacateOperator,
    WorkspaceMessage,
)
from sightline.actors.refusals import NOT_OPERATOR, WORKSPACE_NOT_FOUND
from sightline.actors.shards import DISPATCHER_ID
from sightline.actors.types import Answer, Caller
from sightline.actors.workspace.claim_reconciliation import ask_sessions, clear_edge, unconfirmed_claims
from sightline.actors.workspace.heartbeat_writer import HeartbeatWriter
from sightline.actors.workspace.heartbeats import NOT_SUPPLIER, HeartbeatIntake
from sightline.actors.write_rejections import workspace_rejected
from sightline.domain.access import Role
from sightline.domain.errors import RefusedError, StoreUnavailableError
from sightline.domain.operator import machine
from sightline.domain.operator.machine import (
    ClaimByAccept,
    ClaimByDispatch,
    Occupy,
    Release,
    Restore,
    Vacate,
)
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Refusal
from sightline.domain.session.model import Assigned, Operator
from sightline.domain.value import replace
from sightline.ports.relations import TupleUpdate, member_edge
from sightline.ports.store import IdempotencyRecord, Rejected, RejectedAssignment, WorkspaceWrite

RECONCILE_TIMER: Final = "reconcile"


@final
class WorkspaceActor:
    """One workspace."""

    def __init__(self, context: Context[WorkspaceMessage], deps: Deps, writer: HeartbeatWriter) -> None:
        self._context = context
        self._deps = deps
        self._intake = HeartbeatIntake(context, deps, writer)
        self._lease = deps.owned.lease(context.id)
        self._workspace: Workspace | None = None
        self._starts = 0
        """Starts of sessions in this life of the actor."""
        self._newest_start_ms: dict[str, int] = {}
        """When the newest start of each session began that is claimed and was started in this life of the actor."""

    # The kernel's side.

    async def load(self) -> None:
        """Load the workspace and schedule the reconciliation of its claims: a crash may have interrupted a dispatch."""
        self._workspace = await self._deps.store.load_workspace(self._context.id)
        if self._workspace is not None:
            self._announce(self._workspace, is_loaded=True)
            self._arm_reconciliation()

    def snapshot(self) -> Workspace | None:
        """The workspace with its newest durable heartbeat."""
        return self._workspace

    def may_passivate(self) -> bool:
        """Always: a timer wakes the actor to reconcile its claims."""
        return True

    async def handle(self, envelope: Envelope[WorkspaceMessage]) -> None:
        """Take one turn."""
        try:
            await self._handle(envelope)
        except RefusedError as refused:
            envelope.fail(refused)

    async def _handle(self, envelope: Envelope[WorkspaceMessage]) -> None:
        message = envelope.message
        match message:
            case ReportHeartbeat() | ReportHeartbeats():
                self._workspace = await self._intake.take(envelope, self._existing(), self._lease)
            case GetWorkspace():
                envelope.reply(message, self._workspace)
            case CreateWorkspace():
                envelope.reply(message, await self._create(message))
            case PatchWorkspace():
                envelope.reply(message, await self._change(message.patch, message.caller))
            case ResetLocation(caller=caller):
                envelope.reply(message, await self._change(machine.ResetSequence(), caller))
            case ClaimOperator(claim=claim):
                envelope.reply(message, await self._tie(claim))
            case AssignOperator():
                await self._assign(envelope, message)
            case OccupyOperator(session_id=session_id, start_ms=start_ms):
                self._starts += 1
                self._newest_start_ms[session_id] = start_ms
                envelope.reply(message, await self._tie(Occupy(session_id)))
            case VacateOperator(session_id=session_id, start_ms=start_ms):
                # From another server it may arrive after the next start, or after this actor was loaded again. If it
                # was needed all the same, the reconciliation of claims finds that.
                if self._newest_start_ms.get(session_id) == start_ms:
                    await self._fact(Vacate(session_id))
            case FreeOperator():
                await self._free(message)
            case RestoreClaim():
                await self._restore(message)
            case ReconcileClaims():
                self._reconcile_claims()
            case ClaimsChecked():
                await self._claims_checked(message)
            case _:
                assert_never(message)

    def _existing(self) -> Workspace:
        if self._workspace is None:
            raise RefusedError(WORKSPACE_NOT_FOUND)
        return self._workspace

    # Commands.

    async def _create(self, command: CreateWorkspace) -> Answer[Workspace]:
        new, now_ms = command.workspace, self._now()
        if self._workspace is not None:
            if self._workspace.created_by_wallet != new.wallet_address:
                raise ReloadRequestedError("the workspace exists already")
            # The id of a guest workspace follows from its wallet: two servers can create it at the same time.
            return await self._answer_unchanged(self._workspace, command.caller)
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

    async def _change(self, change: machine.Patch | machine.ResetSequence, caller: Caller) -> Answer[Workspace]:
        workspace = self._existing()
        is_rename = isinstance(change, machine.Patch) and change == machine.Patch(name=change.name)
        if not workspace.is_supplier and not is_rename:
            raise RefusedError(NOT_SUPPLIER)
        changed = machine.step(workspace, change, self._now())
        if isinstance(changed, Refusal):
            raise RefusedError(changed)
        if changed is workspace:
            return await self._answer_unchanged(workspace, caller)
        return await self._commit_command(changed, caller)

    async def _answer_unchanged(self, workspace: Workspace, caller: Caller) -> Answer[Workspace]:
        """Store only the answer, so that a repeat after another change does not undo that change."""
        answer = Answer(workspace, self._now())
        if caller.idempotency is not None:
            await self._deps.store.record_idempotent(record_of(caller.idempotency, answer))
        return answer

    # Claims.

    async def _tie(self, message: ClaimByDispatch | ClaimByAccept | Occupy) -> Operator | Refusal:
        """Claim or occupy the operator; returns the operator, or the refusal as a value."""
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

    async def _assign(self, envelope: Envelope[WorkspaceMessage], command: AssignOperator) -> None:
        """Claim the operator and store the session's assignment; both rows are written or neither."""
        workspace, session = self._existing(), command.write.session
        changed = machine.step(workspace, command.claim, self._now()) if workspace.is_supplier else NOT_OPERATOR
        if isinstance(changed, Refusal):
            self._announce(workspace)
            envelope.reply(command, changed)
            return
        assert isinstance(session.phase, Assigned)
        # Prepared while a previous session still had the operator, it would seem to overlap with that session.
        is_early = session.phase.assigned_at_ms < workspace.idle_since_ms
        if is_early or changed.as_operator() != session.operator:
            envelope.reply(command, OperatorDiffers(changed.as_operator(), workspace.idle_since_ms))
            return
        claim = WorkspaceWrite(lease=self._lease, workspace=changed, at_ms=self._now())
        result = await self._deps.store.write_assignment(command.write, claim)
        if isinstance(result, RejectedAssignment):
            if result.session is None:
                assert result.workspace is not None
                raise workspace_rejected(Rejected(result.workspace))
            self._announce(workspace)
            envelope.reply(command, Rejected(result.session))
            return
        self._committed(changed, changed.version + 1)
        if not envelope.awaited or not self._deps.owned.owns(session.id):
            # The asker has given up, or may have on another server: the session may have read its row too early.
            self._context.registry.ref(SESSION, session.id).tell(RowWritten(result.version), lane=Lane.CONTROL)
        envelope.reply(command, result)

    async def _fact(self, message: Vacate | Release) -> None:
        if self._workspace is None:
            return
        changed = machine.step(self._workspace, message, self._now())
        assert not isinstance(changed, Refusal), "a release cannot be refused"
        if changed is not self._workspace:
            await self._commit(changed)
        else:
            self._announce(changed)

    async def _free(self, message: FreeOperator) -> None:
        session_id, consumer = message.session_id, message.unstarted_for
        claim = self._workspace.claims.get(session_id) if self._workspace is not None else None
        if message.claimed_at_ms is not None and (claim is None or claim.at_ms != message.claimed_at_ms):
            return
        if (
            message.is_withdrawn
            and claim is not None
            and not await clear_edge(self._deps, session_id, self._context.id)
        ):
            return  # the reconciliation of claims releases it later
        is_funded = consumer is not None and claim is not None and await self._is_funded(session_id)
        await self._fact(
            Release(session_id, start_timed_out=consumer is not None, funded_consumer=consumer if is_funded else None)
        )

    async def _is_funded(self, session_id: str) -> bool:
        """Whether the session's payer can pay; False while the store does not say."""
        try:
            return await self._deps.store.is_funded(session_id, self._now())
        except StoreUnavailableError:
            return False

    async def _restore(self, message: RestoreClaim) -> None:
        """Restore the claim of a session that loaded as assigned; normally the claim exists already."""
        workspace = self._workspace
        if workspace is None:
            return
        changed = machine.step(workspace, Restore(message.session_id, message.is_dispatched), self._now())
        if message.is_live and isinstance(changed, Workspace):
            changed = machine.step(changed, Occupy(message.session_id), self._now())
        if isinstance(changed, Workspace) and changed is not workspace:
            await self._commit(changed)

    def _reconcile_claims(self) -> None:
        """Compare older claims with their sessions; the answers arrive as `ClaimsChecked`."""
        workspace = self._workspace
        if workspace is None or not workspace.claims:
            return
        registry, until_ms = self._context.registry, self._now() - self._deps.limits.claim_doubt_ms
        starts = self._starts
        unconfirmed = unconfirmed_claims(registry, workspace, until_ms)
        self._arm_reconciliation()
        if unconfirmed:
            self._context.spawn(
                lambda: ask_sessions(registry, self._deps, workspace.id, unconfirmed),
                on_value=lambda claim_states: ClaimsChecked(claim_states, starts),
                on_error=lambda _error: None,
            )

    async def _claims_checked(self, checked: ClaimsChecked) -> None:
        for session_id, at_ms, claim_state in checked.claim_states:
            claim = self._workspace.claims.get(session_id) if self._workspace is not None else None
            if claim is None or claim.at_ms != at_ms:
                continue
            if claim_state is ClaimState.NEVER and not await clear_edge(self._deps, session_id, self._context.id):
                continue
            if claim_state in (ClaimState.GONE, ClaimState.NEVER):
                await self._fact(Release(session_id))
            elif claim_state is ClaimState.ASSIGNED and claim.is_live and checked.starts == self._starts:
                # Otherwise the session may have begun its start after it was asked. The next check decides.
                await self._fact(Vacate(session_id))
            elif claim_state is ClaimState.LIVE and not claim.is_live:
                await self._restore(RestoreClaim(session_id, is_live=True, is_dispatched=claim.is_dispatched))

    def _arm_reconciliation(self) -> None:
        timers = self._context.timers
        if self._workspace is None or not self._workspace.claims:
            timers.cancel(self._context.ref, RECONCILE_TIMER)
        elif timers.due_ms(self._context.ref, RECONCILE_TIMER) is None:
            # An armed timer is kept: the commits of a busy operator must not postpone the check for ever.
            at_ms = self._now() + self._deps.limits.claim_doubt_ms
            timers.set(self._context.ref, at_ms, ReconcileClaims(), name=RECONCILE_TIMER)

    # Durability.

    async def _commit_command(
        self, workspace: Workspace, caller: Caller, *, tuples: tuple[TupleUpdate, ...] = ()
    ) -> Answer[Workspace]:
        answer = Answer(workspace, self._now())
        record = record_of(caller.idempotency, answer) if caller.idempotency is not None else None
        await self._commit(workspace, tuples=tuples, record=record)
        return answer

    async def _commit(
        self, workspace: Workspace, *, tuples: tuple[TupleUpdate, ...] = (), record: IdempotencyRecord | None = None
    ) -> None:
        write = WorkspaceWrite(
            lease=self._lease,
            workspace=workspace,
            at_ms=self._now(),
            tuples=tuples,
            idempotency=record,
        )
        result = await self._deps.store.write_workspace(write)
        if isinstance(result, Rejected):
            raise workspace_rejected(result)
        self._committed(workspace, result.version)

    def _committed(self, workspace: Workspace, version: int) -> None:
        """Publish a stored workspace."""
        self._workspace = replace(workspace, version=version)
        if self._newest_start_ms.keys() - workspace.claims.keys():
            self._newest_start_ms = {key: at for key, at in self._newest_start_ms.items() if key in workspace.claims}
        self._announce(self._workspace)
        self._arm_reconciliation()
        self._deps.watchers.notify(WORKSPACE, workspace.id)

    def _announce(self, workspace: Workspace, *, is_loaded: bool = False) -> None:
        if workspace.is_supplier:
            dispatcher = self._context.registry.ref(DISPATCHER, DISPATCHER_ID)
            dispatcher.tell(OperatorChanged(workspace, is_loaded), lane=Lane.CONTROL)

    def _now(self) -> int:
        return self._context.clock.now_ms()
