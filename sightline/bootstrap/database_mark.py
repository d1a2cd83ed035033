"""The mark beside the data: which database this server used, and how far it was. An older one, or another, is refused.

A file of its own in the data directory, because the database cannot say by itself that it is yesterday's copy. A server
of an earlier version has left none: its successor accepts the database and writes one.
"""

import json
from pathlib import Path
from typing import Final, NoReturn, final

import structlog
import trio
from msgspec.structs import asdict

from sightline.bootstrap.failures.errors import StartError, TakenOverError
from sightline.domain.errors import SightlineError
from sightline.storage.database.bridge import Database
from sightline.storage.database.history import DatabasePosition, HistoryGuard, read_position
from sightline.storage.database.pool import PoolOptions, primaries_of
from sightline.storage.database.url import urls_of_hosts
from sightline.system.files import write_durably

FILE_NAME: Final = "database_mark.json"
LOOK_EVERY_S: Final = 10.0
SOON_S: Final = 1.0
"""After the start, and after an error."""
END_TIMEOUT_S: Final = 2.0
HOST_TIMEOUT_MS: Final = 2_000

log = structlog.get_logger("sightline")


def read_mark(directory: Path) -> DatabasePosition | None:
    """Read the mark of a data directory; None if there is none.

    Raises:
        StartError: The file is damaged.
    """
    path = directory / FILE_NAME
    try:
        return DatabasePosition(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise StartError(
            f"{path} cannot be read ({error}): it says which database was used. If the database is the right one, run "
            "`sightline reconcile --accept-database`."
        ) from error


def write_mark(directory: Path, position: DatabasePosition) -> None:
    """Replace the mark of a data directory, durably.

    Raises:
        OSError: The disk is full, or the directory is not writable.
    """
    write_durably(directory / FILE_NAME, json.dumps(asdict(position)).encode())


@final
class MarkKeeper:
    """Keeps the mark of a data directory up to date, and looks at all hosts of the database."""

    def __init__(self, directory: Path, database: Database, guard: HistoryGuard) -> None:
        self._directory = directory
        self._database = database
        self._guard = guard
        self._written: DatabasePosition | None = None
        self._has_several_hosts = len(urls_of_hosts(database.options.pool.dsn)) > 1
        self._timeline = 0
        """Of the only host that accepted writes when all were last asked; 0: unknown."""

    async def begin(self) -> None:
        """Look at all hosts and write the mark, before anything is written to the database.

        Raises:
            StartError: Two hosts accept writes, or the mark cannot be written.
            StoreUnavailableError: The database did not answer.
        """
        found = await self._look()
        if len(found) > 1:
            hosts = " and ".join(f"{host} ({_described(position)})" for host, position in found.items())
            raise StartError(
                f"Two hosts of SIGHTLINE_DATABASE_URL accept writes: {hosts}. Stop the former primary, or start it "
                "as a standby of the other one."
            )
        self._timeline = _newest_timeline(found)
        try:
            await self._note()
        except OSError as error:
            raise StartError(f"{self._directory / FILE_NAME} cannot be written: {error}.") from error

    async def run(self) -> NoReturn:
        """Look again and again.

        Raises:
            TakenOverError: Another host was promoted, and the one that was used here still accepts writes.
        """
        wait_s = SOON_S  # this server is taking its shards
        while True:
            await trio.sleep(wait_s)
            wait_s = LOOK_EVERY_S
            try:
                await self._require_one_primary(await self._look())
                await self._note()
            except OSError as error:
                log.warning("database_mark_not_written", error=str(error))
            except SightlineError:
                wait_s = SOON_S  # the database does not answer, which readiness and the callers report

    async def end(self) -> None:
        """Write the mark of an orderly stop. Errors are only logged."""
        with trio.move_on_after(END_TIMEOUT_S):
            try:
                await self._note()
            except (OSError, SightlineError) as error:
                log.warning("database_mark_not_written", error=str(error))

    async def _require_one_primary(self, found: dict[str, DatabasePosition]) -> None:
        was, self._guard.primaries = self._guard.primaries, len(found) if self._has_several_hosts else 1
        if len(found) <= 1:
            self._timeline = max(self._timeline, _newest_timeline(found))
            return
        hosts = {host: _described(position) for host, position in found.items()}
        if was <= 1:
            log.error("database_has_two_primaries", hosts=hosts, advice="stop the former primary")
        newest = _newest_timeline(found)
        used = self._timeline
        if used in (0, newest):  # a connection may still lead to the host that was used before that one
            used = (await self._database.read(read_position)).timeline or 0
        # Of the connections of one pool, those opened since the promotion lead to the promoted host and older ones do
        # not. So what one connection says is not enough: what was the only primary before counts too.
        if used < newest:
            raise TakenOverError(
                f"Another host of the database was promoted: {hosts}. This server used timeline {used}."
            )

    async def _look(self) -> dict[str, DatabasePosition]:
        if not self._has_several_hosts:
            return {}
        found: dict[str, DatabasePosition] = {}

        async def ask(options: PoolOptions) -> None:
            found.update(await primaries_of(options, timeout_ms=HOST_TIMEOUT_MS))

        await self._database.host(ask)
        return found

    async def _note(self) -> None:
        self._guard.note(await self._database.read(read_position))
        seen = self._guard.seen
        if seen is not None and seen != self._written:
            await trio.to_thread.run_sync(write_mark, self._directory, seen)
            self._written = seen


def _newest_timeline(found: dict[str, DatabasePosition]) -> int:
    return max((position.timeline or 0 for position in found.values()), default=0)


def _described(position: DatabasePosition) -> str:
    return "timeline unknown" if position.timeline is None else f"timeline {position.timeline}"
