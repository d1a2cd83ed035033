"""All shards for one writer, without a server that has a lease: for tests and benchmarks of what is below."""

from collections.abc import Mapping
from typing import Any

from sightline.actors.shards import EVERY_SHARD
from simulation.memory.store import MemoryStore

_TAKE = "SELECT id, epoch FROM take_shards($1, $2)"


async def take_every_shard(store: Any, owner: str, incarnation: str) -> Mapping[int, int]:
    """Take every shard of a store in memory or of a Postgres store; an earlier owner's writes are refused."""
    if isinstance(store, MemoryStore):
        return store.raise_epochs(EVERY_SHARD)
    rows = await store._database.run(lambda connection: connection.fetch(_TAKE, owner, incarnation))
    return {row["id"]: row["epoch"] for row in rows}
