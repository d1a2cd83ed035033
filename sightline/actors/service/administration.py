"""What administrators do to sessions and workspaces of any tenant. The caller records each act in the audit log."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, final

import structlog
import trio

from sightline.actors.deps import Deps
from sightline.actors.kernel import Registry
from sightline.actors.refusals import SESSION_NOT_FOUND
from sightline.actors.service.broker import Broker
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.suspensions import Suspensions
from sightline.actors.types import Answer, Caller, SessionHistory
from sightline.domain.errors import RefusedError
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Ended, Session, SessionState
from sightline.domain.session.status import SessionStatus, session_status
from sightline.domain.settlement import SettlementPayload
from sightline.domain.value import Value, replace
from sightline.ports.administration import AdminStore, Refund, SessionFilter, SessionNote, Suspension
from sightline.ports.chain import RefundRequest
from sightline.ports.identity import RecordWithdrawal, record_nothing
from sightline.ports.ledger import SettlementRecord, SettlementState

UNFINISHED: Final = frozenset({SessionState.REQUESTED, SessionState.ASSIGNED, SessionState.LIVE})
SWEPT_MAX: Final = 1_000
ASKED_AT_ONCE: Final = 32
CONDUCTS_S: Final = 3.0
"""How long a list of workspaces waits for what the dispatcher knows of them."""
ON_ITS_WAY: Final = frozenset(
    {SettlementState.COMPOSED, SettlementState.SIGNED, SettlementState.SENT, SettlementState.MINED}
)
PAYMENT_S: Final = 10.0
"""Longest time that a refund waits until the session's payment is confirmed, which takes seconds on most chains."""
PAYMENT_LOOK_S: Final = 0.2
_NO_SUCH_SESSION: Final = "No session has this id: `sightline admin sessions` lists them"
_WRITTEN_OFF: Final = "The charge was written off: no payment of it is known, and there is nothing to refund"
_ELSEWHERE: Final = "The chain took the payment of another wallet (`sightline settlements`): it is not paid back here"

log = structlog.get_logger("sightline.administration")


@final
class RefundOrder(Value, kw_only=True):
    """How much of a session's charge to pay back, and why."""

    key: str
    amount_micro: int
    actor: str
    reason: str


@final
class LiftedSuspension(Value, kw_only=True):
    """What the end of a suspension found."""

    was_suspended: bool
    is_operator: bool
    """Whether the workspace is an operator, which stays OFFLINE."""


