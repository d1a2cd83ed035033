"""The session actor: owns the state, the meter and the deadlines of one session.

Receives commands from the broker, fixes from the operator's workspace, media events from the media pump, settlements
from the relayer, and its timer. After a crash it loads its row and applies the heartbeats and media checkpoints
recorded since (`durable`). `effects` holds what it does to other actors.

The search for an operator runs inside the turn of its command: the session asks the dispatcher and a workspace, and
these never ask a session (ADR 0233). A start, which waits for the chain and for video, runs as a helper, so that the
turns continue. While it is *pending*, later commands wait in `postponed`.
"""

from functools import partial
from typing import Final, assert_never, final

import trio

from sightline.actors.deps import SESSION, WORKSPACE, Deps
from sightline.actors.dispatch.find_operator import accept_session, find_operator
from sightline.actors.kernel import Context, Envelope, Lane, OverloadedError, ReloadRequestedError
from sightline.actors.messages import (
    AcceptSession,
    AcknowledgementDue,
    CancelSession,
    CheckClaim,
    ClaimState,
    CreateSession,
    DeclineSession,
    DispatchSession,
    DropAssignment,
    EndByPlatform,
    EndSession,
    ExtendSession,
    ExtensionFailed,
    GetSession,
    HoldExtended,
    MarkMessagesShown,
    OperationFailed,
    OperatorAcknowledged,
    OperatorAssigned,
    OperatorClaimed,
    RecordSettlement,
    ReopenVideo,
    ReportsMissed,
    RestoreClaim,
    ResumeExtending,
    RowWritten,
    SendToOperator,
    SessionCommand,
    SessionMessage,
    StartOutcome,
    StartSession,
    VideoReady,
    VideoReopened,
)
from sightline.actors.refusals import NOT_PARTY
from sightline.actors.session.durable import DurableSession
from sightline.actors.session.effects import release_unused, release_video, reopen_video
from sightline.actors.session.extending import Extending
from sightline.actors.session.start_session import occupy_and_open
from sightline.actors.types import Answer, Caller
from sightline.domain.access import SCOPE_TO_END, scope_missing
from sightline.domain.errors import (
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
    UnavailableError,
)
from sightline.domain.session import machine
from sightline.domain.session.evidence import follows_missed
from sightline.domain.session.messages import (
    Assign,
    BeginFunding,
    Cancel,
    CancelAssignment,
    ConsumerActive,
    Decline,
    End,
    FixReported,
    FundsReported,
    GoLive,
    MarkShown,
    MediaBroke,
    MediaProved,
    Message,
    Party,
    Say,
    Tick,
    Withdraw,
)
from sightline.domain.session.model import Assigned, Live, Requested, Session
from sightline.domain.session.status import SessionStatus, parties_of, session_status
from sightline.ports.relations import TupleUpdate, consumer_edge
from sightline.ports.store import HoldRequest, IdempotencyRecord

POSTPONED_MAX: Final = 32
ACKNOWLEDGEMENT_TIMER: Final = "acknowledgement"
PREVENT_AGAIN_S: Final = (0.1, 0.3, 0.6)
"""Pauses after attempts to prevent an assignment of unknown outcome that failed."""


