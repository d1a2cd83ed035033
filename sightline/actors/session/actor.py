"""The session actor: owns one session's state, meter and deadlines.

Spoken to by the broker (commands), the operator's workspace (heartbeats), the media pump, the relayer and its timer.
Survives a crash by its row, its recorded events, and the heartbeats and media checkpoints recorded since: see
`durable_session`. What it does to others is in `session_effects`.

Work that must wait for others (finding an operator, creating the live input) is done by a helper beside the turns while
the command is *pending*: at most one is, later commands wait in `postponed` until it is through.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final, final

from sightline.actors.deps import WORKSPACE, Deps
from sightline.actors.dispatch.find_operator import claim_and_stage, find_operator
from sightline.actors.kernel.behaviour import Context
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import OverloadedError, ReloadRequestedError
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.messages import (
    AcceptSession,
    CancelSession,
    CheckClaim,
    ClaimStanding,
    CreateSession,
    DeadlineDue,
    DispatchSession,
    DropAssignment,
    EndSession,
    GetSession,
    HeartbeatTaken,
    MediaArrived,
    MediaWentAway,
    OperationFailed,
    OperatorFound,
    ReopenVideo,
    RestoreClaim,
    SettlementConfirmed,
    StartSession,
    VideoReady,
    VideoReopened,
)
from sightline.actors.refusals import NOT_PARTY
from sightline.actors.session.durable import DurableSession
from sightline.actors.session.effects import let_go, reopen_video
from sightline.actors.session.start_session import occupy_and_open
from sightline.actors.types import Answer, Caller
from sightline.domain.errors import InvariantError, RefusedError, StoreUnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session import machine
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    CancelAssignment,
    End,
    FixReported,
    GoLive,
    MediaBroke,
    MediaProved,
    Message,
    Party,
    SettlementMined,
    Tick,
)
from sightline.domain.session.model import Assigned, Live, Requested, Session
from sightline.domain.session.status import SessionStatus, parties_of
from sightline.ports.relations import TupleUpdate, consumer_edge
from sightline.ports.store import HoldRequest, IdempotencyRecord

POSTPONED_MAX: Final = 32


@final
class SessionActor:
    """One session."""

    def __init__(self, context: Context, deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._durable = DurableSession(context, deps)
        self._pending: Envelope | None = None
        self._postponed: list[Envelope] = []

    # The kernel's side.

    async def load(self) -> None:
        """Read the session, and make sure that its operator and its live input stand by it."""
        await self._durable.load()
        session = self._durable.session
        if session is None:
            return
        self._reopen_video()
        if isinstance(session.phase, Live | Assigned):
            is_live = isinstance(session.phase, Live)
            is_dispatched = isinstance(session.phase, Assigned) and session.phase.is_dispatched
            restore = RestoreClaim(self._context.id, is_live, is_dispatched)
            operator = self._context.registry.ref(WORKSPACE, session.phase.operator.workspace_id)
            operator.tell(restore, lane=Lane.CONTROL)
        self._arm()

    def snapshot(self) -> Session | None:
        """The session with all evidence that is durable."""
        return self._durable.session

    def may_passivate(self) -> bool:
        """Whether nothing is under way; a REQUESTED session is woken by its timer."""
        session = self._durable.session
        return self._pending is None and not (session is not None and isinstance(session.phase, Live | Assigned))

    async def handle(self, envelope: Envelope) -> None:
        """Take one turn."""
        message = envelope.message
        try:
            match message:
                case HeartbeatTaken(heartbeat=beat):
                    await self._durable.take_fact(FixReported(beat.fix, beat.sequence, beat.is_fresh))
                case MediaArrived(at_ms=at_ms):
                    await self._durable.take_fact(MediaProved(at_ms))
                case MediaWentAway(at_ms=at_ms):
                    await self._durable.take_fact(MediaBroke(at_ms))
                case DeadlineDue():
                    await self._durable.take_fact(Tick())
                case SettlementConfirmed(tx_hash=tx_hash):
                    await self._durable.take_fact(SettlementMined(tx_hash))
                    envelope.reply(True)  # asked, so that the relayer knows it is recorded
                case GetSession():
                    await self._get(envelope)
                case CheckClaim(workspace_id=workspace_id):
                    await self._check_claim(envelope, workspace_id)
                case ReopenVideo():
                    self._reopen_video()
                case VideoReopened(video=video):
                    self._durable.take_video(video)
                case OperatorFound() | VideoReady() | OperationFailed():
                    await self._finish_pending(message)
                case _:
                    await self._command(envelope)
        except RefusedError as refused:
            envelope.fail(refused)
        self._arm()

    # Commands.

    async def _command(self, envelope: Envelope) -> None:
        if self._pending is not None:
            if len(self._postponed) >= POSTPONED_MAX:
                envelope.fail(OverloadedError("too many commands wait for this session"))
                return
            self._postponed.append(envelope)
            return
        message = envelope.message
        if isinstance(message, CreateSession):
            envelope.reply(await self._create(message))
            return
        session = self._durable.require()
        match message:
            case DispatchSession(caller=caller):
                self._require(session, Party.CONSUMER, caller)
                await self._may(session, Requested)
                self._begin(envelope, lambda: find_operator(self._context.registry, self._deps, session))
            case AcceptSession(caller=caller):
                await self._may(session, Requested)
                workspace_id = caller.workspace_id
                self._begin(
                    envelope,
                    lambda: claim_and_stage(
                        self._context.registry, self._deps, session.id, workspace_id, is_dispatch=False
                    ),
                )
            case StartSession(caller=caller):
                self._require(session, Party.OPERATOR, caller)
                await self._may(session, Assigned)
                self._begin(envelope, lambda: occupy_and_open(self._context.registry, self._deps, session))
            case EndSession(caller=caller, sides=sides):
                mine = parties_of(session, caller.workspace_id)
                if not mine:
                    raise RefusedError(NOT_PARTY)
                if not mine & sides:
                    raise RefusedError(Refusal(Code.NOT_AUTHORIZED, "auth:scope"))
                by = Party.CONSUMER if Party.CONSUMER in mine & sides else Party.OPERATOR
                envelope.reply(await self._take(End(by), caller))
            case CancelSession(caller=caller):
                self._require(session, Party.CONSUMER, caller)
                envelope.reply(await self._take(Cancel(), caller))
            case DropAssignment():
                envelope.reply(await self._drop(session, message))
            case _:
                raise InvariantError(f"a session does not understand {type(message).__name__}")

    def _require(self, session: Session, party: Party, caller: Caller) -> None:
        if party not in parties_of(session, caller.workspace_id):
            raise RefusedError(NOT_PARTY)

    async def _may(self, session: Session, phase: type[Requested | Assigned]) -> None:
        """Refuse now what the machine would refuse after the waiting."""
        if await self._durable.settle_deadline(self._now()):
            raise RefusedError(machine.EXPIRED)
        if not isinstance(session.phase, phase):
            raise RefusedError(machine.wrong_state(session))

    async def _create(self, command: CreateSession) -> Answer[SessionStatus]:
        if self._durable.session is not None:
            raise ReloadRequestedError("the session exists already")
        step = machine.create(command.terms)
        terms = command.terms
        hold = HoldRequest(payer_address=terms.payer_address, amount=terms.hold, is_enforced=command.is_hold_enforced)
        staged = await self._deps.relations.stage([TupleUpdate(consumer_edge(terms.id, terms.consumer_workspace_id))])
        return await self._durable.commit_command(step, command.caller, tuples=staged.in_commit, hold=hold)

    async def _take(self, message: Message, caller: Caller) -> Answer[SessionStatus]:
        """Step by a command that needs nobody else, and answer with the session."""
        step = await self._durable.step(message)
        return await self._durable.commit_command(step, caller)

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

    # Operations that wait for others.

    def _begin(self, envelope: Envelope, work: Callable[[], Coroutine[Any, Any, OperatorFound | VideoReady]]) -> None:
        self._pending = envelope
        self._context.spawn(work, on_value=lambda done: done, on_error=OperationFailed, lane=Lane.CONTROL)

    async def _finish_pending(self, outcome: OperatorFound | VideoReady | OperationFailed) -> None:
        envelope, self._pending = self._pending, None
        if envelope is None:
            # Its commit failed in the last life, which answered the caller; the row that was read since is the truth.
            await let_go(self._context, self._deps, outcome, self._durable.session)
            return
        try:
            match outcome:
                case OperationFailed(error=error):
                    await self._durable.settle_deadline(self._now())
                    envelope.fail(error)
                case OperatorFound():
                    is_dispatched = isinstance(envelope.message, DispatchSession)
                    step = await self._durable.step(Assign(outcome.operator, is_dispatched))
                    tuples, token = outcome.staged.in_commit, outcome.staged.token
                    caller = envelope.message.caller
                    envelope.reply(await self._durable.commit_command(step, caller, tuples=tuples, token=token))
                case VideoReady():
                    step = await self._durable.step(GoLive(outcome.video))
                    envelope.reply(await self._durable.commit_command(step, envelope.message.caller))
        except RefusedError as refused:
            envelope.fail_if_open(refused)
            await let_go(self._context, self._deps, outcome, self._durable.session)
        except ReloadRequestedError as error:
            envelope.fail_if_open(StoreUnavailableError(str(error)))
            raise
        except Exception as error:
            envelope.fail_if_open(error)
            raise
        postponed, self._postponed = self._postponed, []
        for waiting in postponed:
            try:
                await self._command(waiting)
            except RefusedError as refused:
                waiting.fail(refused)

    # Questions.

    async def _get(self, envelope: Envelope) -> None:
        await self._durable.settle_deadline(self._now())
        envelope.reply(self._durable.session)

    async def _check_claim(self, envelope: Envelope, workspace_id: str) -> None:
        await self._durable.settle_deadline(self._now())
        is_pending = self._pending is not None
        envelope.reply(ClaimStanding.PENDING if is_pending else self._durable.standing_of(workspace_id))

    # Helpers.

    def _reopen_video(self) -> None:
        session = self._durable.session
        if session is not None and isinstance(session.phase, Live):
            reopen_video(self._context, self._deps, session.id)

    def _now(self) -> int:
        return self._context.clock.now_ms()

    def _arm(self) -> None:
        session = self._durable.session
        due_ms = self._durable.due_ms(session) if session is not None else None
        if due_ms is None:
            self._context.timers.cancel(self._context.ref)
            if session is None or session.is_terminal:
                self._context.passivate()
        else:
            self._context.timers.set(self._context.ref, due_ms, DeadlineDue(), lane=Lane.CONTROL)
