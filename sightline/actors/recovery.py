"""Recovery at start: loads every unfinished session and every claimed operator.

A session loads with its timers, so deadlines that passed while the server was down are settled here.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog
import trio

from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, SESSION, WORKSPACE
from sightline.actors.kernel import ActorParkedError, ActorStoppedError, Registry
from sightline.domain.errors import SightlineError
from sightline.ports.store import Store

CONCURRENT_LOADS: Final = 32
ACTIVATE_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 30.0

T = TypeVar("T")

log = structlog.get_logger("sightline.recovery")


async def recover(
    store: Store, registry: Registry, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Load the dispatcher, every unfinished session and every operator with a claim.

    Reports started when each was tried once. Actors that a failed dependency kept from loading are retried with
    backoff until they load; `recover` returns when none is left.
    """
    sessions = await _until_answered(store.unfinished_sessions)
    suppliers = await _until_answered(store.suppliers)
    missing: list[tuple[str, str]] = [(DISPATCHER, DISPATCHER_ID), *((SESSION, session.id) for session in sessions)]
    missing += [(WORKSPACE, workspace.id) for workspace in suppliers if workspace.claims]
    missing = await _load(registry, missing)
    log.info("recovered", sessions=len(sessions), operators=len(suppliers), missing=len(missing))
    task_status.started()
    pause_s = RETRY_S
    while missing:
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_MAX_S)
        missing = await _load(registry, missing)


async def _load(registry: Registry, wanted: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Load actors, `CONCURRENT_LOADS` at a time; returns those to be retried."""
    failed: list[tuple[str, str]] = []
    queue = iter(wanted)

    async def load_next() -> None:
        for kind, actor_id in queue:
            try:
                await registry.activate(kind, actor_id, timeout_s=ACTIVATE_TIMEOUT_S)
            except (ActorParkedError, ActorStoppedError) as error:
                log.warning("recovery_skipped", kind=kind, id=actor_id, error=str(error))
            except SightlineError as error:
                log.warning("recovery_failed", kind=kind, id=actor_id, error=str(error))
                failed.append((kind, actor_id))

    async with trio.open_nursery() as nursery:
        for _ in range(CONCURRENT_LOADS):
            nursery.start_soon(load_next)
    return failed


async def _until_answered(query: Callable[[], Awaitable[T]]) -> T:
    """Repeat a query with backoff until the store answers."""
    pause_s = RETRY_S
    while True:
        try:
            return await query()
        except SightlineError as error:
            log.warning("recovery_query_failed", error=str(error))
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_MAX_S)
