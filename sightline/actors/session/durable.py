"""Persists each transition of a session before publishing it.

The shard's epoch is read once, when the actor loads: after the shard moved, writes with this epoch are refused.
"""

from typing import final

from sightline.actors.answers import record_of
from sightline.actors.deps import Deps
from sightline.actors.kernel import Context
from sightline.actors.messages import ClaimState, OperatorAssigned, PreparedAssignment, SessionMessage
from sightline.actors.refusals import SESSION_NOT_FOUND
from sightline.actors.session.effects import carry_out
from sightline.actors.types import Answer, Caller, OperatorPlace
from sightline.actors.write_rejections import session_rejected
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Refusal
from sightline.domain.session import machine
from sightline.domain.session.messages import Assign, ChargeHold, FixReported, Message, Party, ReleaseHold, Settle, Step
from sightline.domain.session.model import Assigned, Live, Operator, Session, VideoInput
from sightline.domain.session.record import chain
from sightline.domain.session.status import SessionStatus, parties_of, session_status
from sightline.domain.value import replace
from sightline.ports.relations import TupleUpdate, operator_edge
from sightline.ports.store import HoldGrowth, HoldRequest, IdempotencyRecord, RecordedEvent, Rejected, SessionWrite


@final
class DurableSession:
    """The session of one actor."""

    __slots__ = ("_context", "_deps", "_lease", "_limits", "session")

    def __init__(self, context: Context[SessionMessage], deps: Deps) -> None:
        self._context = context
        self._deps = deps
        self._limits = deps.limits.session
        self._lease = deps.owned.lease(context.id)
        self.session: Session | None = None
        """The session with all durable evidence; None before it is created."""

    async def load(self) -> None:
        """Read the session's row and apply the evidence recorded since."""
        stored = await self._deps.store.load_session(self._context.id)
        if stored is None:
            return
        self.session = stored.session
        now_ms = self._now()
        heartbeats = [FixReported(beat.fix, beat.sequence, beat.is_fresh) for beat in stored.heartbeats]
        step = machine.recover(stored.session, stored.media, heartbeats, now_ms, self._limits)
        if step.events:
            await self.commit(step, at_ms=now_ms)
        else:
            self.session = step.session

    def require(self) -> Session:
        """The session.

        Raises:
            RefusedError: SESSION_NOT_FOUND.
        """
        if self.session is None:
            raise RefusedError(SESSION_NOT_FOUND)
        return self.session

    def due_ms(self, session: Session) -> int | None:
        """When the session's next deadline or pause is due, in ms; None in a terminal state."""
        return machine.next_due_ms(session, self._now(), self._limits)

    async def is_behind(self) -> bool:
        """Whether the stored row has moved on without this actor."""
        stored = await self._deps.store.load_session(self._context.id)
        return stored is not None and (self.session is None or stored.session.version != self.session.version)

    def claim_state_of(self, workspace_id: str) -> ClaimState:
        """How the session stands to a workspace's claim on it."""
        session = self.session
        if session is None or Party.OPERATOR not in parties_of(session, workspace_id):
            return ClaimState.NEVER
        if not isinstance(session.phase, Assigned | Live):
            return ClaimState.GONE
        return ClaimState.LIVE if isinstance(session.phase, Live) else ClaimState.ASSIGNED

    # Steps.

    async def step(self, message: Message) -> Step:
        """Take a command's step.

        Raises:
            RefusedError: The machine refuses it; a passed deadline has been made durable.
        """
        session = self.require()
        now_ms = self._now()
        result = machine.step(session, message, now_ms, self._limits)
        if isinstance(result, Refusal):
            await self.settle_deadline(now_ms)
            raise RefusedError(result)
        return result

    async def take_fact(self, message: Message) -> None:
        """Take a fact's step; ignored if the session does not exist."""
        if self.session is None:
            return
        await self._apply(message, at_ms=self._now())

    async def _apply(self, message: Message, *, at_ms: int) -> None:
        session = self.session
        assert session is not None
        result = machine.step(session, message, at_ms, self._limits)
        assert isinstance(result, Step), "a fact cannot be refused"
        if result.must_be_stored:
            await self.commit(result, at_ms=at_ms)
        else:
            self.session = result.session

    async def settle_deadline(self, now_ms: int) -> bool:
        """Make a passed deadline durable; returns whether there was one."""
        session = self.session
        late = machine.settle_deadline(session, now_ms, self._limits) if session is not None else None
        if late is None:
            return False
        await self.commit(late, at_ms=now_ms)
        return True

    def take_video(self, video: VideoInput) -> None:
        """Set where the live input is now.

        Its URLs follow the server's address; the row keeps those of the start.
        """
        session = self.session
        if session is not None and isinstance(session.phase, Live):
            self.session = replace(session, phase=replace(session.phase, video=video))

    # Durability.

    def prepare_assignment(
        self, operator: Operator, place: OperatorPlace, idle_since_ms: int = 0, *, is_dispatched: bool, caller: Caller
    ) -> PreparedAssignment:
        """Prepare the assignment of an operator; nothing is stored.

        Args:
            place: Where the operator is; part of the answer.
            idle_since_ms: The assignment begins now, but not before this time of the operator's workspace.

        Raises:
            RefusedError: The machine refuses it.
        """
        session, now_ms = self.require(), max(self._now(), idle_since_ms)
        step = machine.step(session, Assign(operator, is_dispatched), now_ms, self._limits)
        if isinstance(step, Refusal):
            raise RefusedError(step)
        status = session_status(step.session, now_ms, self._limits, caller.workspace_id)
        answer = Answer(place.shown_in(status), now_ms)
        record = record_of(caller.idempotency, answer) if caller.idempotency is not None else None
        edge = TupleUpdate(operator_edge(session.id, operator.workspace_id))
        write = self._write(step, now_ms, tuples=(edge,), record=record)
        return PreparedAssignment(step, write, answer)

    def adopt_assignment(self, assigned: OperatorAssigned) -> Answer[SessionStatus]:
        """Publish an assignment that is stored; returns its answer."""
        prepared, committed = assigned.prepared, assigned.committed
        self._committed(prepared.step, prepared.write, committed.version)
        assert committed.revision is not None, "an assignment writes its relation"
        return replace(prepared.answer, token=self._deps.relations.token_for(committed.revision))

    async def commit_command(
        self,
        step: Step,
        caller: Caller,
        *,
        tuples: tuple[TupleUpdate, ...] = (),
        hold: HoldRequest | None = None,
        growth: HoldGrowth | None = None,
        token: str | None = None,
        place: OperatorPlace | None = None,
    ) -> Answer[SessionStatus]:
        """Store a command's step together with its answer, from which a repeat of the call is answered."""
        now_ms = self._now()
        status = session_status(step.session, now_ms, self._limits, caller.workspace_id)
        answer = Answer(status if place is None else place.shown_in(status), now_ms, token)
        record = record_of(caller.idempotency, answer) if caller.idempotency is not None else None
        revision = await self.commit(step, at_ms=now_ms, tuples=tuples, hold=hold, growth=growth, record=record)
        if isinstance(step.session.phase, Assigned) and token is None and revision is not None:
            return replace(answer, token=self._deps.relations.token_for(revision))
        return answer

    async def refuse_prepared(self) -> None:
        """Store the session unchanged as a new version, so that an assignment which was prepared before is not stored.

        Raises:
            ReloadRequestedError: The row has moved on: the assignment is stored.
            StoreUnavailableError, OutcomeUnknownError: The assignment may still be stored.
        """
        await self.commit(Step(self.require()))

    async def commit(
        self,
        step: Step,
        *,
        at_ms: int | None = None,
        tuples: tuple[TupleUpdate, ...] = (),
        hold: HoldRequest | None = None,
        growth: HoldGrowth | None = None,
        record: IdempotencyRecord | None = None,
    ) -> int | None:
        """Store a step, then carry out its effects; returns the relations graph's revision if tuples were written."""
        at_ms = self._now() if at_ms is None else at_ms
        write = self._write(step, at_ms, tuples=tuples, hold=hold, growth=growth, record=record)
        result = await self._deps.store.write_session(write)
        if isinstance(result, Rejected):
            if growth is not None:
                raise session_rejected(result, self.require().terms, growth.amount)
            raise session_rejected(result, None if hold is None else step.session.terms)
        self._committed(step, write, result.version)
        return result.revision

    def _write(
        self,
        step: Step,
        at_ms: int,
        *,
        tuples: tuple[TupleUpdate, ...] = (),
        hold: HoldRequest | None = None,
        growth: HoldGrowth | None = None,
        record: IdempotencyRecord | None = None,
    ) -> SessionWrite:
        """The write that stores a step."""
        session, recorded = chain(step.session, step.events)
        charged = next((effect.charged for effect in step.effects if isinstance(effect, ChargeHold)), None)
        payload = next((effect.payload for effect in step.effects if isinstance(effect, Settle)), None)
        return SessionWrite(
            lease=self._lease,
            session=session,
            at_ms=at_ms,
            due_at_ms=self.due_ms(session),
            events=tuple(RecordedEvent(sequence, event, digest) for sequence, event, digest in recorded),
            take_hold=hold,
            grow_hold=growth,
            charge_hold=charged,
            release_hold=any(isinstance(effect, ReleaseHold) for effect in step.effects),
            settle=payload,
            consume_quote=session.terms.quote_id if session.version == 0 else None,
            tuples=tuples,
            idempotency=record,
        )

    def _committed(self, step: Step, write: SessionWrite, version: int) -> None:
        """Publish a stored step and carry out its effects."""
        self.session = replace(write.session, version=version)
        for event in step.events:
            reason = next((str(value) for name, value in event.facts if name == "reason"), "")
            self._deps.event_counts[event.kind.value, reason] += 1
        carry_out(self._context, self._deps, step, write.session)

    def _now(self) -> int:
        return self._context.clock.now_ms()
