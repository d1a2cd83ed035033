"""Retry the start steps that need the database until a deadline."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

import structlog
import trio

from sightline.bootstrap.failures.errors import StartError
from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.history import StaleDatabaseError
from sightline.storage.database.sqlstate import INSUFFICIENT_PRIVILEGE

FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 4.0
PERMANENT_SQLSTATES: Final = ("28", "3D")
"""SQLSTATE classes that a retry does not fix: invalid authorization (28) and unknown database (3D)."""

REMEDY: Final = (
    "What was acknowledged since would be lost. Connect to the present primary. If this database is meant, as after a "
    "restore, run `sightline reconcile --accept-database`."
)
POOLER_SQLSTATE: Final = "08P01"
"""Protocol violation: a connection pooler does not accept the settings that a connection starts with."""

T = TypeVar("T")
log = structlog.get_logger("sightline")


@final
class StartRetry:
    """Runs start steps. A step that cannot reach the database is retried for `timeout_s`.

    Args:
        setting: Name of the setting that holds the database's address, for error messages.
    """

    def __init__(self, timeout_s: float, setting: str) -> None:
        self._timeout_s = timeout_s
        self._setting = setting

    async def run(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step that is safe to repeat, and return its result.

        The wait is logged once, and again when the reason changes. The delays double, up to 4 s.

        Raises:
            StartError: The database refuses the login, the database name or a right, or is a connection pooler: a
                retry would not help.
            StoreUnavailableError, OutcomeUnknownError: The deadline has passed; this is the last error.
        """
        deadline = trio.current_time() + self._timeout_s
        delay_s, said = FIRST_DELAY_S, ""
        while True:
            try:
                return await step()
            except (StoreUnavailableError, OutcomeUnknownError) as error:
                self._raise_if_permanent(error)
                remaining_s = deadline - trio.current_time()
                if remaining_s <= 0:
                    raise type(error)(f"{error} (gave up after {self._timeout_s:g} s)") from error
                if str(error) != said:
                    said = str(error)
                    advice = f"waits for the database of {self._setting}, {remaining_s:.0f} s at most"
                    log.warning("database_not_reached", error=said, advice=advice)
            await trio.sleep(min(delay_s, remaining_s))
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)

    def _raise_if_permanent(self, error: StoreUnavailableError | OutcomeUnknownError) -> None:
        cause = error.__cause__
        sqlstate = getattr(cause, "sqlstate", None)
        if sqlstate == POOLER_SQLSTATE and "startup parameter" in str(cause):
            raise StartError(
                f"{self._setting} leads to a connection pooler ({cause}). Sightline needs direct connections: name the "
                "host and port of Postgres itself."
            ) from error
        if isinstance(cause, StaleDatabaseError):
            raise StartError(f"{self._setting} leads to an older or another database: {cause}. {REMEDY}") from error
        if sqlstate == INSUFFICIENT_PRIVILEGE:
            raise StartError(
                f"The role of {self._setting} lacks a right: {cause}. Make it the owner of the database, or grant it "
                "CREATE and USAGE on the schema and all rights on its tables and functions."
            ) from error
        if isinstance(cause, ValueError) or (isinstance(sqlstate, str) and sqlstate.startswith(PERMANENT_SQLSTATES)):
            raise StartError(f"The database refuses the connection: {cause}. Check {self._setting}.") from error
