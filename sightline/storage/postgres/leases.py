"""Ownership of the shards in Postgres: the statements, and the keeper that renews the lease of this server."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, final

import structlog
import trio

from sightline.ports.leases import (
    RENEW_DEADLINE_S,
    RENEW_EVERY_S,
    TTL_MS,
    VALID_MS,
    IncompatibleServersError,
    ServerIdentity,
    ServerState,
    ServiceHeldError,
    WireRange,
    lost_shards,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.migrate import require_known_schema
from sightline.storage.database.pool import NOT_CONNECTED, Connection, PoolOptions, connect
from sightline.system.clock import boot_now_ms

TICK_EVERY_S: Final = 0.5
TICK_MAX_MS: Final = 2_000
"""The lease is not renewed while trio has not run for this long: a server that hangs must not keep it."""
LOOK_EVERY_S: Final = 0.05
"""How often a keeper checks whether trio runs again: until then, and until the lease is renewed, calls are refused."""

_TTL: Final = timedelta(milliseconds=TTL_MS)
_ENTER: Final = "SELECT enter_server($1, $2, $3, $4)"
_ANNOUNCE: Final = """
UPDATE server_lease SET wire_first = $2, wire_last = $3, migrations = $4, url = $5, is_alone = $6 WHERE incarnation = $1
"""
# A lease that ends later than twice its duration from now was made before the clock was set back: it excludes nobody.
_OTHERS: Final = """
SELECT incarnation, host, wire_first, wire_last, is_alone, expires_at > clock_timestamp() AS is_valid,
  expires_at > clock_timestamp() + 2 * $2::interval AS is_ahead
FROM server_lease WHERE incarnation <> $1 ORDER BY incarnation
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
        return await self._database.run(lambda connection: _renew(connection, incarnation))

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


async def _enter(connection: Connection, server: ServerIdentity) -> None:
    known = await require_known_schema(connection)
    await connection.execute(_ENTER, server.incarnation, server.host, server.directory_id, _TTL)  # one server at a time
    wires: dict[str, WireRange] = {}
    for other in await connection.fetch(_OTHERS, server.incarnation, _TTL):
        wire = WireRange(other["wire_first"], other["wire_last"])
        if server.is_alone or other["is_alone"]:
            if other["is_valid"] and not other["is_ahead"]:
                raise ServiceHeldError(other["host"])
            await connection.execute(_END_SERVER, other["incarnation"])
        elif other["is_valid"] and server.wire.highest_common(wire) is None:
            wires[other["host"]] = wire
    if wires:
        raise IncompatibleServersError(server.wire, wires)
    wire = server.wire
    await connection.execute(_ANNOUNCE, server.incarnation, wire.first, wire.last, known, server.url, server.is_alone)


@final
class PostgresLeaseKeeper:
    """Implements `LeaseKeeper` on a connection of its own, on the database's thread.

    Neither a pool without a free connection nor a trio loop that is busy for a second delays a renewal.
    """

    def __init__(self, database: Database, incarnation: str) -> None:
        self._database = database
        self._incarnation = incarnation
        # Written on the database's thread, read on trio's; assignments are atomic.
        self._valid_until_ms = 0
        self._ticked_at_ms = 0
        self._failed_ms: int | None = None

    @property
    def failed_ms(self) -> int | None:
        """When a renewal last failed, by `boot_now_ms`."""
        return self._failed_ms

    def is_valid(self) -> bool:
        """Whether no other server can have taken the shards: what this server has in memory is true."""
        return boot_now_ms() < self._valid_until_ms

    def entered(self, sent_ms: int) -> None:
        """Trust the lease that the server has entered with."""
        self._valid_until_ms = sent_ms + VALID_MS

    async def run(self, epochs: Callable[[], Mapping[int, int]], on_lost: Callable[[Mapping[int, int]], None]) -> None:
        """Renew the lease; returns when another server has ended this one."""
        token = trio.lowlevel.current_trio_token()

        def lose(shards: Mapping[int, int], sent_ms: int) -> None:
            on_lost(shards)
            self._valid_until_ms = sent_ms + VALID_MS

        async def keep(options: PoolOptions) -> None:
            await self._keep(options, epochs, lambda shards, sent_ms: token.run_sync_soon(lose, shards, sent_ms))

        self._ticked_at_ms = boot_now_ms()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            await self._database.host(keep)
            nursery.cancel_scope.cancel()

    async def _tick(self) -> None:
        while True:
            self._ticked_at_ms = boot_now_ms()
            await trio.sleep(TICK_EVERY_S)

    # On the database's thread.

    async def _keep(
        self,
        options: PoolOptions,
        epochs: Callable[[], Mapping[int, int]],
        on_lost: Callable[[Mapping[int, int], int], None],
    ) -> None:
        connection: Connection | None = None
        try:
            while True:
                await self._trio_runs()
                sent_ms, before = boot_now_ms(), epochs()
                try:
                    async with asyncio.timeout(RENEW_DEADLINE_S):
                        if connection is None:
                            connection = await connect(options)
                        held = await _renew(connection, self._incarnation)
                except (TimeoutError, *NOT_CONNECTED) as error:
                    self._failed_ms = boot_now_ms()
                    log.warning("lease_not_renewed", error=repr(error))
                    if connection is not None:
                        connection.terminate()
                        connection = None
                else:
                    if held is None:
                        self._valid_until_ms = 0
                        return
                    if lost := lost_shards(before, held):
                        on_lost(lost, sent_ms)
                    else:
                        self._valid_until_ms = sent_ms + VALID_MS
                await asyncio.sleep(RENEW_EVERY_S)
        finally:
            if connection is not None:
                connection.terminate()

    async def _trio_runs(self) -> None:
        """Return when the trio loop has run within the last TICK_MAX_MS."""
        if boot_now_ms() - self._ticked_at_ms >= TICK_MAX_MS:
            self._failed_ms = boot_now_ms()
            log.warning("lease_not_renewed", error="the event loop is stuck or very slow, or the process was suspended")
            while boot_now_ms() - self._ticked_at_ms >= TICK_MAX_MS:  # noqa: ASYNC110 - the other loop sets no asyncio event
                await asyncio.sleep(LOOK_EVERY_S)


async def _renew(connection: Connection, incarnation: str) -> Mapping[int, int] | None:
    row = await connection.fetchrow(_RENEW_SHARDS, incarnation, _TTL)
    return dict(zip(row["ids"], row["epochs"], strict=True)) if row["is_held"] else None
