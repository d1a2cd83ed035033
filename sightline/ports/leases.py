"""The ports through which servers become the owners of the shards of a database, and stay it.

A server enters with a lease and takes shards. The lease says until when, by the clock of the database; its keeper
renews it. Another server takes the shards only after its end, or when the owner has given them up. Each take-over
raises the epoch of each shard, so that writes of the earlier owner are refused.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum, unique
from typing import Final, Protocol, final

from sightline.domain.value import Value


@final
@unique
class ServerRole(IntEnum):
    """Work that one server does for all. A role is owned, fenced and taken over like a shard; the value is its id."""

    DISPATCHER = 256
    RELAYER = 257
    WATCHER = 258
    HOUSEKEEPING = 259
    """Retention, refunds that wait, the sweep of suspended workspaces, webhooks."""


@final
class WireRange(Value):
    """The versions that a server sends and understands, both ends included."""

    first: int
    last: int

    def highest_common(self, other: "WireRange") -> int | None:
        """The highest version that both understand; None if there is none."""
        highest = min(self.last, other.last)
        return highest if highest >= max(self.first, other.first) else None

    def __contains__(self, version: object) -> bool:
        """Whether frames of a version are understood."""
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        """As it is shown to people."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


WIRE: Final = WireRange(2, 2)
"""The frames that this code sends and understands. Version 1 was not authenticated (ADR 0172), so it is never taken.

New classes, and new fields with a default, need no new version. A change that older servers misread does: raise `last`,
and go on sending the older version to older servers. Raise `first` in a later release, when no server needs the older
version any more.
"""


TTL_MS: Final = 6_000
"""Duration of a lease. A server that was killed on another machine is replaced after this time."""
VALID_MS: Final = 5_000
"""How long a server trusts a renewal, counted from before it was sent; shorter than TTL_MS, because clocks differ."""
RENEW_EVERY_S: Final = 1.5
RENEW_DEADLINE_S: Final = 1.0


@final
class ServerIdentity(Value, kw_only=True):
    """Identifies one run of a server."""

    incarnation: str
    """Unique for each run."""
    host: str
    """Name of the machine, for people."""
    directory_id: str
    """Identifies the locked data directory. A server that holds its lock knows that the earlier server of
    this directory has ended, and does not wait for its lease."""
    url: str = ""
    """URL of its internal listener, as other servers reach it. They learn it from the lease only, never from a
    message."""
    wire: WireRange = WIRE
    """Versions of the frames that it understands."""
    is_alone: bool = False
    """It has no bus to other servers: no other server may have a lease at the same time."""


class IncompatibleServersError(Exception):
    """Servers with a lease do not understand the frames of a server that wants to enter."""

    def __init__(self, own: WireRange, others: Mapping[str, WireRange]) -> None:
        """Create the error. `others` are the versions of the other servers, by host."""
        listed = ", ".join(f"that on {host} speaks {wire}" for host, wire in sorted(others.items()))
        super().__init__(
            f"This server speaks wire versions {own} with other servers of its service, and {listed}: they have no "
            "version in common. Upgrade by a release between the two, or stop the other servers first."
        )


class ServiceHeldError(Exception):
    """Another server has a valid lease, and one of the two is alone: without a bus they cannot work together."""

    def __init__(self, host: str) -> None:
        """Create the error. `host` is the machine of the other server."""
        super().__init__(f"Another server, on {host}, uses this database")
        self.host = host


@final
class ServerState(Value, kw_only=True):
    """One server that has entered, as the database sees it."""

    incarnation: str
    is_valid: bool
    """Whether its lease has not ended."""
    shards: frozenset[int]
    """What it owns, roles included."""
    offered: frozenset[int] = frozenset()
    """What was released for it and it has not taken yet."""
    clock_offset_ms: int = 0
    """How far its clock is ahead of the database's at least, or behind if negative, as it reported last."""
    is_connected: bool = True
    """Whether it reaches the other servers, as it reported last."""
    wire: WireRange = WIRE
    """Versions of the frames that it understands."""
    url: str = ""
    """URL of its internal listener."""


@final
class ServerFigures(Value, kw_only=True):
    """What a server reports about itself every few seconds, for people."""

    name: str = ""
    """The machine, and the worker's number if it has several workers; the same after a restart."""
    url: str = ""
    """URL of its internal listener, as other servers reach it."""
    version: str = ""
    loop_delay_ms: int = 0
    """The longest time that its event loop was late, of the last seconds."""


