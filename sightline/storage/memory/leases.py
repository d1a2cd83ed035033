"""Leases on the store in memory."""

from collections.abc import Callable, Mapping
from typing import final

from sightline.ports.leases import TTL_MS, HeldBy, ServerIdentity
from sightline.storage.memory.store import MemoryStore


@final
class MemoryLeases:
    """Implements `Leases`. `now_ms` is the clock of the store."""

    def __init__(self, store: MemoryStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._owner: ServerIdentity | None = None
        self._expires_at_ms = 0

    async def join(self, server: ServerIdentity) -> Mapping[int, int] | HeldBy:
        """Take every shard, unless another server's lease is valid."""
        owner = self._owner
        is_other = owner is not None and owner.incarnation != server.incarnation and owner.place != server.place
        if owner is not None and is_other and 0 < self._expires_at_ms - self._now_ms() < 2 * TTL_MS:
            return HeldBy(owner.host)
        epochs = await self._store.acquire_shards(server.host, server.incarnation)
        self._owner, self._expires_at_ms = server, self._now_ms() + TTL_MS
        return epochs

    async def renew(self, incarnation: str) -> bool:
        """Extend the lease."""
        if self._owner is None or self._owner.incarnation != incarnation:
            return False
        self._expires_at_ms = self._now_ms() + TTL_MS
        return True

    async def leave(self, incarnation: str) -> None:
        """Give the lease up."""
        if self._owner is not None and self._owner.incarnation == incarnation:
            self._owner = None
