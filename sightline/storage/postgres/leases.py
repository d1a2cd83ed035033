"""Ownership of the shards in Postgres: the statements, and the keeper that renews the lease of this server."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, final

import structlog
import trio

from sightline.ports.leases import (
    TTL_MS,
    HeldBy,
    IncompatibleServersError,
    ServerIdentity,
    ServerState,
    WireRange,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.migrate import require_known_schema
from sightline.storage.database.pool import Connection, PoolOptions, connect
from sightline.storage.database.work import NOT_CONNECTED
from sightline.system.clock import boot_now_ms

VALID_MS: Final = 5_000
"""How long a server trusts a renewal, counted from before it was sent; shorter than TTL_MS, because clocks differ."""
RENEW_EVERY_S: Final = 1.5
RENEW_DEADLINE_S: Final = 1.0
TICK_EVERY_S: Final = 0.5
TICK_MAX_MS: Final = 2_000
"""The lease is not renewed while trio has not run for this long: a server that hangs must not keep it."""
LOOK_EVERY_S: Final = 0.05
"""How often a keeper checks whether trio runs again: until then, and until the lease is renewed, calls are refused."""

_TTL: Final = timedelta(milliseconds=TTL_MS)
_JOIN: Final = "SELECT holder, id, epoch FROM join_server($1, $2, $3, $4)"
# A server of a version without leases takes the shards and leaves the lease as it is.
_RENEW: Final = """
UPDATE server_lease SET expires_at = clock_timestamp() + $2
WHERE incarnation = $1 AND NOT EXISTS (SELECT FROM shard WHERE incarnation IS DISTINCT FROM $1)
RETURNING true
"""
_LEAVE: Final = "DELETE FROM server_lease WHERE incarnation = $1"

_ENTER: Final = "SELECT enter_server($1, $2, $3, $4)"
_ANNOUNCE: Final = """
UPDATE server_lease SET wire_first = $2, wire_last = $3, migrations = $4, url = $5 WHERE incarnation = $1
"""
_WIRES: Final = """
SELECT host, wire_first, wire_last FROM server_lease WHERE incarnation <> $1 AND expires_at > clock_timestamp()
"""
_RENEW_SHARDS: Final = "SELECT is_held, ids, epochs FROM renew_server($1, $2)"
_TAKE: Final = "SELECT id, epoch FROM take_free_shards($1, $2, $3)"
_RELEASE: Final = """
UPDATE shard SET owner = NULL, incarnation = NULL, handing_to = $3 WHERE incarnation = $1 AND id = ANY($2::integer[])
"""
_REPORT: Final = """
UPDATE server_lease SET clock_offset_ms = $2, is_connected = $3 WHERE incarnation = $1
"""
_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_END: Final = """
WITH freed AS (UPDATE shard SET owner = NULL, incarnation = NULL WHERE incarnation = $1)
DELETE FROM server_lease WHERE incarnation = $1
"""
_END_SERVER: Final = "SELECT end_server($1)"
_SERVERS: Final = """
SELECT incarnation, expires_at > clock_timestamp() AS is_valid, clock_offset_ms, is_connected, wire_first, wire_last,
  url,
  ARRAY(SELECT s.id FROM shard s WHERE s.incarnation = l.incarnation) AS shards,
  ARRAY(SELECT s.id FROM shard s WHERE s.handing_to = l.incarnation AND s.incarnation IS NULL) AS offered
FROM server_lease l ORDER BY incarnation
"""

log = structlog.get_logger("sightline")


@final
class PostgresLeases:
    """Implements `Leases`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def join(self, server: ServerIdentity) -> Mapping[int, int] | HeldBy:
        """Take every shard, unless another server's lease is valid."""
        return await self._database.transact(lambda connection: _join(connection, server))

    async def renew(self, incarnation: str) -> bool:
        """Extend the lease."""
        return bool(await self._database.run(lambda connection: _renew(connection, incarnation)))

    async def leave(self, incarnation: str) -> None:
        """Give the lease up."""
        await self._database.run(lambda connection: connection.execute(_LEAVE, incarnation))


async def end_server(database: Database, incarnation: str) -> None:
    """End a server whose process has ended: its connections, lease and ownership. Its successor is not affected.

    Raises:
        StoreUnavailableError, OutcomeUnknownError: Call it again; it is safe to repeat.
    """
    await database.run(lambda connection: connection.execute(_END_SERVER, incarnation))