@final
class Administration:
    """Ends, suspends, refunds and notes."""

    def __init__(
        self,
        registry: Registry,
        deps: Deps,
        broker: Broker,
        store: AdminStore,
        pay: Callable[[RefundRequest], Awaitable[Refund]],
        settlement_of: Callable[[str], Awaitable[SettlementRecord | None]],
        record: RecordWithdrawal = record_nothing,
    ) -> None:
        """Create it.

        Args:
            pay: Transfers a refund on the chain.
            settlement_of: Reads the settlement of a session.
        """
        self._registry = registry
        self._deps = deps
        self._broker = broker
        self._look_up = LookUp(registry, deps)
        self._store = store
        self._pay = pay
        self._settlement_of = settlement_of
        self.suspensions = Suspensions(store, deps.clock, record)

    async def session(self, session_id: str) -> SessionHistory:
        """Read one session with its meter and recorded events, without renewing the consumer's lease.

        Its status names the credential that ended it, whichever side that belongs to; a party sees only its own.
        """
        session = await self._require(session_id)
        answer = await self._broker.reads.history_of(session, session.terms.consumer_workspace_id)
        status = replace(answer.value.status, ended_by=session.ended_by, messages_shown=session.messages_shown)
        return replace(answer.value, status=status)

    async def sessions(self, wanted: SessionFilter) -> Sequence[SessionStatus]:
        """List sessions of all workspaces, newest first."""
        found = await self._store.list_sessions(wanted)
        newer = await self._broker.snapshots.sessions(session.id for session in found if not session.is_terminal)
        return [self._status(newer.get(session.id, session)) for session in found]

    async def workspaces(self, *, slug: str | None, limit: int) -> Sequence[Workspace]:
        """List workspaces by slug as their owners see them; `slug` selects those that start with it."""
        found = await self._store.list_workspaces(slug=slug, limit=limit)
        newer = await self._broker.snapshots.workspaces(each.id for each in found)
        return [newer.get(each.id, each) for each in found]

    async def passed_over_until(self, found: Sequence[Workspace]) -> Mapping[str, int | None]:
        """Until when operators are passed over for no-shows, by id; None as in `Reads.passed_over_until`."""
        until_ms: dict[str, int | None] = dict.fromkeys(each.id for each in found)
        limiter = trio.CapacityLimiter(ASKED_AT_ONCE)

        async def ask(workspace: Workspace) -> None:
            async with limiter:
                until_ms[workspace.id] = await self._broker.reads.passed_over_until(workspace)

        with trio.move_on_after(CONDUCTS_S):
            async with trio.open_nursery() as asking:
                for each in found:
                    asking.start_soon(ask, each)
        return until_ms

    async def slugs(self, statuses: Iterable[SessionStatus]) -> Mapping[str, str]:
        """Read the slugs of both sides of sessions, by the id of the workspace."""
        sides = {each for s in statuses for each in (s.terms.consumer_workspace_id, s.operator_workspace_id) if each}
        return {each.id: each.slug for each in await self._broker.reads.workspaces(sorted(sides))}

    def _status(self, session: Session) -> SessionStatus:
        consumer = session.terms.consumer_workspace_id
        return session_status(session, self._deps.clock.now_ms(), self._deps.limits.session, consumer)

    async def end(self, session_id: str) -> Answer[SessionStatus]:
        """End a session now: a LIVE one is charged up to this instant, an earlier one is cancelled."""
        session = await self._require(session_id)
        if session.is_terminal:
            message = f"The session is {session.state.value} already: `sightline admin session {session_id}` says why"
            raise RefusedError(Refusal(Code.INVALID_STATE, "session:state", message, state=session.state))
        return await self._broker.end_by_platform(session_id)

    async def suspend(self, suspension: Suspension) -> Sequence[str]:
        """Refuse every call of a workspace from now on, and end its unfinished sessions.

        Returns:
            Ids of the sessions that were ended. `sweep` ends those that could not be ended now.
        """
        await self._look_up.require_workspace(suspension.workspace_id)
        await self.suspensions.add(suspension)
        return await self._end_all(suspension.workspace_id)

    async def unsuspend(self, workspace_id: str) -> LiftedSuspension:
        """Accept calls of a workspace again. Its sessions stay ended, and an operator stays OFFLINE."""
        workspace = await self._look_up.require_workspace(workspace_id)
        was_suspended = await self.suspensions.remove(workspace_id)
        return LiftedSuspension(was_suspended=was_suspended, is_operator=workspace.is_supplier)

    async def sweep(self) -> None:
        """End unfinished sessions of suspended workspaces, such as one that was created during the suspension."""
        await self.suspensions.load()
        for workspace_id in self.suspensions.workspace_ids:
            await self._end_all(workspace_id)

    async def refund(self, session_id: str, order: RefundOrder) -> Refund:
        """Pay a part of what a session's payer paid back to it. A repeat with the same key pays nothing more.

        Raises:
            RefusedError: Nothing was paid for the session, or its payment is not confirmed.
        """
        session = await self._require(session_id)
        if not session.is_terminal:
            raise _not_refunded(
                f"The session is {session.state.value} and not charged yet: end it first, "
                f"`sightline admin end {session_id} --reason REASON`"
            )
        if not isinstance(session.phase, Ended) or session.phase.charged == 0:
            raise _not_refunded("Nothing was charged for the session: there is nothing to refund")
        return await self._pay(
            RefundRequest(
                session_id=session_id,
                key=order.key,
                to_address=session.terms.payer_address,
                amount_micro=order.amount_micro,
                charged_micro=paid_micro(await self._awaited_payment(session_id), session.terms.payer_address),
                actor=order.actor,
                reason=order.reason,
            )
        )

    async def _awaited_payment(self, session_id: str) -> SettlementRecord | None:
        """Read the settlement of a session; while its payment is not confirmed yet, wait up to PAYMENT_S for that."""
        record = await self._settlement_of(session_id)
        with trio.move_on_after(PAYMENT_S):
            while record is not None and record.state in ON_ITS_WAY:
                await trio.sleep(PAYMENT_LOOK_S)
                record = await self._settlement_of(session_id)
        return record

    async def note(self, note: SessionNote) -> None:
        """Append a note to a session."""
        await self._require(note.session_id)
        await self._store.add_note(note)

    async def _require(self, session_id: str) -> Session:
        """Read a session.

        Raises:
            RefusedError: No session has this id.
        """
        session = await self._look_up.find_session(session_id)
        if session is None:
            raise RefusedError(replace(SESSION_NOT_FOUND, message=_NO_SUCH_SESSION))
        return session

    async def _end_all(self, workspace_id: str) -> list[str]:
        wanted = SessionFilter(states=UNFINISHED, workspace_id=workspace_id, limit=SWEPT_MAX)
        ended: list[str] = []
        for session in await self._store.list_sessions(wanted):
            try:
                await self.end(session.id)
            except RefusedError:
                continue  # it has ended by itself since it was listed
            ended.append(session.id)
        await self._take_offline(workspace_id)
        if ended:
            log.warning("sessions_ended_by_suspension", workspace_id=workspace_id, sessions=len(ended))
        return ended

    async def _take_offline(self, workspace_id: str) -> None:
        workspace = await self._look_up.require_workspace(workspace_id)
        if workspace.is_supplier and workspace.availability is not Availability.OFFLINE:
            try:
                caller = Caller(workspace_id=workspace_id)
                await self._broker.patch_workspace(workspace_id, caller, Patch(availability=Availability.OFFLINE))
            except RefusedError as error:
                log.warning("suspended_operator_not_offline", workspace_id=workspace_id, reason=str(error))


