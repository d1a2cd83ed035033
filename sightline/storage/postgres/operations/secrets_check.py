"""Check that all servers of a database use the same secrets: otherwise a server refuses the API keys of another one."""

from datetime import timedelta
from typing import Final

from sightline.ports.leases import TTL_MS
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection

_STORED: Final = "SELECT fingerprint FROM secrets_fingerprint"
_REPLACE: Final = "UPDATE secrets_fingerprint SET fingerprint = $2 WHERE fingerprint = $1 RETURNING true"
# A lease that ends later than one can was made before the clock was set back, and excludes nobody.
_RUNNING: Final = """
SELECT DISTINCT host FROM server_lease
WHERE expires_at > clock_timestamp() AND expires_at <= clock_timestamp() + 2 * $1::interval ORDER BY host
"""
_TTL: Final = timedelta(milliseconds=TTL_MS)


async def are_same_secrets(database: Database, fingerprint: str) -> bool:
    """Whether the servers of this database use the secrets with this fingerprint. The first one decides.

    Raises:
        StoreUnavailableError, OutcomeUnknownError: Call it again.
    """

    async def write_and_read(connection: Connection) -> bool:
        await connection.execute(
            "INSERT INTO secrets_fingerprint (fingerprint) VALUES ($1) ON CONFLICT DO NOTHING", fingerprint
        )
        # A statement of its own: it sees the row of a server that started at the same time.
        return bool(await connection.fetchval(_STORED) == fingerprint)

    return await database.transact(write_and_read)


async def stored_fingerprint(database: Database) -> str | None:
    """Return the fingerprint of the secrets that the servers of this database use; None before the first start.

    Raises:
        StoreUnavailableError: The database did not answer.
    """

    async def read(connection: Connection) -> str | None:
        if not await connection.fetchval("SELECT to_regclass('secrets_fingerprint') IS NOT NULL"):
            return None
        found: str | None = await connection.fetchval(_STORED)
        return found

    return await database.read(read)


async def running_hosts(database: Database) -> list[str]:
    """Return the machines of the servers that have a valid lease in a database with a schema.

    Raises:
        StoreUnavailableError: The database did not answer.
    """
    return await database.read(_running_hosts)


async def _running_hosts(connection: Connection) -> list[str]:
    return [row["host"] for row in await connection.fetch(_RUNNING, _TTL)]


async def replace_fingerprint(database: Database, replaced: str, fingerprint: str) -> bool:
    """Let the servers with these secrets use the database, in place of those with the secrets `replaced`.

    Returns:
        False if a server runs, or if others than `replaced` are stored: nothing was changed.

    Raises:
        StoreUnavailableError, OutcomeUnknownError: Call it again.
    """

    async def replace(connection: Connection) -> bool:
        await connection.execute("LOCK TABLE server_lease IN SHARE MODE")  # a server that starts now waits for this
        if await _running_hosts(connection):
            return False
        return bool(await connection.fetchval(_REPLACE, replaced, fingerprint))

    return await database.transact(replace)
