"""After a start: bring back what is live, so that timers run and deadlines that passed meanwhile are settled."""

from typing import Final

import structlog
import trio

from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, SESSION, WORKSPACE
from sightline.actors.kernel.registry import Registry
from sightline.domain.errors import SightlineError
from sightline.ports.store import Store

AT_ONCE: Final = 32
ACTIVATE_TIMEOUT_S: Final = 30.0

log = structlog.get_logger("sightline.recovery")


async def recover(store: Store, registry: Registry) -> int:
    """Load every unfinished session, every operator with a claim, and the dispatcher. Returns how many sessions.

    One that cannot be loaded now does not hold up the others: it is loaded when it is next spoken to.
    """
    limit = trio.CapacityLimiter(AT_ONCE)

    async def bring_back(kind: str, actor_id: str) -> None:
        async with limit:
            try:
                await registry.activate(kind, actor_id, timeout_s=ACTIVATE_TIMEOUT_S)
            except SightlineError as error:
                log.warning("not_recovered", kind=kind, id=actor_id, error=str(error))

    unfinished = await store.unfinished_sessions()
    suppliers = await store.suppliers()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bring_back, DISPATCHER, DISPATCHER_ID)
        for session in unfinished:
            nursery.start_soon(bring_back, SESSION, session.id)
        for workspace in suppliers:
            if workspace.claims:
                nursery.start_soon(bring_back, WORKSPACE, workspace.id)
    log.info("recovered", sessions=len(unfinished), operators=len(suppliers))
    return len(unfinished)
