"""The other servers of a service: messages to their actors, and what those actors have published."""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar, final

import structlog
import trio

from sightline.actors.deps import SESSION, WORKSPACE, Deps
from sightline.actors.kernel import Command, KindName, Registry
from sightline.actors.messages import GetSession, GetWorkspace, ReadSessions, ReadWorkspaces, ReportsMissed
from sightline.actors.service.look_up import LookUp
from sightline.actors.watchers import Watchers
from sightline.cluster.peers.peers import Peers
from sightline.cluster.sighting_reports import SightingReports
from sightline.cluster.streams import RemoteStreams
from sightline.domain.errors import SightlineError
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Live, Session

log: Final = structlog.get_logger("sightline.cluster")

M = TypeVar("M")
S = TypeVar("S", Session, Workspace)

READ_TIMEOUT_S: Final = 2.0


@final
class ConnectedServers:
    """Implements `OtherServers` over the messages between servers.

    Nothing is recovered at the start: a server recovers each shard when it takes it.
    """

    def __init__(self, peers: Peers) -> None:
        self.remote = peers
        self._peers = peers

    def attach(self, registry: Registry, deps: Deps) -> None:
        """See `OtherServers.attach`."""
        self._registry = registry
        self._reports = SightingReports(registry, deps)
        self._streams = deps.watchers.elsewhere = RemoteStreams(deps.watchers, self._peers)
        look_up = LookUp(registry, deps)
        self._peers.on_loss = partial(_read_again, registry, deps.watchers)
        self._peers.answer_quietly(GetSession, look_up.quiet_session)
        self._peers.answer_quietly(GetWorkspace, look_up.quiet_workspace)
        self._peers.answer(ReadSessions, self._read_sessions)
        self._peers.answer(ReadWorkspaces, self._read_workspaces)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `OtherServers.run`."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._peers.run)
            nursery.start_soon(self._reports.run)
            nursery.start_soon(self._streams.run)
            task_status.started()

    async def sessions(self, ids: Collection[str]) -> dict[str, Session]:
        """See `OtherServers.sessions`."""
        return await self._ask_owners(ids, ReadSessions)

    async def workspaces(self, ids: Collection[str]) -> dict[str, Workspace]:
        """See `OtherServers.workspaces`."""
        return await self._ask_owners(ids, ReadWorkspaces)

    async def _ask_owners(
        self, ids: Iterable[str], question: Callable[[tuple[str, ...]], Command[Any, tuple[S, ...]]]
    ) -> dict[str, S]:
        found: dict[str, S] = {}
        by_owner: dict[str, list[str]] = {}
        routes = self._peers.routes
        for actor_id in ids:
            owner = routes.owner_of(actor_id)
            if owner is not None and owner != routes.me:
                by_owner.setdefault(owner, []).append(actor_id)

        async def ask(server: str, ids: list[str]) -> None:
            try:
                answer = await self._peers.ask(server, question(tuple(ids)), timeout_s=READ_TIMEOUT_S)
            except SightlineError:
                return  # the stored state is shown
            found.update((each.id, each) for each in answer)

        if by_owner:
            async with trio.open_nursery() as nursery:
                for server, actor_ids in by_owner.items():
                    nursery.start_soon(ask, server, actor_ids)
        return found

    async def _read_sessions(self, question: ReadSessions) -> tuple[Session, ...]:
        return tuple(self._served(SESSION, question.ids))

    async def _read_workspaces(self, question: ReadWorkspaces) -> tuple[Workspace, ...]:
        return tuple(self._served(WORKSPACE, question.ids))

    def _served(self, kind: KindName[M, S], ids: Iterable[str]) -> Iterator[S]:
        for actor_id in ids:
            if self._peers.serves(actor_id) and (known := self._registry.peek(kind, actor_id)) is not None:
                yield known


def _read_again(registry: Registry, watchers: Watchers, server: str) -> None:
    """Messages of a server may be lost: LIVE sessions of its operators, and streams, read what is recorded."""
    watchers.wake_all()
    reloaded = 0
    for session_id, session in registry.snapshots(SESSION):
        if isinstance(session.phase, Live) and registry.peek(WORKSPACE, session.phase.operator.workspace_id) is None:
            registry.ref(SESSION, session_id).tell(ReportsMissed(), conflate_key="missed")
            reloaded += 1
    if reloaded:
        log.warning("live_sessions_reloaded", sessions=reloaded, server=server)
