"""The shards and roles that this server owns now, with their epochs."""

from collections.abc import Iterable, Mapping
from typing import Final, final

import trio

from sightline.ports.leases import ServerRole
from sightline.ports.store import SHARDS, ShardLease, ShardLostError

EVERY_SHARD: Final = (*range(SHARDS), *ServerRole)
"""All shards, roles included."""

DISPATCHER_ID: Final = "dispatcher"
"""There is one dispatcher."""


def shard_of(actor_id: str) -> int:
    """The shard of an actor: the first byte of a UUID, which is random in a version 4 UUID, or a role."""
    return ServerRole.DISPATCHER if actor_id == DISPATCHER_ID else int(actor_id[:2], 16) % SHARDS


@final
class OwnedShards:
    """The epoch of each shard that this server owns. It changes when shards are taken or lost."""

    def __init__(self, epochs: Mapping[int, int] | None = None) -> None:
        self._epochs: dict[int, int] = {}
        # How the ids of owned actors begin: asked at each read of a snapshot, twice as fast as shard_of.
        self._prefixes: set[str] = set()
        self._admitted: set[str] = set()
        """The same without the shards that are about to be given up."""
        self._changed = trio.Event()
        self.add(epochs or {})

    @property
    def epochs(self) -> Mapping[int, int]:
        """A copy of the epochs by shard."""
        return dict(self._epochs)

    def owns(self, actor_id: str) -> bool:
        """Whether the actor may run here."""
        return actor_id[:2] in self._prefixes

    def admits(self, actor_id: str) -> bool:
        """Whether the actor's shard is owned and not about to be given up."""
        return actor_id[:2] in self._admitted

    def lease(self, actor_id: str) -> ShardLease:
        """The lease under which the actor's state is written. Read it once, before the actor loads.

        Raises:
            ShardLostError: Another server owns the shard.
        """
        shard = shard_of(actor_id)
        epoch = self._epochs.get(shard)
        if epoch is None:
            raise ShardLostError("another server owns this shard")
        return ShardLease(shard, epoch)

    def role_lease(self, role: ServerRole) -> ShardLease | None:
        """The lease under which this server does the work of a role; None while another server does."""
        epoch = self._epochs.get(role)
        return None if epoch is None else ShardLease(role, epoch)

    async def wait_changed(self) -> None:
        """Return after the next `add` or `remove`."""
        await self._changed.wait()

    def add(self, epochs: Mapping[int, int]) -> None:
        """Own these shards at these epochs from now on."""
        self._epochs.update(epochs)
        for shard in epochs:
            self._prefixes |= _prefixes_of(shard)
            self._admitted |= _prefixes_of(shard)
        self._tell_change()

    def close(self, shards: Iterable[int]) -> None:
        """Admit nothing new to these shards: they are about to be removed."""
        for shard in shards:
            self._admitted -= _prefixes_of(shard)

    def remove(self, shards: Iterable[int]) -> None:
        """Own these shards no longer."""
        for shard in shards:
            self._epochs.pop(shard, None)
            self._prefixes -= _prefixes_of(shard)
            self._admitted -= _prefixes_of(shard)
        self._tell_change()

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _prefixes_of(shard: int) -> set[str]:
    """With what the ids of a shard's actors begin; no UUID begins like the dispatcher's."""
    if shard >= SHARDS:
        return {DISPATCHER_ID[:2]} if shard == ServerRole.DISPATCHER else set()
    prefix = f"{shard:02x}"
    return {first + second for first in (prefix[0], prefix[0].upper()) for second in (prefix[1], prefix[1].upper())}
