"""Brings a database to the schema of this code: numbered SQL files, each applied once, in its own transaction.

Servers that start together take turns (an advisory lock held by each transaction). A file's checksum is
kept: a file that changed after it was applied stops the start rather than risk the data.

Servers of several versions may use one database. The first line of a file may be `-- compatible_from: NNNN`:
servers that know migration NNNN, but not this one, can go on working. Without the line they cannot: such a server is
refused at its start, and the migration is refused while one runs.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final, final

import structlog

from sightline.domain.value import Value
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.database.sqlstate import StatementRefusedError

log = structlog.get_logger()

LOCK_KEY: Final = 5_300_041
"""Advisory lock of the migrations; any number, as long as it stays the same."""

DEADLINE_MS: Final = 15 * 60 * 1_000
"""For one file: a migration may rewrite a large table."""

ANNOUNCED_SINCE: Final = 581
"""The migration since which servers say in their lease which migrations they know."""

_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_COMPATIBLE_FROM = re.compile(r"-- compatible_from: (\d{4})\n")

_MAKE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
  number integer PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE schema_migration ADD COLUMN IF NOT EXISTS compatible_from integer
"""
_OTHER_SERVERS = """
SELECT incarnation, host, migrations, expires_at > clock_timestamp() AND place IS DISTINCT FROM $1 AS is_running
FROM server_lease
"""


class SchemaError(Exception):
    """The database does not fit this code; the message says what to do."""


class OlderServersError(SchemaError):
    """A migration was not applied, because servers are running that could not work with it."""


@final
class Migration(Value):
    """One numbered step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def compatible_from(self) -> int | None:
        """Servers that know the migration with this number can work without knowing this one; None: no server can."""
        found = _COMPATIBLE_FROM.match(self.sql)
        return int(found[1]) if found else None


@final
class _Stored(Value):
    """A migration that was applied to the database."""

    name: str
    checksum: str
    compatible_from: int | None


def known_migrations() -> tuple[Migration, ...]:
    """The migrations that came with this code, by number."""
    files = (resources.files("sightline.storage") / "migrations").iterdir()
    found = sorted(
        (
            Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
            for file in files
            if (match := _NAME.match(file.name))
        ),
        key=lambda migration: migration.number,
    )
    assert len({migration.number for migration in found}) == len(found), "two migrations have one number"
    return tuple(found)


async def migrate(
    database: Database, migrations: Sequence[Migration] | None = None, *, directory_id: str | None = None
) -> tuple[str, ...]:
    """Apply missing migrations and return their names.

    Args:
        directory_id: The `ServerIdentity.directory_id` of this server, whose earlier servers have ended.

    Raises:
        OlderServersError: Other servers could not work with a migration. Those before it were applied.
        SchemaError: The database was made by newer code, a migration was changed after it was applied, or one failed.
        StoreUnavailableError, OutcomeUnknownError: As every unit of work; calling again is safe.
    """
    wanted = known_migrations() if migrations is None else tuple(migrations)
    applied = []
    for migration in wanted:

        async def unit(connection: Connection, migration: Migration = migration) -> bool:
            return await _apply(connection, migration, wanted, directory_id)

        try:
            is_new = await database.transact(unit, deadline_ms=DEADLINE_MS)
        except StatementRefusedError as error:
            raise SchemaError(f"migration {migration.name} failed and was rolled back: {error.reason}") from error
        if is_new:
            log.info("migration_applied", name=migration.name)
            applied.append(migration.name)
    return tuple(applied)


async def require_known_schema(connection: Connection) -> list[int]:
    """Check that this code can work with the schema, and let no migration be applied until the transaction ends.

    Returns:
        The migrations that this code knows.

    Raises:
        SchemaError: It cannot.
    """
    await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", LOCK_KEY)
    wanted = known_migrations()
    _check(await _stored(connection), wanted)
    return [migration.number for migration in wanted]


async def _stored(connection: Connection) -> dict[int, _Stored]:
    rows = await connection.fetch("SELECT number, name, checksum, compatible_from FROM schema_migration")
    return {row["number"]: _Stored(row["name"], row["checksum"], row["compatible_from"]) for row in rows}


async def _apply(
    connection: Connection, migration: Migration, wanted: Sequence[Migration], directory_id: str | None
) -> bool:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_KEY)
    await connection.execute(_MAKE_TABLE)
    stored = await _stored(connection)
    _check(stored, wanted)
    if migration.number in stored:
        return False
    if ANNOUNCED_SINCE in stored:
        await _end_older_servers(connection, migration, directory_id)
    await connection.execute("SET LOCAL statement_timeout = 0")
    await connection.execute(migration.sql)
    await connection.execute(
        "INSERT INTO schema_migration (number, name, checksum, compatible_from) VALUES ($1, $2, $3, $4)",
        migration.number,
        migration.name,
        migration.checksum,
        migration.compatible_from,
    )
    return True


async def _end_older_servers(connection: Connection, migration: Migration, directory_id: str | None) -> None:
    """Refuse the migration while a server runs that cannot work with it, and let none that was suspended come back."""
    running = []
    for server in await connection.fetch(_OTHER_SERVERS, directory_id):
        if not {migration.number, migration.compatible_from} & {*server["migrations"]}:
            if server["is_running"]:
                running.append(server["host"])
            else:
                await connection.execute("SELECT end_server($1)", server["incarnation"])
    if running:
        raise OlderServersError(
            f"migration {migration.name} changes what servers of an older version use, and such servers run on "
            f"{', '.join(sorted(running))}: stop all of them first, then start this version"
        )


def _check(stored: Mapping[int, _Stored], wanted: Sequence[Migration]) -> None:
    known = {migration.number: migration for migration in wanted}
    for number, found in sorted(stored.items()):
        if number not in known:
            if found.compatible_from not in known:
                raise SchemaError(
                    f"the database has migration {found.name}, which this version does not know: run a newer version"
                )
        elif known[number].checksum != found.checksum:
            raise SchemaError(f"migration {found.name} is not the one that was applied to this database")
