"""Check that all servers of a database use the same secrets: otherwise a server refuses the API keys of another one."""

from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection


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
        stored = await connection.fetchval("SELECT fingerprint FROM secrets_fingerprint")
        return bool(stored == fingerprint)

    return await database.transact(write_and_read)
