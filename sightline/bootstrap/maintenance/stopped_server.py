"""What commands share that change the database of a stopped server."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sightline.bootstrap.children import open_dsn
from sightline.bootstrap.failures.errors import StartError, leaves_of
from sightline.config import Settings
from sightline.domain.errors import SightlineError, StoreUnavailableError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.system.children import ChildFailedError
from sightline.system.data_directory import (
    CLUSTER,
    OtherAccountError,
    PartMissingError,
    check_parts,
    require_own_account,
)
from sightline.system.lock import DataDirectoryInUseError, lock_directory

_EXPECTED = (
    SightlineError,
    StartError,
    OSError,
    ValueError,
    DataDirectoryInUseError,
    OtherAccountError,
    PartMissingError,
    ChildFailedError,
)


_NOTHING_WRITTEN = (StartError, StoreUnavailableError)
"""Errors of a write that had no effect."""


def on_stopped_server(settings: Settings, change: Callable[[Callable[[], None]], bool]) -> bool:
    """Lock the data directory and change something.

    Args:
        change: Is given a function that it calls before it writes. Returns False if the person has not confirmed.

    Returns:
        Whether it was changed; if not, or if that is not known, stderr has the reason.
    """
    os.umask(0o077)
    has_begun: list[bool] = []
    try:
        directory = settings.data_dir.resolve()
        if not directory.is_dir():
            raise StartError(f"{directory} is no directory. Name that of the server with --data-dir.")
        require_own_account(directory)
        if settings.database_url is None:
            check_parts(directory, (CLUSTER,))  # an embedded database that is missing would be made, empty
        with lock_directory(directory):
            is_changed = change(lambda: has_begun.append(True))
    except (ExceptionGroup, *_EXPECTED) as error:
        cause = leaves_of(error)[0]
        if not isinstance(cause, _EXPECTED):
            raise cause from error  # of a prompt that was left, a group would be a traceback
        why = " ".join(str(cause).split())
        if has_begun and not isinstance(cause, _NOTHING_WRITTEN):
            sys.stderr.write(f"It is not known whether it was changed: {why} Run the command again.\n")
        else:
            sys.stderr.write(f"Nothing was changed: {why}\n")
        return False
    if not is_changed:
        sys.stderr.write("Nothing was changed.\n")
    return is_changed


def place_of_database(settings: Settings) -> str:
    """Name the database: its setting, or the directory of the embedded one."""
    return "SIGHTLINE_DATABASE_URL" if settings.database_url is not None else str(settings.data_dir / "postgres")


@asynccontextmanager
async def open_stopped_database(settings: Settings, command: str) -> AsyncIterator[Database]:
    """Open the database, and run the embedded one until the block ends.

    Raises:
        ChildFailedError: The embedded database does not start.
        StoreUnavailableError: The database did not answer.
    """
    async with open_dsn(settings) as dsn:
        pool = PoolOptions(dsn=dsn, application_name=command, connections_min=1, connections_max=1)
        async with open_database(DatabaseOptions(pool=pool)) as database:
            yield database
