"""Ownership of shards in Postgres: taking them, and noticing that another server took them."""

from collections.abc import Mapping
from typing import Final, final

import trio

from sightline.storage.database.bridge import Database

_TAKE: Final = "SELECT id, epoch FROM take_shards($1, $2)"
_CONNECTIONS: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sightline' AND datname = current_database()"
)
_IS_TAKEN: Final = "SELECT EXISTS (SELECT FROM shard WHERE incarnation IS DISTINCT FROM $1)"


@final
class ShardOwnership:
    """The shards of this server. `lost` is set once another server holds one of them, and stays set."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._incarnation: str | None = None
        self.lost = trio.Event()

    async def acquire(self, owner: str, incarnation: str) -> Mapping[int, int]:
        """Take every shard. Writes in progress at the old epochs finish first; later ones are refused.

        Returns:
            The epoch of each shard.
        """
        rows = await self._database.run(lambda connection: connection.fetch(_TAKE, owner, incarnation))
        self._incarnation = incarnation
        return {row["id"]: row["epoch"] for row in rows}

    async def check(self) -> None:
        """Compare the stored owner with this server; sets `lost` if they differ. One read of a table of 256 rows.

        Raises:
            StoreUnavailableError: The database did not answer; nothing is known.
        """
        if self._incarnation is None or self.lost.is_set():
            return
        if await self._database.read(lambda connection: connection.fetchval(_IS_TAKEN, self._incarnation)):
            self.lost.set()


async def count_other_connections(database: Database) -> int:
    """Connections of other Sightline servers to this database. One that is just closing may be counted.

    Raises:
        StoreUnavailableError: The database did not answer.
    """
    total: int = await database.read(lambda connection: connection.fetchval(_CONNECTIONS))
    return max(0, total - database.statistics().connections_open)