@final
class ServerReport(Value, kw_only=True):
    """One server with a lease, for people."""

    incarnation: str
    host: str
    is_valid: bool
    """Whether its lease has not ended."""
    renewed_ms_ago: int
    """Age of the lease's last renewal, by the clock of the database."""
    shards: int
    """Number of shards that it owns, without roles."""
    roles: tuple[ServerRole, ...]
    is_connected: bool
    """Whether it reaches the other servers, as it reported last; True if it is alone."""
    clock_offset_ms: int
    """How far its clock is ahead of the database's, as it reported last; 0 if it is alone."""
    reported_ms_ago: int | None
    """Age of its last figures, by the clock of the database; None: it has not reported yet."""
    about: ServerFigures


@final
class OwnershipReport(Value, kw_only=True):
    """Who owns what."""

    servers: tuple[ServerReport, ...]
    unowned_shards: int
    """Shards, roles included, that belong to no server with a lease."""


class ShardLeases(Protocol):
    """Ownership of single shards by several servers.

    A server that was ended by another one (its lease had run out) comes back with a new incarnation only.

    Every method may raise StoreUnavailableError (nothing was changed) and OutcomeUnknownError (call it again).
    """

    async def enter(self, server: ServerIdentity) -> None:
        """Get a lease of TTL_MS without shards. Ends earlier servers of the same directory.

        Where one of the servers is alone, it also ends those whose lease has run out: nobody waits for them.

        Raises:
            ServiceHeldError: This server is alone and another one has a valid lease, or the other way round. Nothing
                was changed, but servers of the same directory have ended.
            IncompatibleServersError: A server with a valid lease understands no version of frames that this one does.
        """
        ...

    async def renew(self, incarnation: str) -> Mapping[int, int] | None:
        """Extend the lease to TTL_MS from now. Returns the epoch of each shard that is owned; None after the end.

        A lease that has run out can be renewed for as long as no other server has ended this one.
        """
        ...

    async def take(self, incarnation: str, shards: Collection[int]) -> Mapping[int, int]:
        """Take those of the shards that are free; returns their epochs. Needs a valid lease.

        Free is a shard that nobody owns, unless it is being handed to another server. If this server has held its lease
        without a break for TTL_MS, it first ends the servers whose lease has run out, which frees their shards.
        """
        ...

    async def release(self, incarnation: str, shards: Collection[int], *, to: str | None = None) -> None:
        """Give shards up, for one server or for any. The caller has stopped their actors."""
        ...

    async def leave(self, incarnation: str) -> None:
        """Give all shards and the lease up."""
        ...

    async def servers(self) -> Sequence[ServerState]:
        """Every server that has entered and was not ended, by incarnation."""
        ...

    async def database_ms(self) -> int:
        """What the database's clock shows, in milliseconds since 1970."""
        ...

    async def report(self, incarnation: str, *, clock_offset_ms: int, is_connected: bool) -> None:
        """Say how far this server's clock is off, and whether it reaches the other servers; see `ServerState`."""
        ...


def lost_shards(before: Mapping[int, int], held: Mapping[int, int]) -> Mapping[int, int]:
    """The shards, with their epochs, that were owned before a renewal and that the renewal did not find."""
    return {shard: epoch for shard, epoch in before.items() if held.get(shard) != epoch}


class LeaseKeeper(Protocol):
    """Renews the lease of one server, and knows how long what that server has in memory is surely true."""

    @property
    def failed_ms(self) -> int | None:
        """When a renewal last failed, in milliseconds of the keeper's clock; None: never."""
        ...

    def is_valid(self) -> bool:
        """Whether no other server can have taken a shard of this one."""
        ...

    def entered(self, sent_ms: int) -> None:
        """The server has entered by a call that was sent at this time of the keeper's clock."""
        ...

    async def run(self, epochs: Callable[[], Mapping[int, int]], on_lost: Callable[[Mapping[int, int]], None]) -> None:
        """Renew the lease until cancelled. Returns when another server has ended this one.

        Args:
            epochs: The shards that this server believes to own. May be called in another thread.
            on_lost: Called with shards that another server has taken, at the epochs that this server believed to own.
        """
        ...
