"""Live updates: what a session or a workspace is now, and again whenever it changes."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import final

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.reads import Reads
from sightline.actors.watchers import Watchers
from sightline.domain.views import View, parties_of, workspace_view


@final
class LiveUpdates:
    """Watches on behalf of one workspace."""

    def __init__(self, watchers: Watchers, look_up: LookUp, reads: Reads) -> None:
        self._watchers = watchers
        self._look_up = look_up
        self._reads = reads

    @asynccontextmanager
    async def watch_session(self, session_id: str, workspace_id: str) -> AsyncIterator[AsyncIterator[tuple[str, View]]]:
        """The session and its meter now, and again whenever they change."""
        await self._reads.require_session_as_party(session_id, workspace_id)

        async def changes() -> AsyncGenerator[tuple[str, View], None]:
            yield "session", (await self._reads.read_session(session_id, workspace_id)).data
            yield "meter", (await self._reads.meter(session_id, workspace_id)).data
            while True:
                await watch.change()
                yield "session", (await self._reads.read_session(session_id, workspace_id)).data
                yield "meter", (await self._reads.meter(session_id, workspace_id)).data

        with self._watchers.watch(SESSION, session_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream

    @asynccontextmanager
    async def watch_workspace(self, workspace_id: str) -> AsyncIterator[AsyncIterator[tuple[str, View]]]:
        """The workspace and its open assignments now, and again whenever they change."""
        workspace = await self._look_up.require_workspace(workspace_id)

        async def assignments(ids: Sequence[str]) -> list[tuple[str, View]]:
            found = [(session_id, await self._look_up.find_session(session_id)) for session_id in ids]
            return [
                ("assignment", (await self._reads.read_session(session_id, workspace_id)).data)
                for session_id, session in found
                if session is not None and parties_of(session, workspace_id)
            ]

        async def changes() -> AsyncGenerator[tuple[str, View], None]:
            yield "workspace", workspace_view(await self._look_up.require_workspace(workspace_id))
            for item in await assignments(tuple(workspace.claims)):
                yield item
            while True:
                related = await watch.change()
                yield "workspace", workspace_view(await self._look_up.require_workspace(workspace_id))
                for item in await assignments(related):
                    yield item

        with self._watchers.watch(WORKSPACE, workspace_id) as watch:
            async with aclosing(changes()) as stream:
                yield stream
