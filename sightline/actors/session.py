"""The session actor: owns one session's state, meter and deadlines.

Spoken to by the broker (commands), the operator's workspace (heartbeats), the media pump, the relayer and its timer.
Survives a crash by its row, its recorded events, and the heartbeats and media checkpoints recorded since.

Work that must wait for others (finding an operator, creating the live input) is done by a helper beside the turns while
the command is *pending*: at most one is, later commands wait in `postponed` until it is through.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, final

import structlog
import trio

from sightline.actors.deps import SESSION, WORKSPACE, Deps
from sightline.actors.dispatching import claim_and_stage, find_operator
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
    FreeOperator,
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
    VacateOperator,
    VideoReady,
    VideoReopened,
)
from sightline.actors.starting import occupy_and_open, open_video
from sightline.actors.types import Answer, Caller
from sightline.domain.errors import InvariantError, RefusedError, SightlineError, StoreUnavailableError
from sightline.domain.metering import next_check_ms
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session import machine
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    CancelAssignment,
    ChargeHold,
    CloseVideo,
    End,
    FixReported,
    GoLive,
    MediaBroke,
    MediaProved,
    Message,
    Party,
    ReleaseHold,
    ReleaseOperator,
    Settle,
    SettlementMined,
    Step,
    Tick,
)
from sightline.domain.session.model import Assigned, Live, Requested, Session
from sightline.domain.session.record import chain
from sightline.domain.views import View, parties_of, session_view, start_view
from sightline.ports.relations import TupleUpdate, consumer_edge
from sightline.ports.store import (
    HoldRequest,
    IdempotencyRecord,
    RecordedEvent,
    Rejected,
    RejectedWhy,
    SessionWrite,
)

POSTPONED_MAX: Final = 32
REOPEN_DELAY_MS: Final = 2_000
VIDEO_TIMER: Final = "video"

NOT_FOUND = Refusal(Code.SESSION_NOT_FOUND)
NOT_PARTY = Refusal(Code.NOT_AUTHORIZED, "session:workspaceMismatch")

log = structlog.get_logger("sightline.session")


@final
class SessionActor:
    """One session."""

    def __init__(self, context: Context, deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._limits = deps.limits.session
        self._session: Session | None = None
        self._pending: Envelope | None = None
        self._postponed: deque[Envelope] = deque()

    # The kernel's side.

    async def load(self) -> None:
        """Read the session, and take in what was recorded about it since its row was written."""
        stored = await self._deps.store.load_session(self._context.id)
        if stored is None:
            return
        self._session = stored.session
        if isinstance(stored.session.phase, Live):
            if stored.media_proved_at_ms is not None:
                self._session = machine.recover_media(stored.session, stored.media_proved_at_ms, self._limits)
            for heartbeat in stored.heartbeats:
                await self._apply(
                    FixReported(heartbeat.fix, heartbeat.sequence, heartbeat.is_fresh), at_ms=heartbeat.fix.at_ms
                )
        await self._settle_deadline(self._now())
        if isinstance(self._session.phase, Live):
            self._reopen_video()
        if isinstance(self._session.phase, Live | Assigned):
            is_live = isinstance(self._session.phase, Live)
            is_dispatched = isinstance(self._session.phase, Assigned) and self._session.phase.is_dispatched
            restore = RestoreClaim(self._context.id, is_live, is_dispatched)
            self._tell_operator(self._session.phase.operator.workspace_id, restore)
        self._arm()

    def snapshot(self) -> Session | None:
        """The session with all evidence that is durable."""
        return self._session

    def may_passivate(self) -> bool:
        """Whether nothing is under way; a REQUESTED session is woken by its timer."""
        return self._pending is None and not (
            self._session is not None and isinstance(self._session.phase, Live | Assigned)
        )

    async def handle(self, envelope: Envelope) -> None:
        """Take one turn."""
        message = envelope.message
        try:
            match message:
                case HeartbeatTaken(heartbeat=beat):
                    await self._fact(FixReported(beat.fix, beat.sequence, beat.is_fresh))
                case MediaArrived(at_ms=at_ms):
                    await self._fact(MediaProved(at_ms))
                case MediaWentAway(at_ms=at_ms):
                    await self._fact(MediaBroke(at_ms))
                case DeadlineDue():
                    await self._fact(Tick())
                case SettlementConfirmed(tx_hash=tx_hash):
                    await self._fact(SettlementMined(tx_hash))
                    envelope.reply(True)  # asked, so that the relayer knows it is recorded
                case GetSession():
                    await self._get(envelope)
                case CheckClaim(workspace_id=workspace_id):
                    await self._settle_deadline(self._now())
                    envelope.reply(self._standing(workspace_id))
                case ReopenVideo():
                    self._reopen_video()
                case VideoReopened(video=video):
                    self._take_video(video)
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
        session = self._existing()
        match message:
            case DispatchSession(caller=caller):
                await self._require(session, Party.CONSUMER, caller)
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
                await self._require(session, Party.OPERATOR, caller)
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
                await self._require(session, Party.CONSUMER, caller)
                envelope.reply(await self._take(Cancel(), caller))
            case DropAssignment():
                envelope.reply(await self._drop(session, message))
            case _:
                raise InvariantError(f"a session does not understand {type(message).__name__}")

    def _existing(self) -> Session:
        if self._session is None:
            raise RefusedError(NOT_FOUND)
        return self._session

    async def _require(self, session: Session, party: Party, caller: Caller) -> None:
        if party not in parties_of(session, caller.workspace_id):
            raise RefusedError(NOT_PARTY)

    async def _may(self, session: Session, phase: type[Requested | Assigned]) -> None:
        """Refuse now what the machine would refuse after the waiting."""
        if await self._settle_deadline(self._now()):
            raise RefusedError(machine.EXPIRED)
        if not isinstance(session.phase, phase):
            raise RefusedError(machine.wrong_state(session))

    async def _create(self, command: CreateSession) -> Answer:
        if self._session is not None:
            raise ReloadRequestedError("the session exists already")
        step = machine.create(command.terms)
        terms = command.terms
        hold = HoldRequest(payer_address=terms.payer_address, amount=terms.hold, is_enforced=command.is_hold_enforced)
        staged = await self._deps.relations.stage([TupleUpdate(consumer_edge(terms.id, terms.consumer_workspace_id))])
        return await self._commit_command(step, command.caller, tuples=staged.in_commit, hold=hold)

    async def _take(self, message: Message, caller: Caller) -> Answer:
        """Step by a command that needs nobody else, and answer with the session."""
        step = await self._step(message)
        return await self._commit_command(step, caller)

    async def _drop(self, session: Session, command: DropAssignment) -> bool:
        if Party.OPERATOR not in parties_of(session, command.workspace_id):
            return False
        try:
            step = await self._step(CancelAssignment())
        except RefusedError:
            return False
        record = None
        if command.mark is not None:
            record = IdempotencyRecord(key=command.mark, result={}, at_ms=self._now())
        await self._commit(step, record=record)
        return True

    async def _step(self, message: Message) -> Step:
        """Take a command's step; a refusal is raised, after making a passed deadline durable."""
        session = self._existing()
        now_ms = self._now()
        result = machine.step(session, message, now_ms, self._limits)
        if isinstance(result, Refusal):
            await self._settle_deadline(now_ms)
            raise RefusedError(result)
        return result

    # Operations that wait for others.

    def _begin(self, envelope: Envelope, work: Callable[[], Coroutine[Any, Any, OperatorFound | VideoReady]]) -> None:
        self._pending = envelope
        self._context.spawn(work, on_value=lambda done: done, on_error=OperationFailed, lane=Lane.CONTROL)

    async def _finish_pending(self, outcome: OperatorFound | VideoReady | OperationFailed) -> None:
        envelope, self._pending = self._pending, None
        if envelope is None:
            # Its commit failed in the last life, which answered the caller; the row that was read since is the truth.
            await self._let_go(outcome)
            return
        try:
            match outcome:
                case OperationFailed(error=error):
                    await self._settle_deadline(self._now())
                    envelope.fail(error)
                case OperatorFound():
                    is_dispatched = isinstance(envelope.message, DispatchSession)
                    step = await self._step(Assign(outcome.operator, is_dispatched))
                    tuples, token = outcome.staged.in_commit, outcome.staged.token
                    caller = envelope.message.caller
                    envelope.reply(await self._commit_command(step, caller, tuples=tuples, token=token))
                case VideoReady():
                    step = await self._step(GoLive(outcome.video))
                    envelope.reply(await self._commit_command(step, envelope.message.caller, is_start=True))
        except RefusedError as refused:
            envelope.fail_if_open(refused)
            await self._let_go(outcome)
        except ReloadRequestedError as error:
            envelope.fail_if_open(StoreUnavailableError(str(error)))
            raise
        except Exception as error:
            envelope.fail_if_open(error)
            raise
        postponed, self._postponed = self._postponed, deque()
        while postponed:
            waiting = postponed.popleft()
            try:
                await self._command(waiting)
            except RefusedError as refused:
                waiting.fail(refused)

    async def _let_go(self, outcome: OperatorFound | VideoReady | OperationFailed) -> None:
        """Give back what an operation has taken, unless the session stands by it."""
        phase = self._session.phase if self._session is not None else None
        operator = phase.operator if isinstance(phase, Assigned | Live) else None
        match outcome:
            case OperatorFound(operator=found, staged=staged):
                if operator is not None and operator.workspace_id == found.workspace_id:
                    return
                self._tell_operator(found.workspace_id, FreeOperator(self._context.id))
                if staged.undo:
                    await self._undo(staged.undo)
            case VideoReady(video=video) if not isinstance(phase, Live):
                if operator is not None:
                    self._tell_operator(operator.workspace_id, VacateOperator(self._context.id))
                self._close_video(video.ref)
            case VideoReady() | OperationFailed():
                pass

    async def _undo(self, updates: tuple[TupleUpdate, ...]) -> None:
        """Take edges back that stand in the graph for an assignment that did not come about."""
        try:
            with trio.fail_after(self._deps.limits.ask_timeout_s):
                await self._deps.relations.write(updates)
        except (SightlineError, trio.TooSlowError) as error:
            log.warning("relation_undo_failed", error=str(error))

    # Facts.

    async def _fact(self, message: Message) -> None:
        if self._session is None:
            return
        await self._apply(message, at_ms=self._now())

    async def _apply(self, message: Message, *, at_ms: int) -> None:
        session = self._session
        assert session is not None
        result = machine.step(session, message, at_ms, self._limits)
        assert isinstance(result, Step), "a fact cannot be refused"
        if result.events:
            await self._commit(result, at_ms=at_ms)
        else:
            self._session = result.session

    async def _settle_deadline(self, now_ms: int) -> bool:
        """Make a passed deadline durable; True if there was one."""
        session = self._session
        late = machine.settle_deadline(session, now_ms, self._limits) if session is not None else None
        if late is None:
            return False
        await self._commit(late, at_ms=now_ms)
        return True

    async def _get(self, envelope: Envelope) -> None:
        await self._settle_deadline(self._now())
        envelope.reply(self._session)

    def _standing(self, workspace_id: str) -> ClaimStanding:
        if self._pending is not None:
            return ClaimStanding.PENDING
        phase = self._session.phase if self._session is not None else None
        if self._session is None or Party.OPERATOR not in parties_of(self._session, workspace_id):
            return ClaimStanding.NEVER
        if not isinstance(phase, Assigned | Live):
            return ClaimStanding.GONE
        return ClaimStanding.LIVE if isinstance(phase, Live) else ClaimStanding.ASSIGNED

    # Durability.

    async def _commit_command(
        self,
        step: Step,
        caller: Caller,
        *,
        tuples: tuple[TupleUpdate, ...] = (),
        hold: HoldRequest | None = None,
        token: str | None = None,
        is_start: bool = False,
    ) -> Answer:
        """Store a command's step with the answer it is given, so that a repeat of the call gives it again."""
        now_ms = self._now()
        sides = parties_of(step.session, caller.workspace_id)
        view: View = session_view(step.session, now_ms, self._limits, sides)
        data = start_view(step.session, view) if is_start else view
        record = None
        if caller.idempotency is not None:
            record = IdempotencyRecord(key=caller.idempotency, result={"data": data, "token": token}, at_ms=now_ms)
        revision = await self._commit(step, at_ms=now_ms, tuples=tuples, hold=hold, record=record)
        if token is None and revision is not None:
            token = self._deps.relations.token_for(revision)
        if isinstance(step.session.phase, Assigned):
            data = {**data, "consistencyToken": token}
        return Answer(data, now_ms)

    async def _commit(
        self,
        step: Step,
        *,
        at_ms: int | None = None,
        tuples: tuple[TupleUpdate, ...] = (),
        hold: HoldRequest | None = None,
        record: IdempotencyRecord | None = None,
    ) -> int | None:
        """Store a step, then carry out its effects. Returns the relations graph's revision, if tuples were written."""
        session, recorded = chain(step.session, step.events)
        charged = next((effect.charged for effect in step.effects if isinstance(effect, ChargeHold)), None)
        payload = next((effect.payload for effect in step.effects if isinstance(effect, Settle)), None)
        write = SessionWrite(
            lease=self._deps.lease(session.id),
            session=session,
            at_ms=self._now() if at_ms is None else at_ms,
            due_at_ms=self._due_ms(session),
            events=tuple(RecordedEvent(sequence, event, digest) for sequence, event, digest in recorded),
            take_hold=hold,
            charge_hold=charged,
            release_hold=any(isinstance(effect, ReleaseHold) for effect in step.effects),
            settle=payload,
            consume_quote=session.terms.quote_id if session.version == 0 else None,
            tuples=tuples,
            idempotency=record,
        )
        result = await self._deps.store.write_session(write)
        if isinstance(result, Rejected):
            raise _rejected(result)
        self._session = replace(session, version=result.version)
        self._after_commit(step, session)
        return result.revision

    def _after_commit(self, step: Step, session: Session) -> None:
        for effect in step.effects:
            match effect:
                case ReleaseOperator(workspace_id=workspace_id, start_timed_out=timed_out):
                    self._tell_operator(workspace_id, FreeOperator(session.id, timed_out))
                case CloseVideo(ref=ref):
                    self._close_video(ref)
                case Settle():
                    self._deps.on_settlement()
                case ReleaseHold() | ChargeHold():
                    pass  # done in the transaction
        self._deps.watchers.notify(SESSION, session.id)
        if session.operator is not None:
            self._deps.watchers.notify(WORKSPACE, session.operator.workspace_id, related=session.id)

    def _tell_operator(self, workspace_id: str, message: object) -> None:
        self._context.registry.ref(WORKSPACE, workspace_id).tell(message, lane=Lane.CONTROL)

    # The live input.

    def _close_video(self, ref: str) -> None:
        self._context.spawn(
            lambda: self._deps.video.close_input(ref),
            on_value=lambda _done: None,
            on_error=lambda error: log.warning("video_close_failed", error=str(error)),
        )

    def _reopen_video(self) -> None:
        session = self._session
        if session is None or not isinstance(session.phase, Live):
            return
        at_ms = self._now() + REOPEN_DELAY_MS
        self._context.spawn(
            lambda: open_video(self._deps, session.id),
            on_value=VideoReopened,
            on_error=lambda _error: self._context.timers.set(self._context.ref, at_ms, ReopenVideo(), name=VIDEO_TIMER),
        )

    def _take_video(self, video: Any) -> None:
        """The URLs may have moved with the server's address; what is stored is only their last known form."""
        session = self._session
        if session is not None and isinstance(session.phase, Live):
            self._session = replace(session, phase=replace(session.phase, video=video))

    # Time.

    def _now(self) -> int:
        return self._context.clock.now_ms()

    def _due_ms(self, session: Session) -> int | None:
        deadline = machine.deadline_ms(session)
        if deadline is None or not isinstance(session.phase, Live):
            return deadline
        return min(deadline, next_check_ms(session.phase.evidence, self._now(), self._limits.meter))

    def _arm(self) -> None:
        session = self._session
        due_ms = self._due_ms(session) if session is not None else None
        if due_ms is None:
            self._context.timers.cancel(self._context.ref)
            if self._session is None or self._session.is_terminal:
                self._context.passivate()
        else:
            self._context.timers.set(self._context.ref, due_ms, DeadlineDue(), lane=Lane.CONTROL)


def _rejected(rejected: Rejected) -> Exception:
    """What the store's decision means for the turn."""
    match rejected.why:
        case RejectedWhy.QUOTE_CONSUMED:
            return RefusedError(Refusal(Code.INVALID_STATE, "pricing:quoteConsumed", "The quote has been used"))
        case RejectedWhy.FUNDS:
            message = "The wallet's balance and allowance do not cover the hold"
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "session:funds", message))
        case RejectedWhy.VERSION:
            return ReloadRequestedError("the session's row has moved on", retry=True)
        case RejectedWhy.FENCED:
            return StoreUnavailableError("this server no longer owns the session")
        case RejectedWhy.IDEMPOTENT:
            return RefusedError(
                Refusal(Code.CONFLICT, "idempotency:inProgress", "The same call is being handled", retry_after_s=1)
            )
        case RejectedWhy.SLUG_TAKEN:
            return InvariantError("a session has no slug")
