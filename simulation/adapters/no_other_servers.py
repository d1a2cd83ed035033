"""`OtherServers` where no membership runs: benchmarks and tests of the actors alone."""

from collections.abc import Collection, Mapping
from typing import final

import trio

from sightline.actors.deps import Deps
from sightline.actors.kernel import Registry
from sightline.actors.kernel.ref import Remote
from sightline.actors.recovery import recover
from sightline.actors.shards import EVERY_SHARD
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session


@final
class NoOtherServers:
    """Implements `OtherServers` where every actor runs on this server, which recovers all of them at its start."""

    remote: Remote | None = None

    def attach(self, registry: Registry, deps: Deps) -> None:
        """See `OtherServers.attach`."""
        self._registry, self._store = registry, deps.store

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Recover everything unfinished; reports started when that was tried once."""
        await recover(self._store, self._registry, EVERY_SHARD, task_status=task_status)

    async def sessions(self, ids: Collection[str]) -> Mapping[str, Session]:
        """See `OtherServers.sessions`."""
        return {}

    async def workspaces(self, ids: Collection[str]) -> Mapping[str, Workspace]:
        """See `OtherServers.workspaces`."""
        return {}
