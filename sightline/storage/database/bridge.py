"""The bridge between trio and asyncpg: one thread, one uvloop loop, one pool.

asyncpg runs only on asyncio. trio-asyncio costs five times the CPU per query, cannot use uvloop, and lets one
unhandled exception of any asyncio task cancel the whole trio tree (ADR 0050). So the asyncio loop has a thread of its
own, and only whole units of work cross to it, never connections or cursors: a unit is an `async def` that takes a
connection and runs entirely on the asyncio side. When a caller is cancelled, its unit is cancelled and the caller
waits until the unit has ended, so that no statement runs on without a caller.

A crossing costs two thread wake-ups. Results that are ready at the same time are delivered by one wake-up.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast, final

import outcome
import structlog
import trio
import uvloop
from msgspec import Struct, field

from sightline.domain.errors import StoreUnavailableError
from sightline.domain.value import Value, replace
from sightline.ports.tracing import Tracer
from sightline.storage.database.pool import NOT_CONNECTED, ConnectionPool, PoolOptions
from sightline.storage.database.work import Unit, Work, WorkKind

T = TypeVar("T")
log = structlog.get_logger()


@final
class DatabaseOptions(Value, kw_only=True):
    """Limits of the bridge."""

    pool: PoolOptions
    deadline_ms: int = 5_000
    """For one unit of work, including the wait for a connection."""
    in_flight_max: int = 512
    """Maximum units of work on the asyncio side; further callers wait, within their deadline."""
    drain_ms: int = 5_000
    """How long closing waits for units of work in flight."""
    tracer: Tracer | None = None
    """Records each unit of work; None adds nothing to it."""


@final
class DatabaseStatistics(Value, kw_only=True):
    """A snapshot for metrics."""

    in_flight: int
    connections_open: int
    connections_idle: int
    waiting_for_connection: int


@final
class _Crossing(Struct, eq=False):
    """A trio task that waits, and the unit of work it waits for."""

    work: Work
    task: trio.lowlevel.Task
    raise_cancel: Callable[[], None] | None = field(default=None)


@final
class Database:
    """Units of work on Postgres, called from trio. Open it with `open_database`."""

    def __init__(self, options: DatabaseOptions) -> None:
        self.options = options
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="sightline-db", daemon=True)
        self._pool = ConnectionPool(options.pool)
        self._token = trio.lowlevel.current_trio_token()
        self._places = trio.Semaphore(options.in_flight_max, max_value=options.in_flight_max)
        self._crossings: set[_Crossing] = set()
        self._drained = trio.Event()
        self._closing = False
        # Filled by the loop's thread, emptied by trio's: deque operations are atomic.
        self._finished: deque[tuple[_Crossing, outcome.Outcome[Any]]] = deque()
        self._delivery_due = False

    async def read(self, unit: Unit[T], *, deadline_ms: int | None = None) -> T:
        """Run a unit that writes nothing. After a lost connection it runs again on another one.

        Raises:
            StoreUnavailableError: No answer in time, or no database.

        Cancellation: obeyed at once; the query is cancelled on the server.
        """
        return cast("T", await self._cross(WorkKind.READ, unit, deadline_ms))

    async def run(self, unit: Unit[T], *, deadline_ms: int | None = None) -> T:
        """Run a unit of one statement, which commits itself in one round trip.

        Raises:
            StoreUnavailableError: No connection within the deadline; nothing was applied.
            OutcomeUnknownError: The statement was sent, and the connection was lost or the deadline passed.
            StatementRefusedError: The statement or an argument is wrong; nothing was applied.

        Cancellation: obeyed while waiting for a connection. Once the statement is sent, its result is awaited and
        returned.
        """
        return cast("T", await self._cross(WorkKind.RUN, unit, deadline_ms))

    async def transact(self, unit: Unit[T], *, deadline_ms: int | None = None) -> T:
        """Run a unit between BEGIN and COMMIT. An exception of the unit rolls the transaction back.

        It may run more than once: after a serialization failure, a deadlock, or a connection lost before COMMIT.

        Raises:
            StoreUnavailableError: Nothing was applied.
            OutcomeUnknownError: COMMIT was sent, and the connection was lost or the deadline passed before its answer.
            StatementRefusedError: A statement or an argument is wrong; rolled back.

        Cancellation: before COMMIT it is rolled back; once COMMIT is sent, its answer is awaited and returned.
        """
        return cast("T", await self._cross(WorkKind.TRANSACT, unit, deadline_ms))

    async def host(self, service: Callable[[PoolOptions], Coroutine[Any, Any, None]]) -> None:
        """Run a service on the asyncio side until it ends; it may open connections of its own with these options.

        An exception of the service is raised here.

        Cancellation: the service is cancelled, and this returns when it has ended.
        """
        ended = trio.Event()
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            task = self._loop.create_task(service(self.options.pool))
            task.add_done_callback(lambda _: self._token.run_sync_soon(ended.set))
            tasks.append(task)

        self._loop.call_soon_threadsafe(begin)
        try:
            await ended.wait()
        except trio.Cancelled:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            with trio.CancelScope(shield=True):
                await ended.wait()
            raise
        tasks[0].result()

    async def ping(self, *, deadline_ms: int = 1_000) -> None:
        """Check that the database answers.

        Raises:
            StoreUnavailableError: No answer within the deadline.
        """
        await self.read(lambda connection: connection.fetchval("SELECT 1"), deadline_ms=deadline_ms)

    def statistics(self) -> DatabaseStatistics:
        """Current counts. Each is exact; they are not taken at one instant."""
        pool = self._pool.statistics()
        return DatabaseStatistics(
            in_flight=len(self._crossings),
            connections_open=pool["open"],
            connections_idle=pool["idle"],
            waiting_for_connection=pool["waiting"],
        )

    async def _cross(self, kind: WorkKind, unit: Unit[Any], deadline_ms: int | None) -> Any:
        if self._closing:
            raise StoreUnavailableError("the database is being closed")
        deadline_s = (deadline_ms or self.options.deadline_ms) / 1_000
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            deadline_s -= await self._wait_place(deadline_s)
        work, tracer = Work(self._pool, kind, unit, deadline_s), self.options.tracer
        try:
            if tracer is None:
                return await self._send(work)
            with tracer.span(f"database {kind.value}"):
                return await self._send(work)
        finally:
            self._places.release()

    async def _wait_place(self, deadline_s: float) -> float:
        """Wait until fewer units than the limit are in flight; return the seconds it took."""
        began = trio.current_time()
        with trio.move_on_after(deadline_s):
            await self._places.acquire()
            return trio.current_time() - began
        raise StoreUnavailableError("too many units of work in flight")

    async def _send(self, work: Work) -> Any:
        crossing = _Crossing(work, trio.lowlevel.current_task())
        self._crossings.add(crossing)
        self._loop.call_soon_threadsafe(self._begin, crossing)

        def abort(raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            crossing.raise_cancel = raise_cancel
            self._loop.call_soon_threadsafe(work.cancel)
            return trio.lowlevel.Abort.FAILED

        try:
            return await trio.lowlevel.wait_task_rescheduled(abort)
        except asyncio.CancelledError:
            # Cancelled by the caller, or by close() after its drain time.
            if crossing.raise_cancel is not None:
                crossing.raise_cancel()
            raise StoreUnavailableError("the database was closed; nothing was applied") from None

    # --- on the loop's thread ---

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_log_stray)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _begin(self, crossing: _Crossing) -> None:
        crossing.work.start().add_done_callback(lambda task: self._finish(crossing, task))

    def _finish(self, crossing: _Crossing, task: "asyncio.Task[Any]") -> None:
        result: outcome.Outcome[Any]
        if task.cancelled():
            result = outcome.Error(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            result = outcome.Error(error)
        else:
            result = outcome.Value(task.result())
        self._finished.append((crossing, result))
        if not self._delivery_due:
            self._delivery_due = True
            try:
                self._token.run_sync_soon(self._deliver)
            except trio.RunFinishedError:
                return

    # --- on trio's thread ---

    def _deliver(self) -> None:
        # Reset first: a result that is appended from here on schedules another delivery.
        self._delivery_due = False
        while self._finished:
            crossing, result = self._finished.popleft()
            self._crossings.discard(crossing)
            trio.lowlevel.reschedule(crossing.task, result)
        if self._closing and not self._crossings:
            self._drained.set()

    async def _open(self) -> None:
        self._thread.start()
        try:
            await trio.to_thread.run_sync(
                lambda: asyncio.run_coroutine_threadsafe(self._pool.warm_up(), self._loop).result(),
            )
        except NOT_CONNECTED as error:
            raise StoreUnavailableError(f"database not reached: {error}") from error

    async def _close(self) -> None:
        """Refuse new work, drain, cancel what exceeds drain_ms, disconnect, end the thread."""
        self._closing = True
        with trio.move_on_after(self.options.drain_ms / 1_000):
            await self._wait_drained()
        if self._crossings:
            log.warning("database_closed_over_work", in_flight=len(self._crossings))
            for crossing in tuple(self._crossings):
                self._loop.call_soon_threadsafe(crossing.work.cancel)
            await self._wait_drained()
        await trio.to_thread.run_sync(self._stop_loop)

    async def _wait_drained(self) -> None:
        # Every unit of work has a deadline, so this ends.
        if self._crossings:
            await self._drained.wait()

    def _stop_loop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._pool.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _log_stray(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception that no caller waits for; the loop goes on."""
    log.error("database_loop_stray_exception", reason=context.get("message"), error=repr(context.get("exception")))


@asynccontextmanager
async def open_database(options: DatabaseOptions) -> AsyncIterator[Database]:
    """Connect to the database; drain and disconnect at the end of the context.

    Raises:
        StoreUnavailableError: If the first connections cannot be opened.
    """
    database = Database(options)
    try:
        await database._open()  # noqa: SLF001  one module, two halves
        yield database
    finally:
        with trio.CancelScope(shield=True):
            await database._close()  # noqa: SLF001


@asynccontextmanager
async def open_reserved(database: Database, *, connections: int) -> AsyncIterator[Database]:
    """Connect to the same database again, for work that must not wait for a free connection of the pool.

    Raises:
        StoreUnavailableError: If the first connection cannot be opened.
    """
    options = database.options
    pool = replace(options.pool, connections_min=1, connections_max=connections)
    async with open_database(replace(options, pool=pool)) as reserved:
        yield reserved
