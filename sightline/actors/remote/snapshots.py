"""What actors have published, here and on other servers: for lists, which show many of them at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, final

import trio

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.kernel import Command, KindName, Registry
from sightline.actors.messages import ReadSessions, ReadWorkspaces
from sightline.actors.remote.peers import Peers
from sightline.domain.errors import SightlineError
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session

M = TypeVar("M")
S = TypeVar("S", Session, Workspace)

READ_TIMEOUT_S: Final = 2.0


@final
class Snapshots:
    """Reads the present state of many actors. One that no server has in memory, or answers for, is left out."""

    def __init__(self, registry: Registry, peers: Peers | None) -> None:
        self._registry = registry
        self._peers = peers
        if peers is not None:
            peers.answer(ReadSessions, self._read_sessions)
            peers.answer(ReadWorkspaces, self._read_workspaces)

    async def sessions(self, ids: Iterable[str]) -> dict[str, Session]:
        """Sessions by id."""
        return await self._find(SESSION, ids, ReadSessions)

    async def workspaces(self, ids: Iterable[str]) -> dict[str, Workspace]:
        """Workspaces by id."""
        return await self._find(WORKSPACE, ids, ReadWorkspaces)

    async def _find(
        self,
        kind: KindName[M, S],
        ids: Iterable[str],
        question: Callable[[tuple[str, ...]], Command[Any, tuple[S, ...]]],
    ) -> dict[str, S]:
        found: dict[str, S] = {}
        elsewhere: dict[str, list[str]] = {}
        for actor_id in ids:
            known = self._registry.peek(kind, actor_id)
            if known is not None:
                found[actor_id] = known
            elif self._peers is not None:
                owner = self._peers.routes.owner_of(actor_id)
                if owner is not None and owner != self._peers.routes.me:
                    elsewhere.setdefault(owner, []).append(actor_id)
        if elsewhere:
            await self._ask(elsewhere, question, found)
        return found

    async def _ask(
        self,
        elsewhere: dict[str, list[str]],
        question: Callable[[tuple[str, ...]], Command[Any, tuple[S, ...]]],
        found: dict[str, S],
    ) -> None:
        peers = self._peers
        assert peers is not None

        async def ask(server: str, ids: list[str]) -> None:
            try:
                answer = await peers.ask(server, question(tuple(ids)), timeout_s=READ_TIMEOUT_S)
            except SightlineError:
                return  # the stored state is shown
            found.update((each.id, each) for each in answer)

        async with trio.open_nursery() as nursery:
            for server, ids in elsewhere.items():
                nursery.start_soon(ask, server, ids)

    async def _read_sessions(self, question: ReadSessions) -> tuple[Session, ...]:
        return tuple(self._served(SESSION, question.ids))

    async def _read_workspaces(self, question: ReadWorkspaces) -> tuple[Workspace, ...]:
        return tuple(self._served(WORKSPACE, question.ids))

    def _served(self, kind: KindName[M, S], ids: Iterable[str]) -> Iterator[S]:
        assert self._peers is not None
        for actor_id in ids:
            if self._peers.serves(actor_id) and (known := self._registry.peek(kind, actor_id)) is not None:
                yield known
