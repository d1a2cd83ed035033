"""`sightline reconcile --accept-database`: use a database although it is older than what this server has seen."""

import os
import sys
from collections.abc import Callable

import trio

from sightline.bootstrap.children import open_dsn
from sightline.bootstrap.database_mark import FILE_NAME, read_mark, write_mark
from sightline.bootstrap.failures.errors import StartError, leaves_of
from sightline.config import Settings
from sightline.domain.errors import SightlineError
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.history import DatabasePosition, read_position
from sightline.storage.database.pool import PoolOptions
from sightline.system.children import ChildFailedError
from sightline.system.lock import DataDirectoryInUseError, lock_directory


def run_accept_database(settings: Settings, confirm: Callable[[str], bool]) -> int:
    """Write a new mark for the present database, if a person confirms. The server must be stopped.

    Returns:
        The exit code.
    """
    os.umask(0o077)
    directory = settings.data_dir.resolve()
    try:
        with lock_directory(directory):
            found = trio.run(_read, settings)
            question = f"Use the database of {_where(settings)} from now on? {_compared(settings, found)}"
            if not confirm(question):
                sys.stderr.write("Nothing was changed.\n")
                return 1
            write_mark(directory, found)
            for mark in directory.glob(f"workers/*/{FILE_NAME}"):
                mark.unlink()
    except Exception as error:
        cause = leaves_of(error)[0]
        if not isinstance(cause, SightlineError | OSError | DataDirectoryInUseError | ChildFailedError):
            raise
        sys.stderr.write(f"Nothing was changed: {' '.join(str(cause).split())}\n")
        return 1
    sys.stdout.write(
        f"{directory / FILE_NAME}: the present database is accepted. After the start, `sightline reconcile` lists "
        "payments that it does not know.\n"
    )
    return 0


def _where(settings: Settings) -> str:
    return "SIGHTLINE_DATABASE_URL" if settings.database_url is not None else str(settings.data_dir / "postgres")


def _compared(settings: Settings, found: DatabasePosition) -> str:
    try:
        seen = read_mark(settings.data_dir.resolve())
    except StartError as error:
        return str(error)
    if seen is None:
        return "This data directory has no mark yet."
    difference = seen.difference(found)
    return "It is the one that was used." if difference is None else f"It differs: {difference}."


async def _read(settings: Settings) -> DatabasePosition:
    async with open_dsn(settings) as dsn:
        pool = PoolOptions(dsn=dsn, application_name="sightline reconcile", connections_min=1, connections_max=1)
        async with open_database(DatabaseOptions(pool=pool)) as database:
            return await database.read(read_position)
