"""Live updates: the current state of a session or workspace, and every later change of it."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Literal, NamedTuple, TypeAlias, final

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.reads import Reads
from sightline.actors.watchers import Watchers
from sightline.domain.operator.model import Workspace
from sightline.domain.session.status import MeterStatus, SessionStatus, parties_of


class Update(NamedTuple):
    """One part of the watched state."""

    kind: Literal["session", "meter", "workspace", "assignment"]
    value: SessionStatus | MeterStatus | Workspace


Updates: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Update]]


@final
class LiveUpdates:
    """Subscriptions to sessions and workspaces."""

    def __init__(self, watchers: Watchers, look_up: LookUp, reads: Reads) -> None:
        self._watchers = watchers
        self._look_up = look_up
        self._reads = reads

    @asynccontextmanager
    async def watch_session(self, session_id: str, workspace_id: str) -> AsyncIterator[AsyncIterator[Update]]:
        """The session and its meter, now and after every change."""
        await self._reads.require_session_as_party(session_id, workspace_id)

        async def changes() -> AsyncGenerator[Update, None]:
            while True:
                yield Update("session", (await self._reads.read_session(session_id, workspace_id)).value)
                yield Update("meter", (await self._reads.meter(session_id, workspace_id)).value)
                await watch.change()

        with self._watchers.watch(SESSION, session_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream

    @asynccontextmanager
    async def watch_workspace(self, workspace_id: str) -> AsyncIterator[AsyncIterator[Update]]:
        """The workspace and its open assignments, now and after every change."""
        workspace = await self._look_up.require_workspace(workspace_id)

        async def assignments(session_ids: Sequence[str]) -> list[Update]:
            found = [(session_id, await self._look_up.find_session(session_id)) for session_id in session_ids]
            return [
                Update("assignment", (await self._reads.read_session(session_id, workspace_id)).value)
                for session_id, session in found
                if session is not None and parties_of(session, workspace_id)
            ]

        async def changes() -> AsyncGenerator[Update, None]:
            session_ids: Sequence[str] = tuple(workspace.claims)
            while True:
                yield Update("workspace", await self._look_up.require_workspace(workspace_id))
                for update in await assignments(session_ids):
                    yield update
                session_ids = await watch.change()

        with self._watchers.watch(WORKSPACE, workspace_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream
