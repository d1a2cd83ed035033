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
from sightline.actors.shards import DISPATCHER_ID, shard_of
from sightline.domain.errors import SightlineError
from sightline.ports.leases import ServerRole
from sightline.ports.store import SHARDS, Store

CONCURRENT_LOADS: Final = 32
ACTIVATE_TIMEOUT_S: Final = 30.0
SINGLE_READS_MAX: Final = 16
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 30.0

T = TypeVar("T")

log = structlog.get_logger("sightline.recovery")


async def recover(
    store: Store,
    registry: Registry,
    shards: Collection[int],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Load the unfinished sessions and the operators with a claim of these shards, and the dispatcher with its role.

    Reports started when each was tried once. Actors that a failed dependency kept from loading are retried with
    backoff. Returns when everything is loaded, is parked, or belongs to another server again.
    """
    wanted: list[tuple[str, str]] = [(DISPATCHER, DISPATCHER_ID)] if ServerRole.DISPATCHER in shards else []
    wanted += await _unfinished(store, frozenset(shard for shard in shards if shard < SHARDS))
    missing = await _load(registry, wanted)
    log.info("recovered", actors=len(wanted), missing=len(missing))
    task_status.started()
    pause_s = RETRY_S
    while missing:
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_MAX_S)
        missing = await _load(registry, missing)


async def _unfinished(store: Store, shards: frozenset[int]) -> list[tuple[str, str]]:
    """The unfinished sessions and claimed operators of some shards."""
    wanted: list[tuple[str, str]] = []
    # Many shards are read at once: a query for each would take longer than what it leaves out.
    for shard in sorted(shards) if len(shards) <= SINGLE_READS_MAX else (None,):
        sessions = await _until_answered(partial(store.unfinished_sessions, shard))
        suppliers = await _until_answered(partial(store.suppliers, shard))
        wanted += [(SESSION, session.id) for session in sessions if shard_of(session.id) in shards]
        wanted += [(WORKSPACE, each.id) for each in suppliers if each.claims and shard_of(each.id) in shards]
    return wanted


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
