"""One unit of work on the asyncio side: take a connection, run, commit, clean up, and report the outcome exactly.

The phase decides what a cancellation or a missed deadline means:

| phase      | state                 | cancellation                    | deadline                               |
|------------|-----------------------|---------------------------------|----------------------------------------|
| WAITING    | no connection yet     | obeyed; nothing was applied     | nothing was applied                    |
| RUNNING    | the unit runs         | READ, TRANSACT: rolled back     | READ, TRANSACT: rolled back            |
|            |                       | RUN: not obeyed                 | RUN: outcome unknown                   |
| COMMITTING | COMMIT was sent       | not obeyed; the answer is near  | outcome unknown                        |
| CLEANING   | rolling back          | not obeyed                      | not obeyed; it has a timeout of its own |
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, final

from sightline.domain.errors import InvariantError, OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.pool import NOT_CONNECTED, Connection, ConnectionPool
from sightline.storage.database.sqlstate import (
    READ_ONLY,
    SqlstateMeaning,
    StatementRefusedError,
    describe,
    meaning_of,
    needs_new_connection,
)

T = TypeVar("T")
Unit: TypeAlias = Callable[[Connection], Awaitable[T]]

ROLLBACK_TIMEOUT_S = 1.0
"""A slower rollback is given up and the connection closed, which rolls back as well."""

ATTEMPTS_MAX = 4
"""Runs of a unit that the database undoes each time."""


class WorkKind(enum.Enum):
    """What a unit of work may do, which decides what its failures mean."""

    READ = "read"
    """Writes nothing: it may be cancelled and run again at any time."""
    RUN = "run"
    """One statement that commits itself: once it runs, only the deadline stops it."""
    TRANSACT = "transact"
    """BEGIN and COMMIT around the unit."""


class WorkPhase(enum.Enum):
    """How far a unit of work has come."""

    WAITING = "waiting"
    RUNNING = "running"
    COMMITTING = "committing"
    CLEANING = "cleaning"


class CommitInDoubtError(OutcomeUnknownError):
    """The write was sent and its answer was lost. The backend may still run and commit it."""

    def __init__(self, message: str, backend_pid: int) -> None:
        super().__init__(message)
        self.backend_pid = backend_pid

    def __reduce__(self) -> tuple[type["CommitInDoubtError"], tuple[str, int]]:
        return CommitInDoubtError, (str(self), self.backend_pid)


class _TryAgainError(Exception):
    """The unit was undone for certain and another run may succeed; the cause says why."""


@final
class Work:
    """Drives one unit of work to its end, in one asyncio task."""

    __slots__ = ("_cancel_asked", "_deadline_s", "_expired", "_kind", "_phase", "_pool", "_unit", "task")

    def __init__(self, pool: ConnectionPool, kind: WorkKind, unit: Unit[Any], deadline_s: float) -> None:
        self._pool = pool
        self._kind = kind
        self._unit = unit
        self._deadline_s = deadline_s
        self._phase = WorkPhase.WAITING
        self._expired = False
        self._cancel_asked = False
        self.task: asyncio.Task[Any] | None = None

    def start(self) -> "asyncio.Task[Any]":
        """Start the task, which ends as `_perform` documents."""
        self.task = asyncio.get_running_loop().create_task(self._perform())
        return self.task

    def cancel(self) -> None:
        """Ask for an early end; obeyed only while the outcome stays certain."""
        self._cancel_asked = True
        if self._phase is WorkPhase.WAITING or (self._phase is WorkPhase.RUNNING and self._kind is not WorkKind.RUN):
            self._interrupt()

    def _expire(self) -> None:
        self._expired = True
        if self._phase is not WorkPhase.CLEANING:
            self._interrupt()

    def _interrupt(self) -> None:
        assert self.task is not None
        # At most one cancellation: a second one would hit the clean-up after the first.
        if not self.task.cancelling():
            self.task.cancel()

    async def _perform(self) -> Any:
        """Run the unit within its deadline.

        Raises:
            StoreUnavailableError: Nothing was applied.
            CommitInDoubtError: It was sent for commit and the answer is lost.
            StatementRefusedError: The database refused a statement as wrong; nothing was applied.
            asyncio.CancelledError: `cancel` was obeyed and nothing was applied.
        """
        timer = asyncio.get_running_loop().call_later(self._deadline_s, self._expire)
        try:
            return await self._attempts()
        except asyncio.CancelledError:
            if self._expired:
                raise StoreUnavailableError("the deadline passed; nothing was applied") from None
            raise
        finally:
            timer.cancel()

    async def _attempts(self) -> Any:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            connection = await self._take()
            self._phase = WorkPhase.RUNNING
            try:
                return await self._attempt(connection)
            except _TryAgainError as error:
                if attempt == ATTEMPTS_MAX:
                    cause = describe(error.__cause__ or error)
                    raise StoreUnavailableError(f"undone {attempt} times: {cause}") from error.__cause__
            if self._expired or self._cancel_asked:
                raise asyncio.CancelledError
            self._phase = WorkPhase.WAITING
        raise AssertionError("the loop returns or raises")

    async def _take(self) -> Connection:
        try:
            return await self._pool.acquire()
        except NOT_CONNECTED as error:
            raise StoreUnavailableError(f"no connection to the database: {describe(error)}") from error

    async def _attempt(self, connection: Connection) -> Any:
        backend_pid: int = connection.get_server_pid()
        try:
            if self._kind is not WorkKind.TRANSACT:
                result = await self._unit(connection)
            else:
                await connection.execute("BEGIN")
                result = await self._unit(connection)
                self._phase = WorkPhase.COMMITTING
                if await connection.execute("COMMIT") != "COMMIT":
                    raise InvariantError("the unit hid an error of a statement; the transaction is undone")
        except BaseException as error:
            in_doubt = self._phase is WorkPhase.COMMITTING or self._kind is WorkKind.RUN
            self._phase = WorkPhase.CLEANING
            meaning = meaning_of(error, is_connected=not connection.is_closed())
            if meaning is SqlstateMeaning.LOST or needs_new_connection(error):
                self._pool.discard(connection)
                if getattr(error, "sqlstate", None) == READ_ONLY:
                    self._pool.discard_idle()
            else:
                await self._clean(connection, was_cancelled=isinstance(error, asyncio.CancelledError))
            self._translate(error, meaning, in_doubt=in_doubt, backend_pid=backend_pid)
            raise
        self._pool.release(connection)
        return result

    async def _clean(self, connection: Connection, *, was_cancelled: bool) -> None:
        """Make the connection fit for the next unit, or discard it."""
        if not was_cancelled and not connection.is_in_transaction():
            self._pool.release(connection)
            return
        # Waits first until the server has stopped a statement that was interrupted.
        clean = asyncio.ensure_future(connection.execute("ROLLBACK" if connection.is_in_transaction() else ""))
        done, _ = await asyncio.wait([clean], timeout=ROLLBACK_TIMEOUT_S)
        if done and clean.exception() is None and not connection.is_in_transaction():
            self._pool.release(connection)
            return
        # No answer: the host may be lost. Its idle connections would each cost a caller its deadline.
        self._pool.discard(connection)
        self._pool.discard_idle()
        clean.cancel()
        await asyncio.gather(clean, return_exceptions=True)

    def _translate(self, error: BaseException, meaning: SqlstateMeaning, *, in_doubt: bool, backend_pid: int) -> None:
        """Raise what the error means for the caller; return if the error itself is to be raised."""
        if isinstance(error, asyncio.CancelledError) and self._expired and in_doubt:
            raise CommitInDoubtError("the deadline passed before the answer came", backend_pid) from None
        match meaning:
            case SqlstateMeaning.LOST if in_doubt:
                raise CommitInDoubtError(f"no answer to the commit: {describe(error)}", backend_pid) from error
            case SqlstateMeaning.LOST | SqlstateMeaning.UNDONE:
                raise _TryAgainError from error
            case SqlstateMeaning.UNAVAILABLE:
                raise StoreUnavailableError(f"the database refused for now: {describe(error)}") from error
            case SqlstateMeaning.BUG:
                raise StatementRefusedError.of(error) from error
            case SqlstateMeaning.OTHER:
                return
