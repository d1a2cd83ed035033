"""Whether the database keeps what it acknowledged when its machine loses power."""

from typing import Final

import structlog

from sightline.storage.database.bridge import Database

log = structlog.get_logger("sightline.database")

SETTINGS: Final = ("fsync", "full_page_writes")
"""With one of these off, a power failure can lose or corrupt committed rows. They belong to the whole database server,
so a connection cannot turn them on; it does set `synchronous_commit`."""


async def warn_if_not_durable(database: Database) -> tuple[str, ...]:
    """Log an error for each setting of the database server that gives up durability, and return their names.

    Not a refusal: a test system may choose speed.

    Raises:
        StoreUnavailableError: The database did not answer.
    """
    query = "SELECT name FROM pg_settings WHERE name = ANY($1) AND setting = 'off' ORDER BY name"
    rows = await database.read(lambda connection: connection.fetch(query, list(SETTINGS)))
    off = tuple(str(row["name"]) for row in rows)
    for name in off:
        log.error("database_not_durable", setting=name, advice=f"set {name} = on in postgresql.conf")
    return off
