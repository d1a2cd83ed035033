"""Writes of a role: each one checks, in its own transaction, that this server still holds the role."""

from typing import TypeVar, final

from sightline.ports.store import ShardLease, ShardLostError
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.database.work import Unit

T = TypeVar("T")

_HOLD = "SELECT hold_shard($1, $2)"


@final
class RoleDatabase:
    """The database for one role. Reads pass; a write takes effect only while the role is held at the bound epoch.

    A server that was suspended continues its role with what it remembers from before. Without the check it would, for
    example, move the watcher's cursor although another server follows the chain.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lease: ShardLease | None = None

    def bind(self, lease: ShardLease) -> None:
        """Set the lease under which all further writes are made. Call it before the role starts."""
        self._lease = lease

    async def read(self, unit: Unit[T], *, deadline_ms: int | None = None) -> T:
        """Run a unit that writes nothing, as `Database.read`."""
        return await self._database.read(unit, deadline_ms=deadline_ms)

    async def run(self, unit: Unit[T], *, deadline_ms: int | None = None) -> T:
        """Run a unit of one statement; otherwise as `transact`."""
        return await self.transact(unit, deadline_ms=deadline_ms)

    async def transact(self, unit: Unit[T], *, deadline_ms: int | None = None) -> T:
        """Run a unit in one transaction with the check of the lease; otherwise as `Database.transact`.

        Raises:
            ShardLostError: Another server has taken the role, or none was bound; nothing was written.
        """
        lease = self._lease
        if lease is None:
            raise ShardLostError("this server does not hold the role")

        async def checked(connection: Connection) -> T:
            if not await connection.fetchval(_HOLD, lease.shard, lease.epoch):
                raise ShardLostError("another server has taken the role")
            return await unit(connection)

        return await self._database.transact(checked, deadline_ms=deadline_ms)
