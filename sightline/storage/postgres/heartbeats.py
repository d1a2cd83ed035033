"""Heartbeats in Postgres: an append-only table, a partition per UTC day of receipt, whole batches in one statement."""

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final, final

from sightline.domain.geofence import Fix
from sightline.domain.units import DAY_MS
from sightline.ports.store import Heartbeat, HeartbeatWrite, ShardLease
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.database.sqlstate import CHECK_VIOLATION, StatementRefusedError
from sightline.storage.postgres.idempotency import columns_of, record_all

_TYPES: Final = {
    "workspace_id": "uuid",
    "sequence": "bigint",
    "at_ms": "bigint",
    "taken_at_ms": "bigint",
    "lat": "float8",
    "lng": "float8",
    "accuracy_m": "float8",
    "is_proof": "boolean",
    "is_fresh": "boolean",
    "is_mock": "boolean",
    "session_id": "uuid",
    "heading_degrees": "float8",
    "speed_mps": "float8",
    "altitude_m": "float8",
    "battery_percent": "float8",
    "source": "text",
}
_NAMES: Final = ", ".join(_TYPES)
_COLUMNS: Final = ", ".join(f"${number}::text::{type_}[]" for number, type_ in enumerate(_TYPES.values(), 3))

# Writes nothing unless all shards are held. A batch that is repeated after an unknown outcome changes nothing.
_WRITE = f"""
WITH verdict AS MATERIALIZED (
  SELECT held, cardinality(held) = cardinality($1::text::integer[]) AS is_complete
  FROM held_leases($1::text::integer[], $2::text::bigint[]) AS held
), written AS (
  INSERT INTO heartbeat ({_NAMES})
  SELECT beat.* FROM verdict, unnest({_COLUMNS}) AS beat WHERE verdict.is_complete
  ON CONFLICT DO NOTHING
)
"""  # noqa: S608  constants only
_APPEND: Final = f"{_WRITE} SELECT held FROM verdict"  # noqa: S608
_APPEND_ANSWERED: Final = f"""
{_WRITE}, answered AS ({record_all("verdict.is_complete", "verdict", first=len(_TYPES) + 3)}) SELECT held FROM verdict
"""  # noqa: S608  constants only

LATEST: Final = f"SELECT {_NAMES} FROM heartbeat WHERE workspace_id = $1 ORDER BY sequence DESC LIMIT 1"  # noqa: S608
SINCE: Final = f"""
SELECT {_NAMES} FROM heartbeat WHERE workspace_id = $1 AND at_ms >= $2 AND sequence > $3 ORDER BY sequence
"""  # noqa: S608


def _row(heartbeat: Heartbeat) -> tuple[object, ...]:
    fix = heartbeat.fix
    return (
        heartbeat.workspace_id,
        heartbeat.sequence,
        fix.at_ms,
        fix.taken_at_ms,
        fix.lat,
        fix.lng,
        fix.accuracy_m,
        fix.is_proof,
        heartbeat.is_fresh,
        heartbeat.is_mock,
        heartbeat.session_id,
        heartbeat.heading_degrees,
        heartbeat.speed_mps,
        heartbeat.altitude_m,
        heartbeat.battery_percent,
        heartbeat.source,
    )


def _literal(column: Sequence[Any]) -> str:
    """A column as the text of a Postgres array.

    asyncpg checks for each element of an array whether it is an array itself, which for sixteen columns takes longer
    than the rest of a heartbeat. A column without values is sent empty; `unnest` fills it with NULL.
    """
    kinds = set(map(type, column))
    if kinds == {NoneType}:
        return "{}"
    if kinds == {str}:
        text = '","'.join(column)
        if "\\" not in text and text.count('"') == 2 * (len(column) - 1):  # no element needs an escape
            return '{"' + text + '"}'
    if kinds <= {int, float, bool}:
        return "{" + ",".join(map(repr, column)) + "}"
    return "{" + ",".join(map(_element, column)) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def heartbeat_of(row: Mapping[str, Any]) -> Heartbeat:
    """The heartbeat of a row."""
    return Heartbeat(
        workspace_id=str(row["workspace_id"]),
        sequence=row["sequence"],
        fix=Fix(
            lat=row["lat"],
            lng=row["lng"],
            accuracy_m=row["accuracy_m"],
            at_ms=row["at_ms"],
            taken_at_ms=row["taken_at_ms"],
            is_proof=row["is_proof"],
        ),
        is_fresh=row["is_fresh"],
        is_mock=row["is_mock"],
        session_id=str(row["session_id"]) if row["session_id"] is not None else None,
        heading_degrees=row["heading_degrees"],
        speed_mps=row["speed_mps"],
        altitude_m=row["altitude_m"],
        battery_percent=row["battery_percent"],
        source=row["source"],
    )


