"""One unit of work on the asyncio side: take a connection, run, commit, clean up, and say honestly what became of it.

The phases decide what a cancellation or a missed deadline means:

    WAITING     no connection yet        nothing happened RUNNING     the unit runs            a transaction
    is rolled back; statements that commit themselves: not known COMMITTING  COMMIT is on the wire
    cancellation is not obeyed, the answer is near; deadline: not known CLEANING    rolling back
    nothing interrupts it; bounded by a time-out of its own
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, final

import asyncpg

from sightline.domain.errors import InvariantError, OutcomeUnknownError, StoreUnavailableError
from sightline.storage.database.pool import Connection, ConnectionPool

T = TypeVar("T")
Unit: TypeAlias = Callable[[Connection], Awaitable[T]]

ROLLBACK_TIMEOUT_S = 1.0
"""A rollback slower than this costs the connection, which rolls back as well."""

ATTEMPTS_MAX = 4
"""Runs of a unit before we give up on a database that keeps undoing it."""

NOT_REACHED = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
LOST = (OSError, asyncpg.PostgresConnectionError)
UNDONE = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server chose us as the victim of concurrency; the same unit may well succeed now."""


class Kind(enum.Enum):
    """What a unit of work may do, which decides what its failures mean."""

    READ = "read"
    """Writes nothing: it may be cancelled and repeated at will."""
    RUN = "run"
    """Statements that each commit themselves: once running, only the deadline stops it."""
    TRANSACT = "transact"
    """BEGIN and COMMIT around the unit."""


class Phase(enum.Enum):
    """How far a unit of work has come."""

    WAITING = "waiting"
    RUNNING = "running"
    COMMITTING = "committing"
    CLEANING = "cleaning"


class _TryAgainError(Exception):
    """The unit was surely undone and another run may succeed; the cause says why."""


@final
class Work:
    """Drives one unit of work to its end, in one asyncio task."""

    __slots__ = ("_cancel_asked", "_deadline_s", "_expired", "_kind", "_phase", "_pool", "_unit", "task")

    def __init__(self, pool: ConnectionPool, kind: Kind, unit: Unit[Any], deadline_s: float) -> None:
        self._pool = pool
        self._kind = kind
        self._unit = unit
        self._deadline_s = deadline_s
        self._phase = Phase.WAITING
        self._expired = False
        self._cancel_asked = False
        self.task: asyncio.Task[Any] | None = None

    def start(self) -> "asyncio.Task[Any]":
        """Begin. The task ends as `_perform` says."""
        self.task = asyncio.get_running_loop().create_task(self._perform())
        return self.task

    def cancel(self) -> None:
        """Ask for an early end; obeyed only while that leaves no doubt about the outcome."""
        self._cancel_asked = True
        if self._phase is Phase.WAITING or (self._phase is Phase.RUNNING and self._kind is not Kind.RUN):
            self._interrupt()

    def _expire(self) -> None:
        self._expired = True
        if self._phase is not Phase.CLEANING:
            self._interrupt()

    def _interrupt(self) -> None:
        assert self.task is not None
        # One cancellation at most: a second one would hit the clean-up after the first.
        if not self.task.cancelling():
            self.task.cancel()

    async def _perform(self) -> Any:
        """Run the unit within its deadline.

        Raises:
            StoreUnavailableError: Surely nothing was applied.
            OutcomeUnknownError: It was sent for commit and the answer is lost.
            asyncio.CancelledError: `cancel` was obeyed and nothing was applied.
            asyncpg.PostgresError: What the server said of a statement; a transaction is rolled back.
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
            self._phase = Phase.RUNNING
            try:
                return await self._attempt(connection)
            except _TryAgainError as error:
                if attempt == ATTEMPTS_MAX:
                    raise StoreUnavailableError(f"undone {attempt} times") from error.__cause__
            if self._expired or self._cancel_asked:
                raise asyncio.CancelledError
            self._phase = Phase.WAITING
        raise AssertionError("the loop returns or raises")

    async def _take(self) -> Connection:
        try:
            return await self._pool.acquire()
        except NOT_REACHED as error:
            raise StoreUnavailableError(f"no connection: {type(error).__name__}") from error

    async def _attempt(self, connection: Connection) -> Any:
        try:
            if self._kind is not Kind.TRANSACT:
                result = await self._unit(connection)
            else:
                await connection.execute("BEGIN")
                result = await self._unit(connection)
                self._phase = Phase.COMMITTING
                if await connection.execute("COMMIT") != "COMMIT":
                    raise InvariantError("the unit hid an error of a statement; the transaction is undone")
        except BaseException as error:
            doubtful = self._phase is Phase.COMMITTING or self._kind is Kind.RUN
            self._phase = Phase.CLEANING
            lost = isinstance(error, LOST) or connection.is_closed()
            await self._clean(connection, error)
            self._translate(error, lost=lost, doubtful=doubtful)
            raise
        self._pool.release(connection)
        return result

    async def _clean(self, connection: Connection, error: BaseException) -> None:
        """Make the connection fit for the next unit, or discard it."""
        if isinstance(error, LOST) or connection.is_closed():
            self._pool.discard(connection)
            return
        if not isinstance(error, asyncio.CancelledError) and not connection.is_in_transaction():
            self._pool.release(connection)
            return
        # This first waits until the server has given up a statement that was cut short.
        clean = asyncio.ensure_future(connection.execute("ROLLBACK" if connection.is_in_transaction() else ""))
        done, _ = await asyncio.wait([clean], timeout=ROLLBACK_TIMEOUT_S)
        if done and clean.exception() is None and not connection.is_in_transaction():
            self._pool.release(connection)
            return
        self._pool.discard(connection)
        clean.cancel()
        await asyncio.gather(clean, return_exceptions=True)

    def _translate(self, error: BaseException, *, lost: bool, doubtful: bool) -> None:
        """Raise what the error means for the caller; return if it stands for itself."""
        if isinstance(error, asyncio.CancelledError) and self._expired and doubtful:
            raise OutcomeUnknownError("the deadline passed before the answer came") from None
        if lost and doubtful:
            raise OutcomeUnknownError("the connection was lost before the answer came") from error
        if lost or isinstance(error, UNDONE):
            raise _TryAgainError from error
        if isinstance(error, asyncpg.QueryCanceledError):
            raise StoreUnavailableError("the server gave up the statement") from error
