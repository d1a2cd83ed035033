"""The administrators' calls: /internal/admin. Every act is recorded in the audit log.

Whoever has the token of the internal listener is an administrator. The actor is the account that owns the other end of
the connection, as the kernel says; the name that the caller gives is part of the reason (docs/ops/administration.md).
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

from sightline.actors.service.administration import Administration, RefundOrder
from sightline.domain.refusal import Code
from sightline.domain.session.model import EndReason, SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.value import Value
from sightline.http.audit import Act, Audit, acts_of
from sightline.http.budgets import RateClass
from sightline.http.internal.peer_account import account_of
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.routes import Param, Route
from sightline.http.schemas.admin import (
    ActBody,
    AuditQuery,
    FindKeyBody,
    RefundBody,
    SessionsQuery,
    WorkspacesQuery,
    admin_history_json,
    admin_session_json,
    admin_workspace_json,
    audit_json,
    note_json,
    refund_json,
    suspension_json,
)
from sightline.http.schemas.workspaces import api_key_json
from sightline.identity.api_keys import ApiKeys
from sightline.ports.administration import (
    AdminStore,
    AuditAction,
    AuditEntry,
    AuditOutcome,
    SessionFilter,
    SessionNote,
    Suspension,
)
from sightline.ports.chain import ChainConfig
from sightline.ports.ledger import Ledger

T = TypeVar("T")
TAG: Final = "admin"
_SESSIONS: Final = "/internal/admin/sessions"
_WORKSPACES: Final = "/internal/admin/workspaces"
_KEYS: Final = _WORKSPACES + "/{id}/keys"
_SUSPENSIONS: Final = frozenset({AuditAction.WORKSPACE_SUSPEND, AuditAction.WORKSPACE_UNSUSPEND})
_READ_AT_ONCE: Final = 1_000
_NO_SESSION: Final = (Code.SESSION_NOT_FOUND, Code.INVALID_STATE)


def actor_of(call: Call) -> str:
    """Who makes a call of an administrator, as far as this machine can tell."""
    account = account_of(call.client)
    return f"account {account}" if account is not None else f"internal token, from {call.client[0]}"


def _named(call: Call) -> str:
    """Who acts, as people read it: the name that the caller gives, with what this machine can tell."""
    body: ActBody = call.body
    return f"{body.operator} ({actor_of(call)})"


@final
class SettledBooks(Value):
    """Where a session's settlement is read, and on which chain it is."""

    ledger: Ledger
    chain: ChainConfig


