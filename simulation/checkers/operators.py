"""Checks of operators: at most one LIVE session, BUSY only while a session needs it, no double dispatch."""

from __future__ import annotations

from typing import ClassVar, Final, final

from sightline.domain.operator.model import Availability, Workspace
from sightline.domain.session.model import Assigned, Live, SessionState
from sightline.domain.session.status import SessionStatus
from sightline.ports.relations import OPERATOR_WORKSPACE, operator_edge
from simulation.history import CallReply, Checker, SessionStep, WorkspaceStep

REPAIR_MS: Final = 120_000
"""How long a claim and its session may disagree while a server runs: several reconciliations, and a slow store."""
OPEN: Final = frozenset({SessionState.ASSIGNED, SessionState.LIVE})


@final
class OneLive(Checker):
    """An operator is in at most one LIVE session, and is claimed for it when it goes live."""

    name: ClassVar[str] = "one live"

    def __init__(self) -> None:
        self._live: dict[str, str] = {}

    def on_session(self, step: SessionStep) -> None:
        session, operator = step.after, step.after.operator
        if operator is None:
            return
        if not isinstance(session.phase, Live):
            if self._live.get(operator.workspace_id) == session.id:
                del self._live[operator.workspace_id]
            return
        other = self._live.setdefault(operator.workspace_id, session.id)
        self.require(other == session.id, f"operator {operator.workspace_id} is live in {other} and in {session.id}")
        if step.before is not None and step.before.state is SessionState.ASSIGNED:
            claim = self.history.workspaces[operator.workspace_id].claims.get(session.id)
            self.require(
                claim is not None and claim.is_live, f"{session.id} went live on an operator that is not occupied"
            )


@final
class DispatchPairs(Checker):
    """No operator is dispatched to two sessions at once."""

    name: ClassVar[str] = "dispatch pairs"

    def __init__(self) -> None:
        self._dispatched: dict[str, str] = {}

    def on_reply(self, reply: CallReply) -> None:
        if reply.what != "dispatch" or reply.outcome != "ok" or reply.session_id is None:
            return
        assert isinstance(reply.value, SessionStatus)
        operator = reply.value.operator_workspace_id
        assert operator is not None
        other = self._dispatched.get(operator)
        if other is not None and other != reply.session_id and self._has(other, operator):
            message = f"operator {operator} was dispatched to {other} and to {reply.session_id}"
            self.require(not self._has(reply.session_id, operator), message)
        self._dispatched[operator] = reply.session_id

    def _has(self, session_id: str, operator_id: str) -> bool:
        """Whether a session has this operator now; after a START_TIMEOUT it may have another one."""
        session = self.history.sessions[session_id]
        return session.state in OPEN and session.operator is not None and session.operator.workspace_id == operator_id


@final
class OneDispatch(Checker):
    """An operator is not dispatched while a session that it was dispatched to, or that is LIVE, still has it.

    What counts is the moment of the claim. Where the relations graph is kept apart, the assignment is stored later, and
    the operator may start a session that it had accepted in between.
    """

    name: ClassVar[str] = "one dispatch"

    def __init__(self) -> None:
        self._occupied: dict[str, set[str]] = {}
        self._at_claim: dict[tuple[str, str], set[str]] = {}
        """By (operator, session): other sessions that the operator was dispatched to or LIVE in when it was claimed."""

    def on_workspace(self, step: WorkspaceStep) -> None:
        workspace, before = step.after, step.before.claims if step.before is not None else {}
        for session_id, claim in workspace.claims.items():
            if claim.is_dispatched and session_id not in before:
                others = self._occupied.get(workspace.id, set()) - {session_id}
                self._at_claim[workspace.id, session_id] = others

    def on_session(self, step: SessionStep) -> None:
        session, phase = step.after, step.after.phase
        for sessions in self._occupied.values():
            sessions.discard(session.id)
        if not isinstance(phase, Live) and not (isinstance(phase, Assigned) and phase.is_dispatched):
            return
        sessions = self._occupied.setdefault(phase.operator.workspace_id, set())
        if isinstance(phase, Assigned) and (step.before is None or step.before.phase != phase):
            had = self._at_claim.pop((phase.operator.workspace_id, session.id), sessions)
            text = f"operator {phase.operator.workspace_id} was dispatched to {session.id} and is in {sorted(had)}"
            self.require(not had, text)
        sessions.add(session.id)


