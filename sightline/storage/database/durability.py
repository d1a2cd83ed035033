"""Whether the database keeps what it acknowledged when its machine loses power."""

from typing import Final

import structlog

from sightline.storage.database.bridge import Database

log = structlog.get_logger("sightline.database")

SETTINGS: Final = ("fsync", "full_page_writes")
"""With one of these off, a power failure can lose or corrupt committed rows. They belong to the whole database server,
so a connection cannot turn them on; it does set `synchronous_commit`."""


STANDBY: Final = "synchronous_standby_names"
_OFF: Final = """
SELECT name FROM unnest($1::text[]) AS name WHERE current_setting(name, true) = 'off'
UNION ALL SELECT $3::text WHERE $2::boolean AND current_setting($3::text, true) = ''
ORDER BY name
"""


async def settings_not_durable(database: Database, *, has_standby: bool) -> tuple[str, ...]:
    """Return the names of the settings of the database server that give up durability.

    Args:
        has_standby: As for `warn_if_not_durable`.

    Raises:
        StoreUnavailableError: The database did not answer.
    """
    rows = await database.read(lambda connection: connection.fetch(_OFF, list(SETTINGS), has_standby, STANDBY))
    return tuple(str(row["name"]) for row in rows)


async def warn_if_not_durable(database: Database, *, has_standby: bool = False) -> tuple[str, ...]:
    """Log an error for each setting of the database server that gives up durability, and return their names.

    Not a refusal: a test system may choose speed.

    Args:
        has_standby: Whether a standby may become the primary. What it has not received is lost then, so commits have to
            wait for it.

    Raises:
        StoreUnavailableError: The database did not answer.
    """
    off = await settings_not_durable(database, has_standby=has_standby)
    for name in off:
        value = "the names of the standbys" if name == STANDBY else "on"
        log.error("database_not_durable", setting=name, advice=f"set {name} = {value} in postgresql.conf")
    return off
