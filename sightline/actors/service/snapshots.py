"""What actors have published, here and on other servers: for lists, which show many of them at once."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar, final

from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.kernel import KindName, Registry
from sightline.actors.other_servers import OtherServers
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session

M = TypeVar("M")
S = TypeVar("S", Session, Workspace)


@final
class Snapshots:
    """Reads the present state of many actors. One that no server has in memory, or answers for, is left out."""

    def __init__(self, registry: Registry, others: OtherServers) -> None:
        self._registry = registry
        self._others = others

    async def sessions(self, ids: Iterable[str]) -> dict[str, Session]:
        """Sessions by id."""
        return await self._find(SESSION, ids, self._others.sessions)

    async def workspaces(self, ids: Iterable[str]) -> dict[str, Workspace]:
        """Workspaces by id."""
        return await self._find(WORKSPACE, ids, self._others.workspaces)

    async def _find(
        self,
        kind: KindName[M, S],
        ids: Iterable[str],
        elsewhere: Callable[[Collection[str]], Awaitable[Mapping[str, S]]],
    ) -> dict[str, S]:
        found: dict[str, S] = {}
        missing: list[str] = []
        for actor_id in ids:
            if (known := self._registry.peek(kind, actor_id)) is not None:
                found[actor_id] = known
            else:
                missing.append(actor_id)
        if missing:
            found.update(await elsewhere(missing))
        return found
