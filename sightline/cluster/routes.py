"""Which server owns which shard, as this server knows it. It may be outdated: the receiver of a message judges."""

from collections.abc import Collection, Mapping
from typing import final

import trio

from sightline.actors.shards import shard_of
from sightline.ports.leases import WIRE, WireRange


@final
class Routes:
    """The owners of the shards and roles, by incarnation."""

    def __init__(self, me: str, wire: WireRange = WIRE) -> None:
        """Create the routes of a server that knows no other one.

        Args:
            wire: Versions of the frames that this server understands.
        """
        self.me = me
        self.wire = wire
        self._wires: Mapping[str, WireRange] = {}
        self._urls: Mapping[str, str] = {}
        self._owners: dict[int, str] = {}
        self._servers: frozenset[str] = frozenset({me})
        self._leased: frozenset[str] = frozenset()
        self.changed = trio.Event()
        """Set, and replaced by a new event, at each change."""

    @property
    def servers(self) -> frozenset[str]:
        """All servers with a valid lease, this one included."""
        return self._servers

    @property
    def others(self) -> frozenset[str]:
        """All servers but this one."""
        return self._servers - {self.me}

    @property
    def leased(self) -> frozenset[str]:
        """All servers but this one that had a valid lease at the last look at the database, reachable or not."""
        return self._leased

    def owner(self, shard: int) -> str | None:
        """The owner of a shard; None while it has none, or none is known."""
        return self._owners.get(shard)

    def owner_of(self, actor_id: str) -> str | None:
        """The owner of an actor; None while it has none, or none is known."""
        return self._owners.get(shard_of(actor_id))

    def wire_to(self, server: str) -> int:
        """The version of a frame to a server: the highest that both understand.

        To a server that is not known yet: the lowest version of this server.
        """
        known = self._wires.get(server)
        return (known and self.wire.highest_common(known)) or self.wire.first

    def url_of(self, server: str) -> str | None:
        """URL of the server's internal listener, as its lease says; None if it is not known."""
        return self._urls.get(server) or None

    def read(
        self,
        owned: Mapping[str, Collection[int]],
        wires: Mapping[str, WireRange] | None = None,
        urls: Mapping[str, str] | None = None,
    ) -> None:
        """Replace the routes by what the database says of each server with a valid lease.

        Args:
            owned: Their shards.
            wires: Versions of the frames that they understand.
            urls: URLs of their internal listeners.
        """
        self._wires, self._urls = wires or {}, urls or {}
        owners = {shard: server for server, shards in owned.items() for shard in shards}
        servers, leased = frozenset(owned) | {self.me}, frozenset(owned) - {self.me}
        if owners != self._owners or servers != self._servers or leased != self._leased:
            self._owners, self._servers, self._leased = owners, servers, leased
            self._wake()

    def took(self, server: str, shards: Collection[int]) -> None:
        """Note that a server says that it has taken these shards."""
        self._servers |= {server}
        self._owners.update(dict.fromkeys(shards, server))
        self._wake()

    def forget(self, shard: int, server: str) -> None:
        """The server does not own the shard."""
        if self._owners.get(shard) == server:
            del self._owners[shard]

    def _wake(self) -> None:
        changed, self.changed = self.changed, trio.Event()
        changed.set()
