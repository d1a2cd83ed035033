"""Leases on the store in memory, and their keeper on the trio loop."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import structlog
import trio

from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.ports.leases import (
    RENEW_DEADLINE_S,
    RENEW_EVERY_S,
    TTL_MS,
    VALID_MS,
    WIRE,
    IncompatibleServersError,
    ServerIdentity,
    ServerState,
    ServiceHeldError,
    ShardLeases,
    WireRange,
    lost_shards,
)
from simulation.memory.store import MemoryStore

log = structlog.get_logger("sightline")


@final
@dataclass(slots=True)
class _Lease:
    directory_id: str
    held_since_ms: int
    expires_at_ms: int
    clock_offset_ms: int = 0
    is_connected: bool = True
    host: str = ""
    wire: WireRange = WIRE
    url: str = ""
    is_alone: bool = False


def _is_valid(lease: _Lease, now_ms: int) -> bool:
    """Whether a lease has not ended. One that ends too late was made before the clock was set back."""
    return 0 < lease.expires_at_ms - now_ms <= 2 * TTL_MS


@final
@dataclass(slots=True)
class _Owned:
    """A shard that a server owns, or one that was released for a server."""

    epoch: int = 0
    owner: str | None = None
    handing_to: str | None = None


@final
class MemoryShardLeases:
    """Implements `ShardLeases`. `now_ms` is the clock of the store. Each method is one atomic step."""

    def __init__(self, store: MemoryStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._leases: dict[str, _Lease] = {}
        self._shards: dict[int, _Owned] = {}

    async def enter(self, server: ServerIdentity) -> None:
        """Get a lease without shards."""
        await trio.lowlevel.checkpoint()
        now_ms = self._now_ms()
        for incarnation, lease in list(self._leases.items()):
            if lease.directory_id == server.directory_id and incarnation != server.incarnation:
                self._end(incarnation)
        wires: dict[str, WireRange] = {}
        for incarnation, other in list(self._leases.items()):
            if incarnation == server.incarnation:
                continue
            if server.is_alone or other.is_alone:
                if _is_valid(other, now_ms):
                    raise ServiceHeldError(other.host)
                self._end(incarnation)
            elif other.expires_at_ms > now_ms and server.wire.highest_common(other.wire) is None:
                wires[other.host] = other.wire
        if wires:
            raise IncompatibleServersError(server.wire, wires)
        lease = _Lease(
            server.directory_id, now_ms, 0, host=server.host, wire=server.wire, url=server.url, is_alone=server.is_alone
        )
        self._leases.setdefault(server.incarnation, lease)
        self._extend(self._leases[server.incarnation])

    async def renew(self, incarnation: str) -> Mapping[int, int] | None:
        """Extend the lease; returns the epoch of each shard that is owned."""
        await trio.lowlevel.checkpoint()
        lease = self._leases.get(incarnation)
        if lease is None:
            return None
        self._extend(lease)
        return {shard: owned.epoch for shard, owned in self._shards.items() if owned.owner == incarnation}

    def _extend(self, lease: _Lease) -> None:
        now_ms = self._now_ms()
        if not _is_valid(lease, now_ms):
            lease.held_since_ms = now_ms
        lease.expires_at_ms = now_ms + TTL_MS

    async def take(self, incarnation: str, shards: Collection[int]) -> Mapping[int, int]:
        """Take those of the shards that are free; returns their epochs."""
        await trio.lowlevel.checkpoint()
        lease, now_ms = self._leases.get(incarnation), self._now_ms()
        if lease is None or lease.expires_at_ms <= now_ms:
            return {}
        if lease.held_since_ms <= now_ms - TTL_MS:
            for other, held in list(self._leases.items()):
                if other != incarnation and not _is_valid(held, now_ms):
                    self._end(other)
        free = [int(shard) for shard in sorted(shards) if self._is_free(shard, incarnation)]
        epochs = self._store.raise_epochs(free)
        for shard, epoch in epochs.items():
            self._shards[shard] = _Owned(epoch, incarnation)
        return epochs

    def _is_free(self, shard: int, taker: str) -> bool:
        owned = self._shards.get(shard, _Owned())
        if owned.owner == taker:
            return False
        meant_for = owned.owner or owned.handing_to
        return meant_for == taker or meant_for not in self._leases

    async def release(self, incarnation: str, shards: Collection[int], *, to: str | None = None) -> None:
        """Give shards up, for one server or for any."""
        await trio.lowlevel.checkpoint()
        self._free(incarnation, shards, to)

    async def leave(self, incarnation: str) -> None:
        """Give all shards and the lease up."""
        await trio.lowlevel.checkpoint()
        self._end(incarnation)

    async def servers(self) -> Sequence[ServerState]:
        """Every server that has entered and was not ended."""
        await trio.lowlevel.checkpoint()
        now_ms = self._now_ms()
        return [
            ServerState(
                incarnation=incarnation,
                is_valid=lease.expires_at_ms > now_ms,
                shards=frozenset(shard for shard, owned in self._shards.items() if owned.owner == incarnation),
                offered=frozenset(
                    shard
                    for shard, owned in self._shards.items()
                    if owned.owner is None and owned.handing_to == incarnation
                ),
                clock_offset_ms=lease.clock_offset_ms,
                is_connected=lease.is_connected,
                wire=lease.wire,
                url=lease.url,
            )
            for incarnation, lease in sorted(self._leases.items())
        ]

    async def database_ms(self) -> int:
        """What the database's clock shows, in milliseconds since 1970."""
        await trio.lowlevel.checkpoint()
        return self._now_ms()

    async def report(self, incarnation: str, *, clock_offset_ms: int, is_connected: bool) -> None:
        """Say how far this server's clock is off, and whether it reaches the other servers."""
        await trio.lowlevel.checkpoint()
        lease = self._leases.get(incarnation)
        if lease is not None:
            lease.clock_offset_ms, lease.is_connected = clock_offset_ms, is_connected

    def _end(self, incarnation: str) -> None:
        self._leases.pop(incarnation, None)
        self._free(incarnation, self._shards, None)

    def _free(self, incarnation: str, shards: Collection[int], to: str | None) -> None:
        for shard in shards:
            owned = self._shards.get(shard)
            if owned is not None and owned.owner == incarnation:
                owned.owner, owned.handing_to = None, to


