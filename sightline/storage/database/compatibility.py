"""Whether the database offers what ownership of shards depends on. Connection poolers and some databases do not."""

from typing import Final

from sightline.domain.errors import StoreUnavailableError
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import NOT_CONNECTED, Connection, PoolOptions, connect

PROBE_KEY: Final = 5_300_046
"""First key of the advisory lock that two connections compete for; any constant number works. The second is the process
id of the first connection: servers that start at the same time must not compete with each other."""

_NAME: Final = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_LOCK: Final = f"SELECT pg_try_advisory_xact_lock({PROBE_KEY}, $1::integer)"


class IncompatibleDatabaseError(Exception):
    """The database cannot be used; the message says what it lacks."""


async def require_direct_connections(database: Database) -> None:
    """Check that connections are real sessions of Postgres and that advisory locks exclude each other.

    A server that takes shards over ends the connections of its predecessor by `application_name`; a write in doubt is
    ended by its process id; and shards are guarded by advisory locks. A transaction pooler hides the first two. A
    database that only accepts the lock functions would let two owners write.

    Raises:
        IncompatibleDatabaseError: One of these does not hold.
        StoreUnavailableError: The database was not reached.
    """
    problems: list[str] = []

    async def probe(options: PoolOptions) -> None:
        connections: list[Connection] = []
        try:
            connections += [await connect(options), await connect(options)]
            problems.extend(await _problems(connections, options.application_name))
        except NOT_CONNECTED as error:
            raise StoreUnavailableError(f"database not reached: {error}") from error
        finally:
            for connection in connections:
                connection.terminate()

    await database.host(probe)
    if problems:
        raise IncompatibleDatabaseError(
            f"the database {'; '.join(problems)}: connect to Postgres directly, not through a connection pooler"
        )


async def _problems(connections: list[Connection], name: str) -> list[str]:
    found: list[str] = []
    first, second = connections
    for connection in connections:
        if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
            found.append("hides the process ids of its connections")
        if await connection.fetchval(_NAME) != name:
            found.append("does not keep application_name")
    async with first.transaction():
        own = first.get_server_pid()
        taken = await first.fetchval(_LOCK, own)
        also = await second.fetchval(_LOCK, own)
    if not taken or also:
        found.append("does not enforce advisory locks")
    return sorted(set(found))