@final
class PostgresShardLeases:
    """Implements `ShardLeases`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enter(self, server: ServerIdentity) -> None:
        """Get a lease without shards."""
        await self._database.transact(lambda connection: _enter(connection, server))

    async def renew(self, incarnation: str) -> Mapping[int, int] | None:
        """Extend the lease; returns the epoch of each shard that is owned."""
        row = await self._database.run(lambda connection: connection.fetchrow(_RENEW_SHARDS, incarnation, _TTL))
        return dict(zip(row["ids"], row["epochs"], strict=True)) if row["is_held"] else None

    async def take(self, incarnation: str, shards: Collection[int]) -> Mapping[int, int]:
        """Take those of the shards that are free; returns their epochs."""
        ids = sorted(shards)
        rows = await self._database.run(lambda connection: connection.fetch(_TAKE, incarnation, ids, _TTL))
        return {row["id"]: row["epoch"] for row in rows}

    async def release(self, incarnation: str, shards: Collection[int], *, to: str | None = None) -> None:
        """Give shards up, for one server or for any."""
        ids = sorted(shards)
        await self._database.run(lambda connection: connection.execute(_RELEASE, incarnation, ids, to))

    async def leave(self, incarnation: str) -> None:
        """Give all shards and the lease up."""
        await self._database.run(lambda connection: connection.execute(_END, incarnation))

    async def servers(self) -> Sequence[ServerState]:
        """Every server that has entered and was not ended."""
        rows = await self._database.read(lambda connection: connection.fetch(_SERVERS))
        return [
            ServerState(
                incarnation=row["incarnation"],
                is_valid=row["is_valid"],
                shards=frozenset(row["shards"]),
                offered=frozenset(row["offered"]),
                clock_offset_ms=row["clock_offset_ms"],
                is_connected=row["is_connected"],
                wire=WireRange(row["wire_first"], row["wire_last"]),
                url=row["url"],
            )
            for row in rows
        ]

    async def database_ms(self) -> int:
        """What the database's clock shows, in milliseconds since 1970."""
        shown: int = await self._database.read(lambda connection: connection.fetchval(_CLOCK))
        return shown

    async def report(self, incarnation: str, *, clock_offset_ms: int, is_connected: bool) -> None:
        """Say how far this server's clock is off, and whether it reaches the other servers."""
        arguments = (incarnation, clock_offset_ms, is_connected)
        await self._database.run(lambda connection: connection.execute(_REPORT, *arguments))


async def _join(connection: Connection, server: ServerIdentity) -> Mapping[int, int] | HeldBy:
    known = await require_known_schema(connection)
    rows = await connection.fetch(_JOIN, server.incarnation, server.host, server.place, _TTL)
    if rows[0]["holder"] is not None:
        return HeldBy(rows[0]["holder"])
    await connection.execute(_ANNOUNCE, server.incarnation, server.wire.first, server.wire.last, known, server.url)
    return {row["id"]: row["epoch"] for row in rows}


async def _enter(connection: Connection, server: ServerIdentity) -> None:
    known = await require_known_schema(connection)
    await connection.execute(_ENTER, server.incarnation, server.host, server.place, _TTL)  # one server at a time
    others = {
        row["host"]: wire
        for row in await connection.fetch(_WIRES, server.incarnation)
        if server.wire.highest_common(wire := WireRange(row["wire_first"], row["wire_last"])) is None
    }
    if others:
        raise IncompatibleServersError(server.wire, others)
    await connection.execute(_ANNOUNCE, server.incarnation, server.wire.first, server.wire.last, known, server.url)


async def _renew(connection: Connection, incarnation: str) -> bool:
    return bool(await connection.fetchval(_RENEW, incarnation, _TTL))


@final
class LeaseKeeper:
    """Renews the lease of this server on a connection of its own, on the database's thread.

    Neither a pool without a free connection nor a trio loop that is busy for a second delays a renewal.
    """

    def __init__(self, database: Database, incarnation: str, *, joined_at_ms: int, lost: trio.Event) -> None:
        """Create the keeper of a lease that this server holds.

        Args:
            joined_at_ms: `boot_now_ms` before the shards were taken.
            lost: Set when another server has taken the shards.
        """
        self._database = database
        self._incarnation = incarnation
        self._lost = lost
        # Written on the database's thread, read on trio's; assignments are atomic.
        self._valid_until_ms = joined_at_ms + VALID_MS
        self._ticked_at_ms = boot_now_ms()

    def is_valid(self) -> bool:
        """Whether no other server can have taken the shards: what this server has in memory is true."""
        return boot_now_ms() < self._valid_until_ms

    async def run(self) -> None:
        """Renew the lease until it is lost or this is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            await self._database.host(self._keep)
            self._lost.set()
            nursery.cancel_scope.cancel()

    async def _tick(self) -> None:
        while True:
            self._ticked_at_ms = boot_now_ms()
            await trio.sleep(TICK_EVERY_S)

    # On the database's thread.

    async def _keep(self, options: PoolOptions) -> None:
        """Renew until another server has taken the shards."""
        connection: Connection | None = None
        failures = 0
        try:
            while True:
                await self._trio_runs()
                sent_ms = boot_now_ms()
                try:
                    async with asyncio.timeout(RENEW_DEADLINE_S):
                        if connection is None:
                            connection = await connect(options)
                        if not await _renew(connection, self._incarnation):
                            return
                    self._valid_until_ms = sent_ms + VALID_MS
                    failures = 0
                except (TimeoutError, *NOT_CONNECTED) as error:
                    failures += 1
                    log.warning("lease_not_renewed", failures=failures, error=repr(error))
                    if connection is not None:
                        connection.terminate()
                        connection = None
                await asyncio.sleep(RENEW_EVERY_S)
        finally:
            if connection is not None:
                connection.terminate()

    async def _trio_runs(self) -> None:
        """Return when the trio loop has run within the last TICK_MAX_MS."""
        if boot_now_ms() - self._ticked_at_ms >= TICK_MAX_MS:
            log.warning("lease_not_renewed", error="the event loop is stuck or very slow, or the process was suspended")
            while boot_now_ms() - self._ticked_at_ms >= TICK_MAX_MS:  # noqa: ASYNC110 - the other loop sets no asyncio event
                await asyncio.sleep(LOOK_EVERY_S)