@final
class TrioLeaseKeeper:
    """Implements `LeaseKeeper` on the trio loop, for simulated servers. `now_ms` is a clock that never steps."""

    def __init__(self, leases: ShardLeases, incarnation: str, now_ms: Callable[[], int]) -> None:
        self._leases = leases
        self._incarnation = incarnation
        self._now_ms = now_ms
        self._valid_until_ms = 0
        self._failed_ms: int | None = None

    @property
    def failed_ms(self) -> int | None:
        """When a renewal last failed."""
        return self._failed_ms

    def is_valid(self) -> bool:
        """Whether no other server can have taken a shard of this one."""
        return self._now_ms() < self._valid_until_ms

    def entered(self, sent_ms: int) -> None:
        """Trust the lease that the server has entered with."""
        self._valid_until_ms = sent_ms + VALID_MS

    async def run(self, epochs: Callable[[], Mapping[int, int]], on_lost: Callable[[Mapping[int, int]], None]) -> None:
        """Renew the lease; returns when another server has ended this one."""
        while True:
            await trio.sleep(RENEW_EVERY_S)
            sent_ms, before = self._now_ms(), epochs()
            try:
                with trio.fail_after(RENEW_DEADLINE_S):
                    held = await self._leases.renew(self._incarnation)
            except (trio.TooSlowError, UnavailableError, OutcomeUnknownError) as error:
                log.warning("lease_not_renewed", error=repr(error))
                self._failed_ms = self._now_ms()
                continue
            if held is None:
                self._valid_until_ms = 0
                return
            if lost := lost_shards(before, held):
                on_lost(lost)
            self._valid_until_ms = sent_ms + VALID_MS
