"""Look-ups: a session or a workspace as it now stands, from what its actor has published, else by asking it."""

from typing import final

from sightline.actors.deps import SESSION, WORKSPACE, Deps
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import GetSession, GetWorkspace
from sightline.actors.refusals import NOT_OPERATOR, SESSION_NOT_FOUND, WORKSPACE_NOT_FOUND
from sightline.domain.errors import OutcomeUnknownError, RefusedError, StoreUnavailableError
from sightline.domain.operator.model import Workspace
from sightline.domain.session import machine
from sightline.domain.session.model import Session


@final
class LookUp:
    """Reads the session or workspace of a call, or refuses the call."""

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps

    async def find_session(self, session_id: str) -> Session | None:
        """The session with passed deadlines settled: from what its actor published, else by asking it."""
        ref = self._registry.ref(SESSION, session_id)
        known = self._registry.peek(SESSION, session_id)
        if known is not None and self._is_settled(known):
            return known
        try:
            return await ref.ask(GetSession(), timeout_s=self._deps.limits.ask_timeout_s)
        except OutcomeUnknownError as error:
            raise StoreUnavailableError("the session did not answer in time") from error

    def quiet_session(self, session_id: str) -> Session | None:
        """What `GetSession` would answer now, if that is known without a turn of the session's actor."""
        known = self._registry.peek_quiet(SESSION, session_id)
        return known if known is not None and self._is_settled(known) else None

    def quiet_workspace(self, workspace_id: str) -> Workspace | None:
        """What `GetWorkspace` would answer now, if that is known without a turn of the workspace's actor."""
        return self._registry.peek_quiet(WORKSPACE, workspace_id)

    def _is_settled(self, session: Session) -> bool:
        """Whether no deadline of the session has passed that its actor has not handled."""
        now_ms = self._deps.clock.now_ms()
        return session.is_terminal or machine.settle_deadline(session, now_ms, self._deps.limits.session) is None

    async def require_session(self, session_id: str) -> Session:
        """The session, which must exist."""
        session = await self.find_session(session_id)
        if session is None:
            raise RefusedError(SESSION_NOT_FOUND)
        return session

    async def require_workspace(self, workspace_id: str) -> Workspace:
        """The workspace, which must exist."""
        ref = self._registry.ref(WORKSPACE, workspace_id)
        workspace = self._registry.peek(WORKSPACE, workspace_id)
        if workspace is None:
            try:
                workspace = await ref.ask(GetWorkspace(), timeout_s=self._deps.limits.ask_timeout_s)
            except OutcomeUnknownError as error:
                raise StoreUnavailableError("the workspace did not answer in time") from error
        if workspace is None:
            raise RefusedError(WORKSPACE_NOT_FOUND)
        return workspace

    async def require_operator(self, workspace_id: str) -> Workspace:
        """Return the workspace; refuses one that is not an operator."""
        workspace = await self.require_workspace(workspace_id)
        if not workspace.is_supplier:
            raise RefusedError(NOT_OPERATOR)
        return workspace
