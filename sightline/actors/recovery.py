"""Recovery: loads the unfinished sessions and the claimed operators of shards that this server has taken.

A session loads with its timers, so deadlines that passed while nobody owned its shard are settled here.
"""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, TypeVar

import structlog
import trio

from sightline.actors.deps import DISPATCHER, SESSION, WORKSPACE
from sightline.actors.kernel import ActorElsewhereError, ActorParkedError, ActorStoppedError, Registry
from sightline.actors.shards import DISPATCHER_ID
from sightline.domain.errors import SightlineError
from sightline.ports.leases import ServerRole
from sightline.ports.store import SHARDS, Store

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
    wanted = [(DISPATCHER, DISPATCHER_ID), *await _unfinished(store)]
    missing = await _load(registry, wanted)
    log.info("recovered", actors=len(wanted), missing=len(missing))
    task_status.started()
    await _load_until_none_is_missing(registry, missing)


async def recover_shards(store: Store, registry: Registry, shards: Collection[int]) -> None:
    """Load what is unfinished in shards that were just taken; otherwise as `recover`.

    Returns when everything is loaded, is parked, or belongs to another server again.
    """
    wanted: list[tuple[str, str]] = [(DISPATCHER, DISPATCHER_ID)] if ServerRole.DISPATCHER in shards else []
    for shard in sorted(shards):
        if shard < SHARDS:
            wanted += await _unfinished(store, shard)
    await _load_until_none_is_missing(registry, wanted)


async def _unfinished(store: Store, shard: int | None = None) -> list[tuple[str, str]]:
    """The unfinished sessions and claimed operators of one shard, or of all."""
    sessions = await _until_answered(partial(store.unfinished_sessions, shard))
    suppliers = await _until_answered(partial(store.suppliers, shard))
    claimed = [(WORKSPACE, workspace.id) for workspace in suppliers if workspace.claims]
    return [*((SESSION, session.id) for session in sessions), *claimed]


async def _load_until_none_is_missing(registry: Registry, missing: list[tuple[str, str]]) -> None:
    missing = await _load(registry, missing)
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
            except (ActorParkedError, ActorElsewhereError) as error:
                log.warning("recovery_skipped", kind=kind, id=actor_id, error=str(error))
            except ActorStoppedError as error:
                # The kernel stops, or an earlier life of the actor has not ended yet.
                log.warning("recovery_skipped", kind=kind, id=actor_id, error=str(error))
                if registry.accepts_asks:
                    failed.append((kind, actor_id))
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
