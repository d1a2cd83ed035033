"""Brings a database to the schema of this code: numbered SQL files, each applied once, in its own transaction.

Servers that start together take turns (an advisory lock held by each transaction). A file's checksum is
kept: a file that changed after it was applied, or a database that has more than this code knows, stops the
start rather than risk the data.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, final

import structlog

from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.database.sqlstate import StatementRefusedError

log = structlog.get_logger()

LOCK_KEY: Final = 5_300_041
"""Advisory lock of the migrations; any number, as long as it stays the same."""

DEADLINE_MS: Final = 15 * 60 * 1_000
"""For one file: a migration may rewrite a large table."""

_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")

_MAKE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
  number integer PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class SchemaError(Exception):
    """The database does not fit this code; the message says what to do."""


@final
@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


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


async def migrate(database: Database, migrations: Sequence[Migration] | None = None) -> tuple[str, ...]:
    """Apply missing migrations and return their names.

    Raises:
        SchemaError: The database was made by newer code, a migration was changed after it was applied, or one failed.
        StoreUnavailableError, OutcomeUnknownError: As every unit of work; calling again is safe.
    """
    wanted = known_migrations() if migrations is None else tuple(migrations)
    applied = []
    for migration in wanted:

        async def unit(connection: Connection, migration: Migration = migration) -> bool:
            return await _apply(connection, migration, wanted)

        try:
            is_new = await database.transact(unit, deadline_ms=DEADLINE_MS)
        except StatementRefusedError as error:
            raise SchemaError(f"migration {migration.name} failed and was rolled back: {error.reason}") from error
        if is_new:
            log.info("migration_applied", name=migration.name)
            applied.append(migration.name)
    return tuple(applied)


async def _apply(connection: Connection, migration: Migration, wanted: Sequence[Migration]) -> bool:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_KEY)
    await connection.execute(_MAKE_TABLE)
    rows = await connection.fetch("SELECT number, name, checksum FROM schema_migration")
    stored = {row["number"]: (row["name"], row["checksum"]) for row in rows}
    _check(stored, wanted)
    if migration.number in stored:
        return False
    await connection.execute("SET LOCAL statement_timeout = 0")
    await connection.execute(migration.sql)
    await connection.execute(
        "INSERT INTO schema_migration (number, name, checksum) VALUES ($1, $2, $3)",
        migration.number,
        migration.name,
        migration.checksum,
    )
    return True


def _check(stored: Mapping[int, tuple[str, str]], wanted: Sequence[Migration]) -> None:
    known = {migration.number: migration for migration in wanted}
    for number, (name, checksum) in sorted(stored.items()):
        if number not in known:
            raise SchemaError(
                f"the database has migration {name}, which this version does not know: run a newer version"
            )
        if known[number].checksum != checksum:
            raise SchemaError(f"migration {name} is not the one that was applied to this database")
