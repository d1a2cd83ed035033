"""Lists of sessions: keyset pages, newest first by (created_at, id), each served from one index per view."""

import math
from collections.abc import Sequence
from typing import Final

from sightline.domain.session.codec import from_doc
from sightline.domain.session.model import Session
from sightline.ports.store import (
    DEMAND_DURATION_MIN_S,
    DEMAND_ONCE_MS,
    DEMAND_PAID_MS,
    SessionQuery,
    SessionView,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.json import load

FIRST_MS: Final = -(2**63)
LAST_MS: Final = 2**63 - 1
LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""Bounds that match everything: with bounds in every query, the plan is always a range of the index."""

DEGREE_M: Final = 111_000.0
"""A little less than a degree of latitude, so that a box made with it is never too small."""

# $1 workspace, $2 states or NULL, $3 created after, $4 created before, ($5, $6) place, $7 limit.
_RANGE = """
  AND ($2::text[] IS NULL OR state = ANY($2))
  AND created_at_ms > $3 AND created_at_ms < $4 AND (created_at_ms, id) < ($5, $6::uuid)
ORDER BY created_at_ms DESC, id DESC LIMIT $7
"""
_COLUMNS = "SELECT doc, version, created_at_ms, id FROM session"
_CONSUMER = f"{_COLUMNS} WHERE consumer_workspace_id = $1 {_RANGE}"
_OPERATOR = f"{_COLUMNS} WHERE operator_workspace_id = $1 {_RANGE}"
_PARTY = f"""
(SELECT doc, version, created_at_ms, id FROM session WHERE consumer_workspace_id = $1 {_RANGE})
UNION ALL
(SELECT doc, version, created_at_ms, id FROM session
  WHERE operator_workspace_id = $1 AND consumer_workspace_id <> $1 {_RANGE})
ORDER BY created_at_ms DESC, id DESC LIMIT $7
"""  # noqa: S608
# $1 now, $8 $9 $10 coverage or NULLs, $11 half the height in degrees of a box around it.
_OPEN = f"""
{_COLUMNS} WHERE state = 'REQUESTED' AND due_at_ms > $1
  AND ($8::float8 IS NULL
    OR (lat BETWEEN $8 - $11::float8 AND $8 + $11 AND distance_m($8, $9, lat, lng) <= $10::float8))
  {_RANGE}
"""
STATEMENTS: Final = {
    SessionView.CONSUMER: _CONSUMER,
    SessionView.OPERATOR: _OPERATOR,
    SessionView.PARTY: _PARTY,
    SessionView.OPEN: _OPEN,
}

# The wallet w covers the hold h of session s and all holds of its payer; now is {now}.
# An authorization needs no allowance.
_FUNDED = """NOT w.needs_reading AND (w.session_limit IS NULL OR w.session_limit >= h.amount)
  AND CASE WHEN s.doc #>> '{{terms,consent,kind}}' = 'authorization' THEN w.balance
    ELSE wallet_spendable(w, {now}) END >=
    greatest(h.amount, (SELECT sum(o.amount) FROM hold o WHERE o.payer = h.payer AND o.state <> 'RELEASED'))"""
# The deadline of a REQUESTED session is when it is due; that of its first request is in `wait_deadline_ms`.
DEMAND: Final = f"""
SELECT count(DISTINCT h.payer) FROM session s JOIN hold h ON h.session_id = s.id
  JOIN wallet_state w ON w.address = h.payer
WHERE s.state IN ('REQUESTED', 'ASSIGNED') AND lat BETWEEN $1::float8 - $3::float8 AND $1 + $3
  AND lng BETWEEN $8::float8 AND $9::float8 AND created_at_ms >= $5
  AND consumer_workspace_id <> $7 AND h.payer NOT IN (SELECT address FROM tracked_wallet WHERE workspace_id = $7)
  AND (s.state = 'ASSIGNED' OR due_at_ms > $6)
  AND distance_m($1, $2, lat, lng) <= $4::float8
  AND {_FUNDED.format(now="$6")}
  AND (s.doc #>> '{{terms,max_duration_s}}')::integer >= {DEMAND_DURATION_MIN_S}
  AND (NOT EXISTS (SELECT FROM hold f JOIN session e ON e.id = f.session_id
      WHERE f.payer = h.payer AND f.updated_at_ms >= s.created_at_ms - {DEMAND_ONCE_MS}
        AND e.created_at_ms BETWEEN s.created_at_ms - {DEMAND_ONCE_MS} AND s.created_at_ms - 1)
    OR EXISTS (SELECT FROM settlement p WHERE p.payer = h.payer AND p.state = 'CONFIRMED' AND p.amount > 0
      AND p.confirmed_at_ms >= $6::bigint - {DEMAND_PAID_MS}))
"""  # noqa: S608  constants only
DEMANDS_MAX: Final = 32
"""Counts of demand in one batch: each searches the open requests of the region."""
IS_FUNDED: Final = f"""
SELECT EXISTS (SELECT FROM hold h JOIN wallet_state w ON w.address = h.payer JOIN session s ON s.id = h.session_id
  WHERE h.session_id = $1 AND {_FUNDED.format(now="$2")})
"""  # noqa: S608  constants only


def arguments(query: SessionQuery) -> tuple[object, ...]:
    """The arguments of the statement for the view of a query."""
    place = (query.after.created_at_ms, query.after.id) if query.after is not None else (LAST_MS, LAST_ID)
    common = (
        sorted(state.value for state in query.states) or None,
        query.created_after_ms if query.created_after_ms is not None else FIRST_MS,
        query.created_before_ms if query.created_before_ms is not None else LAST_MS,
        *place,
        query.limit,
    )
    if query.view is not SessionView.OPEN:
        return (query.workspace_id, *common)
    if query.coverage is None:
        return (query.now_ms, *common, None, None, None, None)
    lat, lng, radius_m = query.coverage
    return (query.now_ms, *common, _plain(lat), _plain(lng), radius_m, radius_m / DEGREE_M)


def _plain(degrees: float) -> float:
    """Round to a tenth of a millimetre: Postgres raises an underflow error for the square of a smaller difference."""
    return round(degrees, 9)


async def list_sessions(database: Database, query: SessionQuery) -> Sequence[Session]:
    """Read one page."""
    statement, values = STATEMENTS[query.view or SessionView.PARTY], arguments(query)
    rows = await database.read(lambda connection: connection.fetch(statement, *values))
    return [from_doc(load(row["doc"]), row["version"]) for row in rows]


def demand_columns(
    *, lat: float, lng: float, within_m: float, since_ms: int, now_ms: int, not_of: str
) -> tuple[object, ...]:
    """The arguments of DEMAND."""
    west, east = _longitudes(lat, lng, within_m / DEGREE_M)
    return (_plain(lat), _plain(lng), within_m / DEGREE_M, within_m, since_ms, now_ms, not_of, west, east)


def _longitudes(lat: float, lng: float, reach: float) -> tuple[float, float]:
    """The longitudes of a circle with a radius in degrees: all if it has a pole in it or crosses 180 degrees."""
    if abs(lat) + reach < 90:
        half = math.degrees(math.asin(math.sin(math.radians(reach)) / math.cos(math.radians(lat))))
        if abs(lng) + half <= 180:
            return lng - half, lng + half
    return -180.0, 180.0


async def find_demands(connection: Connection, wanted: Sequence[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
    """Count the other funded consumer workspaces that wait near each of several points."""
    rows = await connection.fetchmany(DEMAND, wanted)
    return {columns: row[0] for columns, row in zip(wanted, rows, strict=True)}


async def is_funded(database: Database, session_id: str, now_ms: int) -> bool:
    """Whether the payer's wallet covers the session's hold and all its holds together."""
    found: bool = await database.read(lambda connection: connection.fetchval(IS_FUNDED, session_id, now_ms))
    return found
