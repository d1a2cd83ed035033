"""Hosts of shards with the leases in memory: entered, renewed and running, without a bus."""

from collections.abc import Callable, Collection
from typing import Any

import trio

from sightline.actors.kernel import Registry
from sightline.actors.shards import OwnedShards
from sightline.cluster.shard_host import ShardHost
from sightline.ports.leases import ServerIdentity
from simulation.memory.leases import TrioLeaseKeeper


async def recover_nothing(
    _shards: Collection[int], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """These shards have no actors."""
    task_status.started()


async def start_host(
    nursery: trio.Nursery,
    leases: Any,
    name: str,
    owned: OwnedShards,
    registry: Registry,
    *,
    now_ms: Callable[[], int],
    **options: Any,
) -> ShardHost:
    """Enter, and run the host and the keeper of its lease."""
    keeper = TrioLeaseKeeper(leases, name, now_ms)
    identity = ServerIdentity(incarnation=name, host=name, directory_id=name)
    host = ShardHost(
        leases, identity, owned, registry, recover=recover_nothing, keeper=keeper, now_ms=now_ms, **options
    )
    sent_ms = now_ms()
    await leases.enter(identity)
    keeper.entered(sent_ms)
    nursery.start_soon(keeper.run, lambda: owned.epochs, host.lose)
    nursery.start_soon(host.run)
    return host
