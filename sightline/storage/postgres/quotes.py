"""Quotes in Postgres."""

from typing import Final

from sightline.domain.pricing import Price, Quote
from sightline.domain.units import MicroUsdc
from sightline.storage.database.bridge import Database
from sightline.storage.database.group_commit import GroupCommit

_NAMES: Final = (
    "id, workspace_id, lat, lng, duration_s, base_rate, supply_bps, demand_bps, corridor_bps, "
    "available_operators, created_at_ms, expires_at_ms"
)
# A repetition changes nothing but returns its row, as GroupCommit needs.
INSERT: Final = f"""
INSERT INTO quote ({_NAMES}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING id
"""  # noqa: S608  constants only
_LOAD = f"SELECT {_NAMES}, consumed_by FROM quote WHERE id = $1"  # noqa: S608


async def insert_quote(steps: GroupCommit, quote: Quote) -> None:
    """Record a quote; recording it again changes nothing."""
    price = quote.price
    values = (
        quote.id,
        quote.workspace_id,
        quote.lat,
        quote.lng,
        quote.duration_s,
        price.base_rate,
        price.supply_bps,
        price.demand_bps,
        price.corridor_bps,
        quote.available_operators,
        quote.created_at_ms,
        quote.expires_at_ms,
    )
    await steps.write(values)


async def load_quote(database: Database, quote_id: str) -> Quote | None:
    """Read a quote."""
    row = await database.read(lambda connection: connection.fetchrow(_LOAD, quote_id))
    if row is None:
        return None
    return Quote(
        id=str(row["id"]),
        workspace_id=str(row["workspace_id"]),
        lat=row["lat"],
        lng=row["lng"],
        duration_s=row["duration_s"],
        price=Price(
            base_rate=MicroUsdc(row["base_rate"]),
            supply_bps=row["supply_bps"],
            demand_bps=row["demand_bps"],
            corridor_bps=row["corridor_bps"],
        ),
        available_operators=row["available_operators"],
        created_at_ms=row["created_at_ms"],
        expires_at_ms=row["expires_at_ms"],
        consumed_by=str(row["consumed_by"]) if row["consumed_by"] is not None else None,
    )