@final
class Busy(Checker):
    """An operator's claims are its ASSIGNED and LIVE sessions, and BUSY requires one. Disagreements are short."""

    name: ClassVar[str] = "busy"

    def __init__(self) -> None:
        self._disagreed_since: dict[str, int] = {}
        self._open: dict[str, dict[str, bool]] = {}

    def on_workspace(self, step: WorkspaceStep) -> None:
        workspace = step.after
        if workspace.availability is Availability.BUSY:
            self.require(bool(workspace.claims), f"operator {workspace.id} is BUSY with nothing")
        if any(claim.is_live for claim in workspace.claims.values()):
            self.require(workspace.availability is Availability.BUSY, f"operator {workspace.id} is live and not BUSY")
        self._compare(workspace.id, step.at_ms)

    def on_session(self, step: SessionStep) -> None:
        operator = step.after.operator
        before = step.before.operator if step.before is not None else None
        if before is not None and (operator is None or operator.workspace_id != before.workspace_id):
            self._open.get(before.workspace_id, {}).pop(step.after.id, None)
            self._compare(before.workspace_id, step.at_ms)
        if operator is None:
            return
        sessions = self._open.setdefault(operator.workspace_id, {})
        if isinstance(step.after.phase, Assigned | Live):
            sessions[step.after.id] = isinstance(step.after.phase, Live)
        else:
            sessions.pop(step.after.id, None)
        self._compare(operator.workspace_id, step.at_ms)

    def _compare(self, workspace_id: str, at_ms: int) -> None:
        if self._agrees(self.history.workspaces[workspace_id]):
            self._disagreed_since.pop(workspace_id, None)
        else:
            self._disagreed_since.setdefault(workspace_id, at_ms)

    def _agrees(self, workspace: Workspace) -> bool:
        claims = {claim.session_id: claim.is_live for claim in workspace.claims.values()}
        return claims == self._open.get(workspace.id, {})

    def on_time(self, now_ms: int) -> None:
        for workspace_id, since_ms in self._disagreed_since.items():
            if now_ms - max(since_ms, self.history.truth.stopped_ms) > REPAIR_MS:
                self._complain(workspace_id, "for too long")

    def on_end(self) -> None:
        for workspace in self.history.workspaces.values():
            if not self._agrees(workspace):
                self._complain(workspace.id, "after the quiet phase")
            self.require(
                workspace.availability is not Availability.BUSY,
                f"operator {workspace.id} is BUSY after the quiet phase",
            )

    def _complain(self, workspace_id: str, when: str) -> None:
        workspace = self.history.workspaces[workspace_id]
        claims = sorted(workspace.claims)
        self.fail(f"operator {workspace_id} claims {claims}, its sessions are {self._open.get(workspace_id)} {when}")


@final
class RelationsAgree(Checker):
    """A session has its operator's authorization edge from the assignment on, and at the end no other operator's."""

    name: ClassVar[str] = "relations"

    def on_session(self, step: SessionStep) -> None:
        if isinstance(step.after.phase, Assigned):
            edge = operator_edge(step.after.id, step.after.phase.operator.workspace_id)
            graph = self.history.store._relations
            self.require(edge in graph._edges, f"session {step.after.id} is assigned without its relation")

    def on_end(self) -> None:
        for edge in sorted(self.history.store._relations._edges):
            if edge.relation != OPERATOR_WORKSPACE:
                continue
            session = self.history.sessions.get(edge.resource.id)
            operator = session.operator if session is not None else None
            if operator is not None:
                self.require(operator.workspace_id == edge.subject.id, f"{edge} stands and {operator} films")