@final
class SessionActor:
    """One session."""

    def __init__(self, context: Context[SessionMessage], deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._durable = DurableSession(context, deps)
        self._extending = Extending(context, deps, self._durable)
        self._pending: tuple[Envelope[SessionMessage], StartSession] | None = None
        self._postponed: list[tuple[Envelope[SessionMessage], SessionCommand]] = []
        self._acknowledged_ms: int | None = None
        """Which assignment its operator acknowledged, by its time. Not stored: after a load the limit begins anew."""

    # The kernel's side.

    async def load(self) -> None:
        """Load the session; restore the operator's claim and the live input."""
        await self._durable.load()
        session = self._durable.session
        if session is None:
            return
        self._reopen_video()
        self._extending.resume()
        if isinstance(session.phase, Live | Assigned):
            is_live = isinstance(session.phase, Live)
            is_dispatched = isinstance(session.phase, Assigned) and session.phase.is_dispatched
            restore = RestoreClaim(self._context.id, is_live, is_dispatched)
            operator = self._context.registry.ref(WORKSPACE, session.phase.operator.workspace_id)
            operator.tell(restore, lane=Lane.CONTROL)
        self._arm()

    def snapshot(self) -> Session | None:
        """The session with all durable evidence."""
        return self._durable.session

    def may_passivate(self) -> bool:
        """Whether no operation is pending and no operator assigned; its timer wakes a REQUESTED session."""
        session = self._durable.session
        return self._pending is None and not (session is not None and isinstance(session.phase, Live | Assigned))

    async def handle(self, envelope: Envelope[SessionMessage]) -> None:
        """Take one turn."""
        message = envelope.message
        try:
            match message:
                case FixReported():
                    self._require_no_gap(message)
                    await self._durable.take_fact(message)
                    self._deps.watchers.notify_move(SESSION, self._context.id)
                case MediaProved():
                    await self._durable.take_fact(message)
                    self._deps.media_proved[self._context.id] = None
                case MediaBroke() | ConsumerActive() | FundsReported() | Tick():
                    await self._durable.take_fact(message)
                case RecordSettlement(mined=mined):
                    await self._durable.take_fact(mined)
                    envelope.reply(message, None)
                case GetSession():
                    envelope.reply(message, await self._read())
                case CheckClaim():
                    envelope.reply(message, await self._check_claim(message.workspace_id))
                case ReopenVideo():
                    self._reopen_video()
                case VideoReopened(video=video):
                    self._durable.take_video(video)
                case RowWritten(version=version):
                    self._require_version(version)
                case OperatorAcknowledged(workspace_id=workspace_id):
                    self._acknowledge(workspace_id)
                case AcknowledgementDue(assigned_at_ms=assigned_at_ms):
                    await self._withdraw_silent(assigned_at_ms)
                case ReportsMissed():
                    session = self._durable.session
                    # Handled again after the load that it caused, it is done.
                    is_done = envelope.retries > 0 or self._pending is not None
                    if session is not None and isinstance(session.phase, Live) and not is_done:
                        raise ReloadRequestedError("messages of another server may be lost")
                case OperatorClaimed():
                    await release_unused(self._context, self._deps, message, self._durable.session)
                case VideoReady() | OperationFailed():
                    await self._finish_start(message)
                case HoldExtended() | ExtensionFailed():
                    await self._extending.take(message)
                case ResumeExtending():
                    self._extending.resume()
                case (
                    CreateSession()
                    | DispatchSession()
                    | AcceptSession()
                    | StartSession()
                    | DeclineSession()
                    | EndSession()
                    | EndByPlatform()
                    | CancelSession()
                    | ExtendSession()
                    | SendToOperator()
                    | MarkMessagesShown()
                    | DropAssignment()
                ):
                    await self._command(envelope, message)
                case _:
                    assert_never(message)
        except RefusedError as refused:
            envelope.fail(refused)
        self._arm()

    async def _read(self) -> Session | None:
        """The session, its deadlines settled."""
        await self._durable.settle_deadline(self._now())
        return self._durable.session

    # Commands.

    async def _command(self, envelope: Envelope[SessionMessage], message: SessionCommand) -> None:
        if self._pending is not None:
            if len(self._postponed) >= POSTPONED_MAX:
                envelope.fail(OverloadedError("too many commands wait for this session"))
                return
            self._postponed.append((envelope, message))
            return
        if isinstance(message, CreateSession):
            envelope.reply(message, await self._create(message))
            return
        session = self._durable.require()
        match message:
            case DispatchSession(caller=caller):
                self._require(session, Party.CONSUMER, caller)
                await self._assign(envelope, message)
            case AcceptSession():
                await self._assign(envelope, message)
            case StartSession(caller=caller):
                self._require(session, Party.OPERATOR, caller)
                self._acknowledge(caller.workspace_id)
                assigned = await self._begin_funding(await self._in_phase(Assigned))
                self._pending = envelope, message
                self._context.spawn(
                    lambda: occupy_and_open(self._context.registry, self._deps, assigned),
                    on_value=lambda ready: ready,
                    on_error=OperationFailed,
                    lane=Lane.CONTROL,
                )
            case DeclineSession(caller=caller):
                self._require(session, Party.OPERATOR, caller)
                envelope.reply(message, await self._take(Decline(), caller))
            case EndSession(caller=caller, sides=sides, credential=credential):
                mine = parties_of(session, caller.workspace_id)
                if not mine:
                    raise RefusedError(NOT_PARTY)
                if not mine & sides:
                    raise RefusedError(scope_missing(SCOPE_TO_END[party] for party in mine))
                by = Party.CONSUMER if Party.CONSUMER in mine & sides else Party.OPERATOR
                envelope.reply(message, await self._take(End(by, credential), caller))
            case EndByPlatform():
                caller = Caller(workspace_id=session.terms.consumer_workspace_id)
                envelope.reply(message, await self._take(End(Party.PLATFORM), caller))
            case CancelSession(caller=caller):
                self._require(session, Party.CONSUMER, caller)
                envelope.reply(message, await self._take(Cancel(), caller))
            case ExtendSession(caller=caller):
                self._require(session, Party.CONSUMER, caller)
                await self._extending.extend(envelope, message)
            case SendToOperator(text=text, caller=caller):
                self._require(session, Party.CONSUMER, caller)
                envelope.reply(message, await self._take(Say(text), caller))
            case MarkMessagesShown(number=number, caller=caller):
                self._require(session, Party.OPERATOR, caller)
                envelope.reply(message, await self._mark_shown(number, caller))
            case DropAssignment():
                envelope.reply(message, await self._drop(session, message))
            case _:
                assert_never(message)

    def _require(self, session: Session, party: Party, caller: Caller) -> None:
        if party not in parties_of(session, caller.workspace_id):
            raise RefusedError(NOT_PARTY)

    async def _in_phase(self, phase: type[Requested | Assigned]) -> Session:
        """The session, its deadlines settled; refuses before an operation what the machine would refuse after it."""
        was_late = await self._durable.settle_deadline(self._now())
        session = self._durable.require()
        if was_late and session.is_terminal:
            raise RefusedError(machine.EXPIRED)
        if not isinstance(session.phase, phase):
            raise RefusedError(machine.wrong_state(session))
        return session

    async def _begin_funding(self, session: Session) -> Session:
        """Record that the hold is asked for, if the payer consented to one, before anything is sent to the chain."""
        if self._deps.escrow is None or session.terms.consent is None:
            return session
        step = await self._durable.step(BeginFunding())
        if step.session is not session:
            await self._durable.commit(step)
        return self._durable.require()

    async def _create(self, command: CreateSession) -> Answer[SessionStatus]:
        if self._durable.session is not None:
            raise ReloadRequestedError("the session exists already")
        step = machine.create(command.terms)
        terms = command.terms
        hold = HoldRequest(
            payer_address=terms.payer_address,
            amount=terms.hold,
            is_enforced=command.is_hold_enforced,
            unfunded_max=0 if terms.consent is not None else self._deps.limits.unfunded_sessions_max,
            spending=command.spending,
        )
        staged = await self._deps.relations.stage([TupleUpdate(consumer_edge(terms.id, terms.consumer_workspace_id))])
        return await self._durable.commit_command(step, command.caller, tuples=staged.in_commit, hold=hold)

    async def _take(self, message: Message, caller: Caller) -> Answer[SessionStatus]:
        """Take the step of a command that needs no other actor."""
        step = await self._durable.step(message)
        return await self._durable.commit_command(step, caller)

    async def _mark_shown(self, number: int, caller: Caller) -> Answer[SessionStatus]:
        """Store that messages were shown, unless that is stored already."""
        step = await self._durable.step(MarkShown(number))
        session = self._durable.require()
        if step.session is not session:
            return await self._durable.commit_command(step, caller)
        now_ms = self._now()
        return Answer(session_status(session, now_ms, self._deps.limits.session, caller.workspace_id), now_ms)

    async def _drop(self, session: Session, command: DropAssignment) -> bool:
        if Party.OPERATOR not in parties_of(session, command.workspace_id):
            return False
        try:
            step = await self._durable.step(CancelAssignment())
        except RefusedError:
            return False
        record = None
        if command.mark is not None:
            record = IdempotencyRecord(key=command.mark, result={}, at_ms=self._now())
        await self._durable.commit(step, record=record)
        return True

    # Commands that wait for others.

    async def _assign(self, envelope: Envelope[SessionMessage], command: DispatchSession | AcceptSession) -> None:
        """Find an operator, or take the one that accepts, and take over its assignment."""
        request = await self._in_phase(Requested)
        is_dispatched = isinstance(command, DispatchSession)
        prepare = partial(self._durable.prepare_assignment, is_dispatched=is_dispatched, caller=command.caller)
        # The operator's workspace writes the row at any moment from here on, and a caller may learn of it before this
        # actor does: a repeat of the call is answered from its stored record.
        self._context.unpublish()
        try:
            found = await (
                find_operator(self._context.registry, self._deps, request, prepare)
                if is_dispatched
                else accept_session(self._context.registry, self._deps, request, command.caller.workspace_id, prepare)
            )
        except OutcomeUnknownError as error:
            await self._settle_unknown(error)
            envelope.fail(UnavailableError("the operator's workspace did not answer"))
        except ReloadRequestedError as error:
            envelope.fail_if_open(StoreUnavailableError(str(error)))  # another life wrote the row: nothing was assigned
            raise
        except (RefusedError, UnavailableError) as error:
            await self._durable.settle_deadline(self._now())
            envelope.fail(error)
        else:
            if isinstance(found, OperatorAssigned):
                envelope.reply(command, self._durable.adopt_assignment(found))
                return
            try:
                step = await self._durable.step(Assign(found.operator, is_dispatched))
                tuples, token = found.staged.in_commit, found.staged.token
                answer = await self._durable.commit_command(
                    step, command.caller, tuples=tuples, token=token, place=found.place
                )
            except Exception:
                # Released in the next turn, by the next life if this one ends, unless the row has it all the same.
                self._context.ref.tell(found, lane=Lane.CONTROL)
                raise
            envelope.reply(command, answer)

    async def _finish_start(self, outcome: StartOutcome) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            # The commit failed in an earlier life, which answered the caller; the row read since decides.
            release_video(self._context, self._deps, outcome, self._durable.session)
            return
        envelope, command = pending
        try:
            match outcome:
                case OperationFailed(error=OutcomeUnknownError() | ReloadRequestedError() as error):
                    raise error  # the row may have moved on: the next life reads it
                case OperationFailed(error=error):
                    await self._durable.settle_deadline(self._now())
                    envelope.fail(error)
                case VideoReady():
                    step = await self._durable.step(GoLive(outcome.video, outcome.hold_tx_hash))
                    answer = await self._durable.commit_command(step, command.caller)
                    envelope.reply(command, answer)
        except RefusedError as refused:
            envelope.fail_if_open(refused)
            release_video(self._context, self._deps, outcome, self._durable.session)
        except ReloadRequestedError as error:
            envelope.fail_if_open(StoreUnavailableError(str(error)))
            raise
        except Exception as error:
            envelope.fail_if_open(error)
            raise
        postponed, self._postponed = self._postponed, []
        for waiting, waiting_command in postponed:
            try:
                await self._command(waiting, waiting_command)
            except RefusedError as refused:
                waiting.fail(refused)

    async def _settle_unknown(self, error: OutcomeUnknownError) -> None:
        """Return if the assignment of unknown outcome is not stored and cannot be any more.

        The operator's workspace may be about to store it, after this actor would have read its row again. If its server
        is cut off, nobody tells this actor.
        """
        for pause_s in PREVENT_AGAIN_S:
            try:
                await self._durable.refuse_prepared()
            except (UnavailableError, OutcomeUnknownError):
                # For example the connection over which the assignment was stored has broken.
                await trio.sleep(pause_s)
            except ReloadRequestedError as stored:
                raise error from stored
            else:
                return
        raise error

    async def _check_claim(self, workspace_id: str) -> ClaimState:
        await self._durable.settle_deadline(self._now())
        if self._pending is not None:
            return ClaimState.PENDING
        claim_state = self._durable.claim_state_of(workspace_id)
        if claim_state is ClaimState.NEVER and await self._durable.is_behind():
            # The assignment was stored after this actor had read its row: the claim must not be released.
            raise ReloadRequestedError("the session's row has moved on", retry=True)
        return claim_state

    def _require_version(self, version: int) -> None:
        """Reload if another actor has stored a later version of the row, unless a pending operation will tell it."""
        session = self._durable.session
        if self._pending is not None:
            return
        if session is None or session.version < version:
            raise ReloadRequestedError("the session's row has moved on")

    def _require_no_gap(self, report: FixReported) -> None:
        """Reload if an earlier heartbeat was recorded and not reported: a later row would leave it out for ever."""
        session = self._durable.session
        if session is not None and isinstance(session.phase, Live) and follows_missed(session.phase, report):
            raise ReloadRequestedError("a report of a heartbeat was lost")

    # Acknowledgement of a dispatch.

    def _unacknowledged(self) -> Assigned | None:
        """The assignment by dispatch that its operator has not acknowledged."""
        phase = self._durable.session.phase if self._durable.session is not None else None
        if not isinstance(phase, Assigned) or not phase.is_dispatched or not self._deps.limits.dispatch_ack_ms:
            return None
        return phase if phase.assigned_at_ms != self._acknowledged_ms else None

    def _acknowledge(self, workspace_id: str) -> None:
        assigned = self._unacknowledged()
        if assigned is not None and assigned.operator.workspace_id == workspace_id:
            self._acknowledged_ms = assigned.assigned_at_ms

    async def _withdraw_silent(self, assigned_at_ms: int) -> None:
        """Withdraw the assignment of an operator that did not acknowledge it, and dispatch the session again."""
        assigned = self._unacknowledged()
        if assigned is None or assigned.assigned_at_ms != assigned_at_ms or self._pending is not None:
            return
        step = await self._durable.step(Withdraw())
        await self._durable.commit(step)
        if isinstance(step.session.phase, Requested):
            caller = Caller(workspace_id=step.session.terms.consumer_workspace_id)
            self._context.ref.tell(DispatchSession(caller))

    def _arm_acknowledgement(self) -> None:
        timers, ref, assigned = self._context.timers, self._context.ref, self._unacknowledged()
        if assigned is None:
            timers.cancel(ref, ACKNOWLEDGEMENT_TIMER)
        elif timers.due_ms(ref, ACKNOWLEDGEMENT_TIMER) is None:
            due_ms = self._now() + self._deps.limits.dispatch_ack_ms
            timers.set(ref, due_ms, AcknowledgementDue(assigned.assigned_at_ms), name=ACKNOWLEDGEMENT_TIMER)

    # Timers and video.

    def _reopen_video(self) -> None:
        session = self._durable.session
        if session is not None and isinstance(session.phase, Live):
            reopen_video(self._context, self._deps, session.id)

    def _now(self) -> int:
        return self._context.clock.now_ms()

    def _arm(self) -> None:
        self._arm_acknowledgement()
        session = self._durable.session
        due_ms = self._durable.due_ms(session) if session is not None else None
        if due_ms is None:
            self._context.timers.cancel(self._context.ref)
            if session is None or session.is_terminal:
                self._context.passivate()
        else:
            # In the data lane: evidence that was received before a deadline is handled before it.
            self._context.timers.set(self._context.ref, due_ms, Tick())