def paid_micro(record: SettlementRecord | None, payer: str) -> int:
    """What the payer of an ended session has paid, in micro-USDC, by a settlement that is final.

    Raises:
        RefusedError: It has paid nothing, or not yet.
    """
    match record:
        case SettlementRecord(state=SettlementState.CONFIRMED):
            return record.total
        case SettlementRecord(state=SettlementState.MISMATCHED, on_chain=SettlementPayload() as on_chain):
            if on_chain.from_address.lower() != payer.lower():
                raise _not_refunded(_ELSEWHERE)
            return on_chain.to_amount + on_chain.fee_amount
        case SettlementRecord(state=SettlementState.WRITTEN_OFF):
            raise _not_refunded(_WRITTEN_OFF)
        case SettlementRecord(state=SettlementState.FAILED | SettlementState.REVERTED as state):
            raise _not_refunded(
                f"The charge has not been paid, its settlement is {state} ({record.reason}): write it off instead, "
                f"`sightline write-off {record.session_id} REASON`"
            )
        case SettlementRecord(state=SettlementState.STUCK):
            raise _not_refunded("The payment is STUCK, not confirmed: `sightline settlements` says why")
        case SettlementRecord(state=SettlementState.MISMATCHED):
            raise _not_refunded(
                "The settlement is MISMATCHED, and what the chain took is not known: `sightline settlements` says more"
            )
        case None:
            raise _not_refunded(
                "No payment of the session is recorded. `sightline reconcile` lists those that are on the chain only"
            )
        case _:
            raise _not_refunded(f"The payment is {record.state}, not confirmed yet: try again in some seconds")


def _not_refunded(message: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_STATE, "refunds:session", message))
