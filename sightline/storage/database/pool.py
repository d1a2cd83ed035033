"""A small pool of asyncpg connections. Lives on the bridge's loop; nothing here may be touched from trio.

asyncpg's own pool sends a reset query on every release and wraps each connection in a proxy. Our units of
work leave no session state behind (no SET, no LISTEN, no temporary tables, no advisory session locks), so a
connection goes back as it is, with its prepared statements, and the round trip is saved. A connection that
is in doubt (open transaction, lost answer) never comes back: it is discarded.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import asyncpg

Connection: TypeAlias = asyncpg.Connection
"""What a unit of work is given. Untyped: asyncpg ships no types."""

CLOSE_TIMEOUT_S = 2.0
"""How long a polite goodbye to the server may take before the socket is dropped."""

STATEMENTS_KEPT = 512
"""Prepared statements kept per connection: more than the code has, so none is ever evicted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How to reach the database and how many connections to hold."""

    dsn: str
    """A postgresql:// address; secrets in it are never logged."""
    connections_min: int = 2
    """Opened at start and kept."""
    connections_max: int = 8
    """Never more than this; a unit of work that finds none waits within its deadline."""
    connect_timeout_ms: int = 5_000
    statement_timeout_ms: int = 30_000
    """The server's own limit, for statements whose client is gone without a word."""


async def connect(options: PoolOptions) -> Connection:
    """Open one connection with the session settings every unit of work may rely on (UTC, no JIT)."""
    return await asyncpg.connect(
        options.dsn,
        timeout=options.connect_timeout_ms / 1_000,
        statement_cache_size=STATEMENTS_KEPT,
        max_cached_statement_lifetime=0,
        server_settings={
            "application_name": "sightline",
            "timezone": "UTC",
            # What is acknowledged must be on the disk, whatever the server, the role or the database is set to.
            "synchronous_commit": "on",
            # Planning with JIT costs more than any of our statements.
            "jit": "off",
            "statement_timeout": str(options.statement_timeout_ms),
            # A server that stands still in the middle of a transaction must not hold up who takes its shards over.
            "idle_in_transaction_session_timeout": "10000",
            # A statement that waits for a lock notices that its client is gone.
            "client_connection_check_interval": "2000",
        },
    )


@final
class ConnectionPool:
    """Connections, newest first: the busy ones stay warm, the idle ones stay idle."""

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
        """Take a connection, opening one if the pool may still grow; waiters are served in order.

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
        """Give back a connection which is idle and outside any transaction."""
        if self._closed or connection.is_closed():
            self.discard(connection)
        elif not self._hand_over(connection):
            self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """Drop a connection whose state is in doubt; the server rolls back what it had open."""
        if not connection.is_closed():
            connection.terminate()
        self._give_up_place()

    async def close(self) -> None:
        """Close the idle connections; those still out are dropped when they come back."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_close(connection) for connection in idle))
        self._open -= len(idle)

    def statistics(self) -> dict[str, int]:
        """Open, idle and waiting counts."""
        return {"open": self._open, "idle": len(self._idle), "waiting": len(self._waiting)}

    async def _connect(self) -> Connection:
        """Open a connection in a place already counted; the place is given up if that fails."""
        try:
            return await connect(self._options)
        except BaseException:
            self._give_up_place()
            raise

    async def _wait_turn(self) -> Connection | None:
        """Wait for a connection, or for None: leave to open one in a place already counted."""
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                given = turn.result()
                if given is None:
                    self._give_up_place()
                else:
                    self.release(given)
            raise

    def _give_up_place(self) -> None:
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
