"""`sightline reconcile --accept-database`: use a database although it is older than what this server has seen."""

import sys
from collections.abc import Callable

import trio

from sightline.bootstrap.database_mark import FILE_NAME, read_mark, write_mark
from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.maintenance.stopped_server import on_stopped_server, open_stopped_database, place_of_database
from sightline.config import Settings
from sightline.storage.database.history import DatabasePosition, read_position


def run_accept_database(settings: Settings, confirm: Callable[[str], bool]) -> int:
    """Write a new mark for the present database, if a person confirms. The server must be stopped.

    Returns:
        The exit code.
    """
    directory = settings.data_dir.resolve()

    def accept(begin: Callable[[], None]) -> bool:
        found = trio.run(_read, settings)
        question = f"Use the database of {place_of_database(settings)} from now on? {_compared(settings, found)}"
        if not confirm(question):
            return False
        begin()
        write_mark(directory, found)
        for mark in directory.glob(f"workers/*/{FILE_NAME}"):
            mark.unlink()
        return True

    if not on_stopped_server(settings, accept):
        return 1
    sys.stdout.write(
        f"{directory / FILE_NAME}: the present database is accepted. After the start, `sightline reconcile` lists "
        "payments that it does not know.\n"
    )
    return 0


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
    async with open_stopped_database(settings, "sightline reconcile") as database:
        return await database.read(read_position)
