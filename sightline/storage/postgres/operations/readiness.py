"""The database's part of the readiness check."""

from collections.abc import Mapping
from typing import Final, final

import asyncpg

from sightline.domain.errors import SightlineError
from sightline.domain.value import Value
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

DEADLINE_MS: Final = 2_000

_WRITE: Final = """
INSERT INTO readiness_probe (id, written_at) VALUES (true, now())
ON CONFLICT (id) DO UPDATE SET written_at = excluded.written_at
"""


@final
class DatabaseProbe(Value, kw_only=True):
    """What a probe found."""

    problem: str | None
    """Why the database cannot be written; None if it can."""
    fenced_shards: int = 0
    """Shards that another server has taken over; this one must not serve them."""


async def probe_database(database: Database, epochs: Mapping[int, int]) -> DatabaseProbe:
    """Write a row, commit it, and compare the epochs of our shards with those of the database."""

    async def unit(connection: Connection) -> int:
        await connection.execute(_WRITE)
        rows = await connection.fetch("SELECT id, epoch FROM shard")
        return sum(epochs.get(row["id"], row["epoch"]) != row["epoch"] for row in rows)

    try:
        return DatabaseProbe(problem=None, fenced_shards=await database.transact(unit, deadline_ms=DEADLINE_MS))
    except (SightlineError, asyncpg.PostgresError, OSError) as error:
        return DatabaseProbe(problem=str(error) or type(error).__name__)
