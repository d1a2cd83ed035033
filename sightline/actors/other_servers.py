"""What the actors of one server need from the other servers of their service."""

from collections.abc import Collection, Mapping
from typing import Protocol

import trio

from sightline.actors.deps import Deps
from sightline.actors.kernel import Registry
from sightline.actors.kernel.ref import Remote
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session


class OtherServers(Protocol):
    """Carries messages to actors of other servers, and reads what those actors have published."""

    @property
    def remote(self) -> Remote | None:
        """Sends messages to actors that another server owns; None: they are refused."""
        ...

    def attach(self, registry: Registry, deps: Deps) -> None:
        """Answer the other servers from this registry; called once, before `run`."""
        ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Exchange messages until cancelled. Reports started when the actors may be used."""
        ...

    async def sessions(self, ids: Collection[str]) -> Mapping[str, Session]:
        """Sessions by id that other servers have in memory. One that no server answers for is left out."""
        ...

    async def workspaces(self, ids: Collection[str]) -> Mapping[str, Workspace]:
        """Workspaces by id, likewise."""
        ...
