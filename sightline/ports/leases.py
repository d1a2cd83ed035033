"""The port through which a server becomes the owner of the shards of a database, and stays it.

One server owns all shards of a database. Its lease says until when, by the clock of the database. Another server takes
the shards only after that, or when the owner has left. Each take-over raises the epoch of each shard, so that writes
of the earlier owner are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Final, Protocol, final


@final
@unique
class ServerRole(IntEnum):
    """Work that one server does for all. A role is owned, fenced and taken over like a shard; the value is its id."""

    DISPATCHER = 256
    RELAYER = 257
    WATCHER = 258
    HOUSEKEEPING = 259
    """Retention, refunds that wait, the sweep of suspended workspaces, webhooks."""


TTL_MS: Final = 6_000
"""Duration of a lease. A server that was killed on another machine is replaced after this time."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """Identifies one run of a server."""

    incarnation: str
    """Unique for each run."""
    host: str
    """Name of the machine, for people."""
    place: str
    """Identifies the locked data directory. A server that holds the lock of a place knows that the earlier server of
    this place has ended, and does not wait for its lease."""


@final
@dataclass(frozen=True, slots=True)
class HeldBy:
    """Another server holds a valid lease."""

    host: str


class Leases(Protocol):
    """Ownership of the shards of one database.

    Every method may raise StoreUnavailableError (nothing was changed) and OutcomeUnknownError.
    """

    async def join(self, server: ServerIdentity) -> Mapping[int, int] | HeldBy:
        """Take every shard and every role with a lease of TTL_MS, unless another server's lease is valid.

        Joining again takes the shards again.

        Returns:
            The epoch of each shard and role, or who holds the lease.
        """
        ...

    async def renew(self, incarnation: str) -> bool:
        """Extend the lease to TTL_MS from now; False if another server has taken the shards.

        A lease that has run out can be renewed for as long as no other server has joined.
        """
        ...

    async def leave(self, incarnation: str) -> None:
        """Give the lease up: the next server need not wait for its end. Has no effect after another server joined."""
        ...
