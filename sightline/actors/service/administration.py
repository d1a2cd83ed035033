"""What administrators do to sessions and workspaces of any tenant. The caller records each act in the audit log."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, final

import structlog

from sightline.actors.deps import Deps
from sightline.actors.kernel import Registry
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
from sightline.domain.value import Value, replace
from sightline.ports.administration import AdminStore, Refund, SessionFilter, SessionNote, Suspension
from sightline.ports.chain import RefundRequest
from sightline.ports.identity import RecordWithdrawal, record_nothing

UNFINISHED: Final = frozenset({SessionState.REQUESTED, SessionState.ASSIGNED, SessionState.LIVE})
SWEPT_MAX: Final = 1_000
NOT_CHARGED: Final = Refusal(Code.INVALID_STATE, "refunds:session", "The session has not been charged")

log = structlog.get_logger("sightline.administration")


@final
class RefundOrder(Value, kw_only=True):
    """How much of a session's charge to pay back, and why."""

    key: str
    amount_micro: int
    actor: str
    reason: str


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
        record: RecordWithdrawal = record_nothing,
    ) -> None:
        """`pay` transfers a refund on the chain."""
        self._registry = registry
        self._deps = deps
        self._broker = broker
        self._look_up = LookUp(registry, deps)
        self._store = store
        self._pay = pay
        self.suspensions = Suspensions(store, deps.clock, record)

    async def session(self, session_id: str) -> SessionHistory:
        """Read one session with its meter and recorded events, without renewing the consumer's lease.

        Its status names the credential that ended it, whichever side that belongs to; a party sees only its own.
        """
        session = await self._look_up.require_session(session_id)
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

    async def slugs(self, statuses: Iterable[SessionStatus]) -> Mapping[str, str]:
        """Read the slugs of both sides of sessions, by the id of the workspace."""
        sides = {each for s in statuses for each in (s.terms.consumer_workspace_id, s.operator_workspace_id) if each}
        return {each.id: each.slug for each in await self._broker.reads.workspaces(sorted(sides))}

    def _status(self, session: Session) -> SessionStatus:
        consumer = session.terms.consumer_workspace_id
        return session_status(session, self._deps.clock.now_ms(), self._deps.limits.session, consumer)

    async def end(self, session_id: str) -> Answer[SessionStatus]:
        """End a session now: a LIVE one is charged up to this instant, an earlier one is cancelled."""
        return await self._broker.end_by_platform(session_id)

    async def suspend(self, suspension: Suspension) -> Sequence[str]:
        """Refuse every call of a workspace from now on, and end its unfinished sessions.

        Returns:
            Ids of the sessions that were ended. `sweep` ends those that could not be ended now.
        """
        await self._look_up.require_workspace(suspension.workspace_id)
        await self.suspensions.add(suspension)
        return await self._end_all(suspension.workspace_id)

    async def unsuspend(self, workspace_id: str) -> None:
        """Accept calls of a workspace again. Its sessions stay ended, and an operator stays OFFLINE."""
        await self.suspensions.remove(workspace_id)

    async def sweep(self) -> None:
        """End unfinished sessions of suspended workspaces, such as one that was created during the suspension."""
        await self.suspensions.load()
        for workspace_id in self.suspensions.workspace_ids:
            await self._end_all(workspace_id)

    async def refund(self, session_id: str, order: RefundOrder) -> Refund:
        """Pay a part of a session's charge back to its payer. A repeat with the same key pays nothing more."""
        session = await self._look_up.require_session(session_id)
        if not isinstance(session.phase, Ended) or session.phase.charged == 0:
            raise RefusedError(NOT_CHARGED)
        return await self._pay(
            RefundRequest(
                session_id=session_id,
                key=order.key,
                to_address=session.terms.payer_address,
                amount_micro=order.amount_micro,
                charged_micro=session.phase.charged,
                actor=order.actor,
                reason=order.reason,
            )
        )

    async def note(self, note: SessionNote) -> None:
        """Append a note to a session."""
        await self._look_up.require_session(note.session_id)
        await self._store.add_note(note)

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