@final
class AdminResources:
    """/internal/admin."""

    def __init__(
        self, administration: Administration, store: AdminStore, audit: Audit, books: SettledBooks, api_keys: ApiKeys
    ) -> None:
        self._administration = administration
        self._api_keys = api_keys
        self._books = books
        self._store = store
        self._audit = audit

    @Route(
        "GET",
        _SESSIONS,
        "adminListSessions",
        TAG,
        "Sessions of all workspaces",
        query=SessionsQuery,
        rate=RateClass.NONE,
    )
    async def sessions(self, call: Call) -> Reply:
        """Newest first."""
        query: SessionsQuery = call.query
        states = frozenset() if query.state is None else frozenset({SessionState(query.state)})
        wanted = SessionFilter(states=states, workspace_id=query.workspace_id, limit=query.limit)
        found = await self._administration.sessions(wanted)
        slugs = await self._administration.slugs(found)
        return Reply({"items": [admin_session_json(status, slugs) for status in found]})

    @Route(
        "GET",
        _SESSIONS + "/{id}",
        "adminGetSession",
        TAG,
        "A session with its events, meter, settlement, notes, refunds and the acts of administrators",
        params={"id": Param.UUID},
        rate=RateClass.NONE,
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def session(self, call: Call) -> Reply:
        """Everything that is known about it, except media URLs and the consumer's metadata."""
        session_id = call.params["id"]
        history = await self._administration.session(session_id)
        slugs = await self._administration.slugs([history.status])
        shown = admin_history_json(history, await self._books.ledger.settlement(session_id), self._books.chain, slugs)
        notes, refunds = await self._store.notes(session_id), await self._store.refunds(session_id)
        acts = await self._acts_on(history.status)
        more = {"notes": [note_json(note) for note in notes], "refunds": [refund_json(each) for each in refunds]}
        return Reply(shown | more | {"acts": [audit_json(act) for act in acts]})

    @Route(
        "POST",
        _SESSIONS + "/{id}/end",
        "adminEndSession",
        TAG,
        "End a session now",
        params={"id": Param.UUID},
        body=ActBody,
        rate=RateClass.NONE,
        errors=_NO_SESSION,
    )
    async def end(self, call: Call) -> Reply:
        """A LIVE session is charged up to this instant; an earlier one is cancelled."""
        session_id = call.params["id"]
        answer = await self._act(
            call, AuditAction.SESSION_END, f"session {session_id}", lambda: self._administration.end(session_id)
        )
        return Reply(admin_session_json(answer.value, await self._administration.slugs([answer.value])))

    @Route(
        "POST",
        _SESSIONS + "/{id}/notes",
        "adminAddNote",
        TAG,
        "Write a note on a session, for example about a dispute; the reason is its text",
        params={"id": Param.UUID},
        body=ActBody,
        rate=RateClass.NONE,
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def note(self, call: Call) -> Reply:
        """Append it; notes are never changed."""
        body: ActBody = call.body
        note = SessionNote(
            session_id=call.params["id"], at_ms=self._audit.clock.now_ms(), actor=_named(call), text=body.reason
        )
        target = f"session {note.session_id}"
        await self._act(call, AuditAction.SESSION_NOTE, target, lambda: self._administration.note(note))
        return Reply(note_json(note))

    @Route(
        "POST",
        _SESSIONS + "/{id}/refund",
        "adminRefund",
        TAG,
        "Pay a part of a session's charge back to its payer, on the chain",
        params={"id": Param.UUID},
        body=RefundBody,
        rate=RateClass.NONE,
        errors=(*_NO_SESSION, Code.CONFLICT),
    )
    async def refund(self, call: Call) -> Reply:
        """A repeat with the same key answers the same refund."""
        body: RefundBody = call.body
        order = RefundOrder(
            key=body.key, amount_micro=int(body.amount_micro_usdc), actor=_named(call), reason=body.reason
        )
        session_id = call.params["id"]
        refund = await self._act(
            call,
            AuditAction.SESSION_REFUND,
            f"session {session_id}",
            lambda: self._administration.refund(session_id, order),
        )
        return Reply(refund_json(refund))

    @Route("GET", _WORKSPACES, "adminListWorkspaces", TAG, "All workspaces", query=WorkspacesQuery, rate=RateClass.NONE)
    async def workspaces(self, call: Call) -> Reply:
        """By slug."""
        query: WorkspacesQuery = call.query
        found = await self._administration.workspaces(slug=query.slug, limit=query.limit)
        suspension_of = self._administration.suspensions.of
        until_ms = await self._administration.passed_over_until(found)
        return Reply(
            {"items": [admin_workspace_json(each, suspension_of(each.id), until_ms[each.id]) for each in found]}
        )

    @Route(
        "POST",
        _WORKSPACES + "/{id}/suspend",
        "adminSuspend",
        TAG,
        "Refuse every call of a workspace and end its unfinished sessions",
        params={"id": Param.UUID},
        body=ActBody,
        rate=RateClass.NONE,
        errors=(Code.NOT_FOUND,),
    )
    async def suspend(self, call: Call) -> Reply:
        """A repeat keeps the first suspension, which the answer has, and ends what is unfinished."""
        body: ActBody = call.body
        workspace_id = call.params["id"]
        earlier = self._administration.suspensions.of(workspace_id)
        suspension = Suspension(
            workspace_id=workspace_id, at_ms=self._audit.clock.now_ms(), actor=_named(call), reason=body.reason
        )
        ended = await self._act(
            call,
            AuditAction.WORKSPACE_SUSPEND,
            f"workspace {workspace_id}",
            lambda: self._administration.suspend(suspension),
        )
        return Reply(
            {
                "workspaceId": workspace_id,
                "suspended": True,
                "endedSessions": list(ended),
                "wasSuspended": earlier is not None,
                "suspension": suspension_json(earlier or suspension),
            }
        )

    @Route(
        "POST",
        _WORKSPACES + "/{id}/unsuspend",
        "adminUnsuspend",
        TAG,
        "Accept calls of a workspace again",
        params={"id": Param.UUID},
        body=ActBody,
        rate=RateClass.NONE,
        errors=(Code.NOT_FOUND,),
    )
    async def unsuspend(self, call: Call) -> Reply:
        """Has no effect on a workspace that is not suspended; the answer says so."""
        workspace_id = call.params["id"]
        lifted = await self._act(
            call,
            AuditAction.WORKSPACE_UNSUSPEND,
            f"workspace {workspace_id}",
            lambda: self._administration.unsuspend(workspace_id),
        )
        return Reply(
            {
                "workspaceId": workspace_id,
                "suspended": False,
                "endedSessions": [],
                "wasSuspended": lifted.was_suspended,
                "isOperator": lifted.is_operator,
            }
        )

    @Route(
        "GET",
        _KEYS,
        "adminListKeys",
        TAG,
        "API keys of a workspace, revoked ones too",
        params={"id": Param.UUID},
        rate=RateClass.NONE,
    )
    async def keys(self, call: Call) -> Reply:
        """Newest first. Of each key only its beginning is shown."""
        records = await self._api_keys.keys_in(call.params["id"])
        return Reply({"items": [api_key_json(record) for record in records]})

    @Route(
        "POST",
        "/internal/admin/keys/find",
        "adminFindKey",
        TAG,
        "The record of a leaked API key",
        body=FindKeyBody,
        rate=RateClass.NONE,
        errors=(Code.NOT_FOUND,),
    )
    async def find_key(self, call: Call) -> Reply:
        """Its workspace, and whether it still works. Keys of x402 views and of share links are found too."""
        body: FindKeyBody = call.body
        return Reply(api_key_json(await self._api_keys.find(body.key)))

    @Route(
        "POST",
        _KEYS + "/{keyId}/revoke",
        "adminRevokeKey",
        TAG,
        "Revoke one API key; it works for 60 more seconds, an OAuth grant for 5",
        params={"id": Param.UUID, "keyId": Param.UUID},
        body=ActBody,
        rate=RateClass.NONE,
        errors=(Code.NOT_FOUND,),
    )
    async def revoke_key(self, call: Call) -> Reply:
        """A repeat answers the same."""
        body: ActBody = call.body
        workspace_id, key_id = call.params["id"], call.params["keyId"]
        act = Act(actor_of(call), AuditAction.KEY_REVOKE, f"workspace {workspace_id}", f"key {key_id}, {body.stated}")
        record = await self._audit.record(act, lambda: self._api_keys.revoke(workspace_id, key_id))
        return Reply(api_key_json(record))

    @Route(
        "GET",
        "/internal/admin/audit",
        "adminReadAudit",
        TAG,
        "Entries of the audit log",
        query=AuditQuery,
        rate=RateClass.NONE,
    )
    async def audit(self, call: Call) -> Reply:
        """In ascending order; `after` continues."""
        query: AuditQuery = call.query
        found = await self._audit.entries.entries(after_id=query.after, limit=query.limit, target=query.target)
        return Reply({"items": [audit_json(entry) for entry in found]})

    async def _acts_on(self, status: SessionStatus) -> list[AuditEntry]:
        """What administrators did to a session; if none of them ended it by name, the suspension that ended it."""
        acts = acts_of(await self._entries(f"session {status.terms.id}"))
        is_by_name = any(act.action is AuditAction.SESSION_END and act.outcome == AuditOutcome.DONE for act in acts)
        if status.ended_at_ms is None or status.end_reason is not EndReason.PLATFORM_ENDED or is_by_name:
            return acts
        for side in (status.terms.consumer_workspace_id, status.operator_workspace_id):
            entries = [] if side is None else await self._entries(f"workspace {side}")
            before = [act for act in acts_of(entries) if act.action in _SUSPENSIONS and act.at_ms <= status.ended_at_ms]
            if before and before[-1].action is AuditAction.WORKSPACE_SUSPEND:
                acts.append(before[-1])
        return sorted(acts, key=lambda act: act.id)

    async def _entries(self, target: str) -> list[AuditEntry]:
        """Every entry of the audit log about a target, oldest first."""
        entries: list[AuditEntry] = []
        while more := await self._audit.entries.entries(
            after_id=entries[-1].id if entries else 0, limit=_READ_AT_ONCE, target=target
        ):
            entries.extend(more)
        return entries

    async def _act(self, call: Call, action: AuditAction, target: str, work: Callable[[], Awaitable[T]]) -> T:
        body: ActBody = call.body
        return await self._audit.record(Act(actor_of(call), action, target, body.stated), work)
