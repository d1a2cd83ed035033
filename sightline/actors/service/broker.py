"""The broker: facade over the actors for the HTTP edge and the simulator. Its only state: dispatches in flight."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar, final
from uuid import UUID

from sightline.actors.answers import record_of, recorded_answer
from sightline.actors.deps import COMMAND_TIMEOUT_S, SESSION, WORKSPACE, Deps
from sightline.actors.kernel import Command, Registry
from sightline.actors.messages import (
    AcceptSession,
    CancelSession,
    CreateSession,
    CreateWorkspace,
    DeclineSession,
    DispatchSession,
    EndByPlatform,
    EndSession,
    ExtendSession,
    GetSession,
    GetWorkspace,
    MarkMessagesShown,
    PatchWorkspace,
    ReportHeartbeat,
    ReportHeartbeats,
    ResetLocation,
    SendToOperator,
    SessionMessage,
    StartSession,
)
from sightline.actors.other_servers import OtherServers
from sightline.actors.refusals import NOT_PARTY
from sightline.actors.service.coverage import CoverageMap
from sightline.actors.service.dispatch_caps import DispatchCaps
from sightline.actors.service.escrow import EXTEND_FOR_MS, EscrowService
from sightline.actors.service.idempotency import Replays
from sightline.actors.service.live_updates import LiveUpdates
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.pricing import Pricing
from sightline.actors.service.reads import Reads
from sightline.actors.service.snapshots import Snapshots
from sightline.actors.types import (
    Answer,
    BatchVerdict,
    Caller,
    CancelledAssignments,
    HeartbeatReport,
    NewExtension,
    NewSession,
    NewWorkspace,
)
from sightline.actors.workspace.cancel_assignments import assignments_to_drop, drop_assignment
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.escrow import START_RESERVE_MS, ConsentKind, PayerConsent
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.messages import Party
from sightline.domain.session.model import Live, Session, SessionExtension, Terms
from sightline.domain.session.status import SessionStatus
from sightline.domain.units import SECOND_MS, MicroUsdc, usdc_text
from sightline.domain.value import replace
from sightline.ports.store import IdempotencyKey

T = TypeVar("T")

CREATE_TIMEOUT_S: Final = 10.0
RELEASE_TIMEOUT_S: Final = 2.0

NOT_CONSUMER: Final = Refusal(Code.NOT_AUTHORIZED, "session:notConsumer", "The workspace is not a CONSUMER")


_NO_ESCROW = Refusal(Code.INVALID_STATE, "session:escrow", "This service holds no payments: leave out payment")
_NO_CONSENT = Refusal(
    Code.INSUFFICIENT_CREDIT,
    "session:consent",
    "This service holds the session's amount before it starts. Sign the terms of a quote and send them as payment, or "
    "give the workspace a mandate (PUT /wallet/mandate)",
)


_NO_EXTENSION_CONSENT = Refusal(
    Code.INSUFFICIENT_CREDIT,
    "session:consent",
    "The contract holds the amount of this session. Sign the terms of the extension (GET /sessions/{id}/extend/terms) "
    "and send them as payment, or give the workspace a mandate (PUT /wallet/mandate)",
)


def _extension_id(session_id: str, consent: PayerConsent | None, caller: Caller) -> str | None:
    """Return the id of an extension: repeats of a call have the same. None if nothing tells them apart."""
    if consent is not None and consent.exact is not None:
        basis = f"exact {consent.exact.nonce}"
    elif consent is not None and consent.kind is not ConsentKind.MANDATE:
        basis = f"{consent.kind} {consent.signature.lower()}"
    elif caller.idempotency is not None:
        basis = f"key {caller.idempotency.key}"
    else:
        return None
    digest = hashlib.sha256(f"extension {session_id} {basis}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=4))


def _dated(consent: PayerConsent | None, wait_deadline_ms: int) -> PayerConsent | None:
    """Return a consent with the time until when the hold may be opened. A payer who signs a mandate does not say it."""
    if consent is None or consent.kind is not ConsentKind.MANDATE:
        return consent
    return replace(consent, open_by_s=-(-(wait_deadline_ms + START_RESERVE_MS) // SECOND_MS))


@final
class Broker:
    """Commands to sessions and workspaces; queries, prices and subscriptions by its parts.

    A command with an idempotency key is answered from the record of an earlier call with that key, if there is one.

    Attributes:
        snapshots: Present states of many actors.
        reads: Queries of sessions and workspaces.
        pricing: Quotes and spot rates.
        coverage: Where operators are online.
        updates: Subscriptions to sessions and workspaces.
    """

    def __init__(self, registry: Registry, deps: Deps, others: OtherServers) -> None:
        self._registry = registry
        self._deps = deps
        self._replays = Replays(deps.store)
        self._look_up = LookUp(registry, deps)
        self._caps = DispatchCaps(registry, deps)
        self.snapshots = Snapshots(registry, others)
        self.reads = Reads(registry, deps, self._look_up, self.snapshots)
        self.pricing = Pricing(registry, deps)
        self.coverage = CoverageMap(registry, deps)
        self.escrow = EscrowService(deps, self._look_up, self.pricing)
        self.updates = LiveUpdates(deps.watchers, self._look_up, self.reads, deps.clock)

    # Sessions.

    async def create_session(self, caller: Caller, new: NewSession) -> Answer[SessionStatus]:
        """Create a session at the quoted rate, or at the spot rate."""
        workspace = await self._require_consumer(caller)

        async def create() -> Answer[SessionStatus]:
            self._deps.payment_hold.require_none()
            rate = new.paid.rate if new.paid else await self.pricing.rate_for(caller.workspace_id, new)
            hold = MicroUsdc(rate * new.max_duration_s)
            self.require_within_cap(rate, hold)
            _require_within_maximum(hold, new.max_hold)
            created_at_ms = self._now()
            # What the payer signs names the session: it has the id of its quote.
            consent = new.consent or await self.escrow.stored_consent(caller.workspace_id)
            signed_id = None if consent is None or consent.kind is ConsentKind.MANDATE else new.quote_id
            paid_id = new.paid.session_id if new.paid else None
            terms = Terms(
                id=paid_id or signed_id or self._deps.ids.uuid(),
                consumer_workspace_id=caller.workspace_id,
                payer_address=workspace.wallet_address,
                lat=new.lat,
                lng=new.lng,
                radius_m=new.radius_m,
                max_duration_s=new.max_duration_s,
                wait_timeout_s=new.wait_timeout_s,
                rate=rate,
                hold=hold,
                platform_fee_bps=self._deps.limits.platform_fee_bps,
                quote_id=new.quote_id,
                instructions=new.instructions,
                metadata_json=new.metadata_json,
                consumer_lease_s=new.consumer_lease_s,
                consent=_dated(consent, created_at_ms + new.wait_timeout_s * SECOND_MS),
                minimum_s=self._deps.limits.minimum_s,
                requires_coverage=new.requires_coverage,
                created_at_ms=created_at_ms,
            )
            await self._require_consent(terms)
            is_enforced = self._deps.limits.funds_policy != "advisory"
            return await self._ask_session(terms.id, CreateSession(terms, caller, is_enforced, new.spending))

        return await self._once(caller.idempotency, create)

    async def _require_consent(self, terms: Terms) -> None:
        """Refuse a session without a valid consent of its payer, where the escrow contract holds its amount."""
        if self._deps.escrow is None:
            if terms.consent is not None:
                raise RefusedError(_NO_ESCROW)
            return
        if terms.consent is None:
            raise RefusedError(_NO_CONSENT)
        await self._deps.escrow.require_consent(terms)

    def require_within_cap(self, rate: MicroUsdc, hold: MicroUsdc) -> None:
        """Refuse a session whose maximum charge the settlement contract would never accept."""
        cap = self._deps.limits.session_cap_micro
        if cap is not None and hold > cap:
            message = (
                f"This session may cost {hold} micro-USDC, but the settlement contract accepts at most {cap} for one "
                f"session. At this rate, ask for at most {cap // rate} seconds"
            )
            raise RefusedError(Refusal(Code.INVALID_INPUT, "session:cap", message, left_micro=cap))
        rate_max = self._deps.limits.rate_max_micro
        if rate_max is not None and rate > rate_max:
            message = f"The rate is {rate} micro-USDC a second; the escrow contract holds at most {rate_max}"
            raise RefusedError(Refusal(Code.INVALID_INPUT, "session:rate", message))

    async def dispatch(self, session_id: str, caller: Caller) -> Answer[SessionStatus]:
        """Assign the longest-idle operator.

        Raises:
            RefusedError: RATE_LIMITED: too many dispatched sessions of the consumer are not started, or were abandoned.
        """

        async def dispatch() -> Answer[SessionStatus]:
            self._deps.payment_hold.require_none()
            try:
                async with self._caps.admitted(caller.workspace_id, session_id):
                    return await self._ask_session(session_id, DispatchSession(caller))
            except RefusedError as refused:
                # Asked only now: the workspace may be on another server, and the session's consumer is one.
                if refused.refusal == NOT_PARTY:
                    await self._require_consumer(caller)
                raise

        return await self._once(caller.idempotency, dispatch, self._turn_of_session(session_id))

    async def accept(self, session_id: str, caller: Caller, operator_workspace_id: str) -> Answer[SessionStatus]:
        """Assign the caller's own workspace."""

        async def accept() -> Answer[SessionStatus]:
            await self._look_up.require_session(session_id)
            if operator_workspace_id != caller.workspace_id:
                raise RefusedError(NOT_PARTY)
            await self._look_up.require_operator(caller.workspace_id)
            self._deps.payment_hold.require_none()
            return await self._ask_session(session_id, AcceptSession(caller))

        return await self._once(caller.idempotency, accept, self._turn_of_session(session_id))

    async def start(self, session_id: str, caller: Caller) -> Answer[SessionStatus]:
        """Go live."""

        async def start() -> Answer[SessionStatus]:
            self._deps.payment_hold.require_none()
            try:
                return await self._ask_session(session_id, StartSession(caller))
            except RefusedError as refused:
                if refused.refusal == NOT_PARTY:
                    await self._look_up.require_operator(caller.workspace_id)
                raise

        return await self._once(caller.idempotency, start, self._turn_of_session(session_id))

    async def decline(self, session_id: str, caller: Caller) -> Answer[SessionStatus]:
        """Refuse an assignment; the request is open again for other operators."""

        async def decline() -> Answer[SessionStatus]:
            answer = await self._ask_session(session_id, DeclineSession(caller))
            await self._await_release(caller.workspace_id)
            return answer

        return await self._once(caller.idempotency, decline, self._turn_of_session(session_id))

    async def extend(self, session_id: str, caller: Caller, new: NewExtension) -> Answer[SessionStatus]:
        """Add time to a LIVE session, at its rate."""

        async def extend() -> Answer[SessionStatus]:
            self._deps.payment_hold.require_none()
            session = await self._look_up.require_session(session_id)
            if session.terms.consumer_workspace_id != caller.workspace_id:
                raise RefusedError(NOT_PARTY)
            extension = await self._extension(session, caller, new)
            is_enforced = self._deps.limits.funds_policy == "enforced"
            return await self._ask_session(session_id, ExtendSession(extension, caller, is_enforced, new.spending))

        return await self._once(caller.idempotency, extend, self._turn_of_session(session_id))

    async def message(self, session_id: str, caller: Caller, text: str) -> Answer[SessionStatus]:
        """Send a short text to the operator of a LIVE session."""
        send = partial(self._ask_session, session_id, SendToOperator(text, caller))
        return await self._once(caller.idempotency, send, self._turn_of_session(session_id))

    async def mark_shown(self, session_id: str, caller: Caller, number: int) -> Answer[SessionStatus]:
        """Record that the operator's device has shown the messages up to `number`. A repeat changes nothing."""
        return await self._ask_session(session_id, MarkMessagesShown(number, caller))

    async def _extension(self, session: Session, caller: Caller, new: NewExtension) -> SessionExtension:
        """Return the extension that a call asks for. Its id follows from the payment, else from the idempotency key."""
        terms = session.terms
        amount = MicroUsdc(terms.rate * new.seconds)
        consent = new.consent
        if consent is None and terms.consent is not None:
            consent = await self.escrow.stored_consent(caller.workspace_id)
        extension = SessionExtension(
            id=_extension_id(session.id, consent, caller) or self._deps.ids.uuid(),
            seconds=new.seconds,
            amount=amount,
            consent=_dated(consent, self._now() + EXTEND_FOR_MS - START_RESERVE_MS),
        )
        asked = () if session.extending is None else (session.extending,)
        if any(known.id == extension.id for known in (*session.extensions, *asked)):
            return extension  # a repeat: what was signed may be used by now
        hold = MicroUsdc(terms.hold + amount)
        self.require_within_cap(terms.rate, hold)
        _require_within_maximum(hold, new.max_hold)
        if terms.consent is None and consent is not None:
            raise RefusedError(_NO_ESCROW)
        if terms.consent is not None and isinstance(session.phase, Live):
            assert self._deps.escrow is not None, "a session has a consent only where its amount is held"
            if consent is None:
                raise RefusedError(_NO_EXTENSION_CONSENT)
            await self._deps.escrow.require_extension(session, extension)
        return extension

    async def end(
        self, session_id: str, caller: Caller, sides: frozenset[Party], credential: str | None = None
    ) -> Answer[SessionStatus]:
        """End the session, for one of the parties that the credential belongs to."""

        async def end() -> Answer[SessionStatus]:
            answer = await self._ask_session(session_id, EndSession(caller, sides, credential))
            operator = answer.value.operator_workspace_id
            if operator is not None:
                await self._await_release(operator)
            return answer

        return await self._once(caller.idempotency, end, self._turn_of_session(session_id))

    async def end_by_platform(self, session_id: str) -> Answer[SessionStatus]:
        """End a session for an administrator, whatever its state is."""
        await self._look_up.require_session(session_id)
        answer = await self._ask_session(session_id, EndByPlatform())
        if answer.value.operator_workspace_id is not None:
            await self._await_release(answer.value.operator_workspace_id)
        return answer

    async def cancel(self, session_id: str, caller: Caller) -> Answer[SessionStatus]:
        """Withdraw a request."""
        cancel = partial(self._ask_session, session_id, CancelSession(caller))
        return await self._once(caller.idempotency, cancel, self._turn_of_session(session_id))

    async def cancel_all(self, caller: Caller) -> Answer[CancelledAssignments]:
        """Cancel every assignment of the caller's workspace."""

        async def cancel_all() -> Answer[CancelledAssignments]:
            await self._look_up.require_operator(caller.workspace_id)
            wanted = await assignments_to_drop(self._deps, caller)
            dropped = [
                session_id
                for session_id in wanted
                if await drop_assignment(self._registry, self._deps, session_id, caller)
            ]
            await self._await_release(caller.workspace_id)
            answer = Answer(CancelledAssignments(tuple(dropped)), self._now())
            if caller.idempotency is not None:
                await self._deps.store.record_idempotent(record_of(caller.idempotency, answer))
            return answer

        return await self._once(caller.idempotency, cancel_all)

    # Workspaces.

    async def create_workspace(
        self, prove: Callable[[], Awaitable[NewWorkspace]], key: IdempotencyKey | None = None
    ) -> Answer[Workspace]:
        """Create a workspace; its wallet becomes the OWNER.

        Args:
            prove: Returns the workspace to create, its wallet proved. Not called when the call is a repeat.
        """

        async def create() -> Answer[Workspace]:
            new = await prove()
            workspace_id = new.id or self._deps.ids.uuid()
            workspace = self._registry.ref(WORKSPACE, workspace_id)
            command = CreateWorkspace(new, Caller(workspace_id=workspace_id, idempotency=key))
            answer: Answer[Workspace] = await workspace.ask(command, timeout_s=CREATE_TIMEOUT_S)
            return answer

        return await self._once(key, create)

    async def patch_workspace(self, workspace_id: str, caller: Caller, patch: Patch) -> Answer[Workspace]:
        """Change a workspace."""
        return await self._ask_workspace(workspace_id, PatchWorkspace(patch, caller))

    async def reset_location(self, workspace_id: str, caller: Caller) -> Answer[Workspace]:
        """Accept heartbeats of any sequence again; those recorded so far stay."""
        return await self._ask_workspace(workspace_id, ResetLocation(caller))

    async def heartbeat(
        self, workspace_id: str, report: HeartbeatReport, key: IdempotencyKey | None = None
    ) -> Answer[Workspace]:
        """Accept one heartbeat; returns once it is durable, together with the answer when the call has a key."""
        ask = partial(
            self._registry.ref(WORKSPACE, workspace_id).ask,
            ReportHeartbeat(report, key),
            timeout_s=self._deps.limits.ask_timeout_s,
            conflate_key="heartbeat",
        )
        return await ask() if key is None else await self._once(key, ask)

    async def heartbeats(
        self, workspace_id: str, reports: Sequence[HeartbeatReport], key: IdempotencyKey | None = None
    ) -> Answer[BatchVerdict]:
        """Accept several heartbeats in order; returns once the accepted ones are durable."""
        ask = partial(
            self._registry.ref(WORKSPACE, workspace_id).ask,
            ReportHeartbeats(tuple(reports), key),
            timeout_s=self._deps.limits.ask_timeout_s,
        )
        return await ask() if key is None else await self._once(key, ask)

    # Helpers.

    async def _require_consumer(self, caller: Caller) -> Workspace:
        workspace = await self._look_up.require_workspace(caller.workspace_id)
        if not workspace.is_consumer:
            raise RefusedError(NOT_CONSUMER)
        return workspace

    def _now(self) -> int:
        return self._deps.clock.now_ms()

    async def _once(
        self,
        key: IdempotencyKey | None,
        act: Callable[[], Awaitable[Answer[T]]],
        catch_up: Callable[[], Awaitable[object]] | None = None,
    ) -> Answer[T]:
        answer_of = partial(recorded_answer, relations=self._deps.relations)
        return await self._replays.once(key, act, answer_of, catch_up)

    def _turn_of_session(self, session_id: str) -> Callable[[], Awaitable[object]]:
        """A question to the session that is answered after its present turn."""
        return partial(self._registry.ref(SESSION, session_id).ask, GetSession(), timeout_s=COMMAND_TIMEOUT_S)

    async def _ask_session(
        self, session_id: str, command: Command[SessionMessage, Answer[SessionStatus]]
    ) -> Answer[SessionStatus]:
        return await self._registry.ref(SESSION, session_id).ask(command, timeout_s=COMMAND_TIMEOUT_S)

    async def _ask_workspace(self, workspace_id: str, command: PatchWorkspace | ResetLocation) -> Answer[Workspace]:
        workspace = self._registry.ref(WORKSPACE, workspace_id)

        async def ask() -> Answer[Workspace]:
            answer: Answer[Workspace] = await workspace.ask(command, timeout_s=COMMAND_TIMEOUT_S)
            return answer

        turn = partial(workspace.ask, GetWorkspace(), timeout_s=COMMAND_TIMEOUT_S)
        return await self._once(command.caller.idempotency, ask, turn)

    async def _await_release(self, workspace_id: str) -> None:
        """Wait until the operator's workspace has handled its release, so that the next read shows it free."""
        with suppress(SightlineError):
            await self._registry.ref(WORKSPACE, workspace_id).ask(GetWorkspace(), timeout_s=RELEASE_TIMEOUT_S)


def _require_within_maximum(hold: MicroUsdc, maximum: MicroUsdc | None) -> None:
    """Refuse a session that may cost more than its caller agreed to."""
    if maximum is not None and hold > maximum:
        message = (
            f"The session could cost {usdc_text(hold)} USDC, above the caller's maximum of {usdc_text(maximum)} USDC. "
            "Nothing was done; ask for fewer seconds, or raise the maximum"
        )
        raise RefusedError(Refusal(Code.CONFLICT, "pricing:aboveMaximum", message))
