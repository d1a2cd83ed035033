"""Counts for metrics. Each query reads a partial index of unfinished rows, never a whole table."""

from typing import Final, final

from msgspec import field

from sightline.domain.value import Value
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

SESSIONS: Final = """
SELECT state, count(*) AS n FROM session WHERE state IN ('REQUESTED', 'ASSIGNED', 'LIVE') GROUP BY state
"""
OPERATORS: Final = """
SELECT doc->>'availability' AS availability, count(*) AS n FROM workspace WHERE is_dispatchable GROUP BY 1
"""
SETTLEMENTS: Final = """
SELECT state, count(*) AS n, min(composed_at_ms) AS oldest_ms FROM settlement
WHERE state NOT IN ('CONFIRMED', 'WRITTEN_OFF') AND state <> 'CONFIRMED' GROUP BY state
"""


@final
class Counts(Value, kw_only=True):
    """What the database holds that is not finished."""

    sessions: dict[str, int] = field(default_factory=dict)
    """By state: REQUESTED, ASSIGNED, LIVE."""
    operators: dict[str, int] = field(default_factory=dict)
    """By availability: ONLINE, BUSY, and OFFLINE with a claim."""
    settlements: dict[str, int] = field(default_factory=dict)
    """By state, those that are neither CONFIRMED nor WRITTEN_OFF."""
    oldest_settlement_ms: int | None = None


async def read_counts(database: Database) -> Counts:
    """Count sessions, operators and settlements.

    Raises:
        StoreUnavailableError: The database did not answer.
    """

    async def read(connection: Connection) -> Counts:
        settlements = await connection.fetch(SETTLEMENTS)
        return Counts(
            sessions={row["state"]: row["n"] for row in await connection.fetch(SESSIONS)},
            operators={row["availability"]: row["n"] for row in await connection.fetch(OPERATORS)},
            settlements={row["state"]: row["n"] for row in settlements},
            oldest_settlement_ms=min((row["oldest_ms"] for row in settlements), default=None),
        )

    return await database.read(read)