async def rows_since(connection: Connection, workspace_id: str, at_ms: int, sequence: int) -> list[Any]:
    """Rows of a workspace received at or after an instant, above a sequence, by sequence."""
    rows: list[Any] = await connection.fetch(SINCE, workspace_id, at_ms, sequence)
    return rows


@final
class HeartbeatTable:
    """Appends to the partitions, creates and drops them. Caches which days have a partition."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._days: set[int] = set()

    async def append(self, batch: Sequence[HeartbeatWrite]) -> frozenset[ShardLease]:
        """Record the writes whose lease is held; returns the leases that are lost.

        One statement records the whole batch if all leases are held, which is nearly always so. If it finds one lost,
        it writes nothing, and the writes of the other leases are sent again.
        """
        lost: set[ShardLease] = set()
        writes = batch
        while writes:
            leases = {write.lease for write in writes}
            held = await self._append(writes, leases)
            lost |= leases - held
            if held == leases:
                break
            writes = [write for write in writes if write.lease in held]
        return frozenset(lost)

    async def _append(self, writes: Sequence[HeartbeatWrite], leases: set[ShardLease]) -> set[ShardLease]:
        """Record the writes if all of their leases are held, in one statement; returns those that are held."""
        heartbeats = [heartbeat for write in writes for heartbeat in write.heartbeats]
        answers = [answer for write in writes for answer in write.answers]
        ordered = sorted(leases, key=lambda lease: lease.shard)
        lease_columns = [lease.shard for lease in ordered], [lease.epoch for lease in ordered]
        columns: list[object] = [
            _literal(column) for column in (*lease_columns, *zip(*map(_row, heartbeats), strict=True))
        ]
        statement = _APPEND
        if answers:
            statement, columns = _APPEND_ANSWERED, [*columns, *columns_of(answers)]
        days = {heartbeat.fix.at_ms // DAY_MS for heartbeat in heartbeats}
        if not days <= self._days:
            await self.make_days(days - self._days)
        try:
            held = await self._database.run(lambda connection: connection.fetchval(statement, *columns))
        except StatementRefusedError as error:
            if error.sqlstate != CHECK_VIOLATION:
                raise
            # Retention dropped the partition of these heartbeats. Create it again and store them.
            self._days -= days
            await self.make_days(days)
            held = await self._database.run(lambda connection: connection.fetchval(statement, *columns))
        return {ordered[number - 1] for number in held}

    async def latest(self, workspace_id: str) -> Heartbeat | None:
        """The newest heartbeat by sequence."""
        row = await self._database.read(lambda connection: connection.fetchrow(LATEST, workspace_id))
        return heartbeat_of(row) if row is not None else None

    async def make_days(self, days: set[int]) -> None:
        """Create the partitions of these days (counted from the epoch) where they do not exist."""
        for day in sorted(days):
            await self._make_day(day)
            self._days.add(day)

    async def _make_day(self, day: int) -> None:
        await self._database.run(
            lambda connection: connection.execute("SELECT make_heartbeat_day($1)", day), deadline_ms=30_000
        )

    async def drop_days_before(self, day: int) -> int:
        """Drop whole days; returns how many."""
        self._days = {kept for kept in self._days if kept >= day}
        dropped: int = await self._database.run(
            lambda connection: connection.fetchval("SELECT drop_heartbeat_days_before($1)", day), deadline_ms=30_000
        )
        return dropped
