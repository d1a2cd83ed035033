"""Reports to a dispatcher on another server which operators of this server sent heartbeats.

The dispatcher reads the newest heartbeat of an operator of its own server from memory. Of an operator of another server
it knows what it was told. The report also repairs a lost `OperatorChanged`: it names the version of each workspace.
"""

from typing import Final, final

import trio

from sightline.actors.deps import DISPATCHER, WORKSPACE, Deps
from sightline.actors.kernel import Lane, Registry
from sightline.actors.messages import SightingReport
from sightline.actors.shards import DISPATCHER_ID
from sightline.domain.operator.model import Availability

REPORT_EVERY_S: Final = 15.0
REPORTS_PER_WINDOW: Final = 4
"""Reports within the time after which an operator counts as not seen."""
OPERATORS_MAX: Final = 1_000
"""In one message."""


@final
class SightingReports:
    """Reports the operators of this server while the dispatcher runs on another one."""

    def __init__(self, registry: Registry, deps: Deps) -> None:
        self._registry = registry
        self._deps = deps
        self._every_s = min(REPORT_EVERY_S, deps.limits.seen_within_ms / 1_000 / REPORTS_PER_WINDOW)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await trio.sleep(self._every_s)
            if not self._deps.owned.owns(DISPATCHER_ID):
                self._report()

    def _report(self) -> None:
        since_ms = self._deps.clock.now_ms() - self._deps.limits.seen_within_ms
        seen = [
            (workspace_id, workspace.version, workspace.last_seen_at_ms or 0)
            for workspace_id, workspace in self._registry.snapshots(WORKSPACE)
            if workspace.availability is Availability.ONLINE
            and workspace.is_supplier
            and (workspace.last_seen_at_ms or 0) > since_ms
        ]
        dispatcher = self._registry.ref(DISPATCHER, DISPATCHER_ID)
        for start in range(0, len(seen), OPERATORS_MAX):
            dispatcher.tell(SightingReport(tuple(seen[start : start + OPERATORS_MAX])), lane=Lane.CONTROL)
