"""A pool of asyncpg connections. Used on the asyncio thread only.

Units of work leave no session state behind (no SET, no LISTEN, no temporary tables, no session-level advisory locks),
so a connection is released without a reset query and keeps its prepared statements. A connection in an unknown state
(open transaction, lost answer) is closed. asyncpg's own pool costs twice the CPU (ADR 0080).
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, Final, TypeAlias, final

import asyncpg

from sightline.domain.value import Value, replace
from sightline.storage.database.history import DatabasePosition, HistoryGuard, read_position
from sightline.storage.database.hosts import connect_first
from sightline.storage.database.url import host_of, urls_of_hosts

Connection: TypeAlias = asyncpg.Connection
"""The connection that a unit of work gets. Untyped: asyncpg ships no types."""

CLOSE_TIMEOUT_S = 2.0
"""Timeout of an orderly close; after it the socket is closed."""

STATEMENTS_KEPT = 512
"""Prepared statements cached per connection: more than the code has, so none is evicted."""


@final
class PoolOptions(Value, kw_only=True):
    """How to reach the database and how many connections to hold."""

    dsn: str
    """A postgresql:// URL that `check_database_url` accepts; never logged, because it can hold a password."""
    application_name: str = "sightline"
    """Shown by pg_stat_activity. A server that takes over ends the connections of its predecessor by this name."""
    connections_min: int = 2
    """Opened at start and kept."""
    connections_max: int = 8
    """Maximum; a unit of work that finds no free connection waits, within its deadline."""
    connect_timeout_ms: int = 5_000
    statement_timeout_ms: int = 30_000
    """Limit on the server, for statements whose client disappeared."""
    guard: HistoryGuard | None = None
    """Refuses connections to a database that is older than what was seen; None: any database will do."""


async def connect(options: PoolOptions) -> Connection:
    """Open one connection with the session settings that units of work rely on.

    Of several hosts, it leads to the one that accepts writes.
    """
    return await connect_first(urls_of_hosts(options.dsn), partial(_connect_to, options))


NOT_CONNECTED: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What opening a connection may raise, and using one whose server ends; a missed timeout is an OSError."""


async def primaries_of(options: PoolOptions, *, timeout_ms: int) -> dict[str, DatabasePosition]:
    """Ask all hosts of the URL, and return those that can be reached and accept writes, whatever the guard says."""
    asked = replace(options, guard=None, connect_timeout_ms=timeout_ms)

    async def ask(url: str) -> DatabasePosition | None:
        try:
            connection = await _connect_to(asked, url)
        except NOT_CONNECTED:
            return None
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await read_position(connection)
        except NOT_CONNECTED:
            return None
        finally:
            connection.terminate()

    urls = urls_of_hosts(options.dsn)
    found = await asyncio.gather(*(ask(url) for url in urls))
    return {host_of(url): position for url, position in zip(urls, found, strict=True) if position is not None}


async def _connect_to(options: PoolOptions, url: str) -> Connection:
    connection = await _open(options, url)
    if options.guard is None:
        return connection
    try:
        async with asyncio.timeout(options.connect_timeout_ms / 1_000):
            await options.guard.admit(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _open(options: PoolOptions, url: str) -> Connection:
    return await asyncpg.connect(
        url,
        timeout=options.connect_timeout_ms / 1_000,
        statement_cache_size=STATEMENTS_KEPT,
        max_cached_statement_lifetime=0,
        server_settings={
            "application_name": options.application_name,
            "timezone": "UTC",
            # Overrides the setting of the server, the role and the database: acknowledged data must be on disk.
            "synchronous_commit": "on",
            # Planning with JIT costs more than any of our statements.
            "jit": "off",
            "statement_timeout": str(options.statement_timeout_ms),
            # A stopped server must not block, by an open transaction, the server that takes its shards over.
            "idle_in_transaction_session_timeout": "10000",
            # A statement that waits for a lock ends when its client has disconnected.
            "client_connection_check_interval": "2000",
        },
    )


@final
class ConnectionPool:
    """Connections, last released first used, so that caches of the busy ones stay warm."""

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._idle: list[Connection] = []
        self._open = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False

    async def warm_up(self) -> None:
        """Open the first connections.

        Raises:
            OSError, asyncpg.PostgresError: If the database cannot be reached or refuses us.
        """
        for _ in range(self._options.connections_min):
            self._open += 1
            self._idle.append(await self._connect())

    async def acquire(self) -> Connection:
        """Take an idle connection, open one if below the maximum, or wait; waiters are served in order.

        Cancellation: nothing is taken.
        """
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open -= 1
        if self._open < self._options.connections_max:
            self._open += 1
            return await self._connect()
        connection = await self._wait_turn()
        return connection if connection is not None else await self._connect()

    def release(self, connection: Connection) -> None:
        """Return a connection that is outside any transaction."""
        if self._closed or connection.is_closed():
            self.discard(connection)
        elif not self._hand_over(connection):
            self._idle.append(connection)

    def discard_idle(self) -> None:
        """Close all idle connections: the host that they lead to is lost, or accepts no writes any more."""
        idle, self._idle = self._idle, []
        for connection in idle:
            self.discard(connection)

    def discard(self, connection: Connection) -> None:
        """Close a connection in an unknown state; the server rolls its transaction back."""
        if not connection.is_closed():
            connection.terminate()
        self._free_slot()

    async def close(self) -> None:
        """Close the idle connections; those in use are closed when they are released."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_close(connection) for connection in idle))
        self._open -= len(idle)

    def statistics(self) -> dict[str, int]:
        """Open, idle and waiting counts."""
        return {"open": self._open, "idle": len(self._idle), "waiting": len(self._waiting)}

    async def _connect(self) -> Connection:
        """Open a connection in a slot that is counted already; free the slot if that fails."""
        try:
            return await connect(self._options)
        except BaseException:
            self._free_slot()
            raise

    async def _wait_turn(self) -> Connection | None:
        """Wait for a connection, or for None: a slot to open one in."""
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                given = turn.result()
                if given is None:
                    self._free_slot()
                else:
                    self.release(given)
            raise

    def _free_slot(self) -> None:
        if not self._hand_over(None):
            self._open -= 1

    def _hand_over(self, given: Connection | None) -> bool:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(given)
                return True
        return False


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()
