"""Quotes."""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from sightline.domain.operator.coverage_map import (
    BOX_DEGREES_MAX,
    CELLS_PER_DEGREE,
    CellBox,
    CoverageCells,
    cell_box,
)
from sightline.domain.pricing import Quote as DomainQuote
from sightline.domain.settlement import BASIS_POINTS
from sightline.http.schemas.base import (
    DECIMAL_TEXT,
    INTEGER_TEXT,
    Instant,
    Money,
    Output,
    Query,
    Uuid,
    decimal_parameter,
    iso,
    labelled,
)

_LAT: Final = decimal_parameter(-90, 90, 52.520008, "Decimal degrees")
_LNG: Final = decimal_parameter(-180, 180, 13.404954, "Decimal degrees")
_LONGITUDE: Final = r"-?(180(\.0{1,30})?|(1[0-7][0-9]|[0-9]{1,2})(\.[0-9]{1,30})?)"
_LATITUDE: Final = r"-?(90(\.0{1,30})?|[0-8]?[0-9](\.[0-9]{1,30})?)"
BOX_PATTERN: Final = rf"^{_LONGITUDE},{_LATITUDE},{_LONGITUDE},{_LATITUDE}$"
"""Four numbers within the globe. Their order and the span are rules that a pattern cannot express."""
_BOX: Final = re.compile(BOX_PATTERN)


class QuoteQuery(Query):
    """For where and how long."""

    AREA = "pricing"

    lat: Annotated[float, Field(ge=-90, le=90), DECIMAL_TEXT, _LAT]
    lng: Annotated[float, Field(ge=-180, le=180), DECIMAL_TEXT, _LNG]
    duration_seconds: Annotated[int, Field(ge=1, le=14_400), INTEGER_TEXT]


class Quote(Output):
    """A price that a session can be created with, once, within two minutes."""

    quote_id: Uuid
    rate_per_second_micro_usdc: Money
    estimated_total_micro_usdc: Money
    supply_factor: float
    demand_factor: float
    corridor_multiplier: float
    base_rate_per_second_micro_usdc: Money
    expires_at: Instant
    available_operators: int = Field(
        description="ONLINE operators that cover the point, sent a heartbeat within 60 s and have no no-show pause"
    )
    own_session_id: Uuid | None = Field(
        description="Where availableOperators is 0: your own running session whose operator covers the point"
    )
    lat: float
    lng: float
    duration_seconds: int


def quote_json(quote: DomainQuote) -> dict[str, object]:
    """Present a quote as `Quote`. The factors multiply with the base rate to the rate."""
    price = quote.price
    return {
        "quoteId": quote.id,
        "ratePerSecondMicroUsdc": str(price.rate),
        "estimatedTotalMicroUsdc": str(quote.estimated_total),
        "supplyFactor": price.supply_bps / BASIS_POINTS,
        "demandFactor": price.demand_bps / BASIS_POINTS,
        "corridorMultiplier": price.corridor_bps / BASIS_POINTS,
        "baseRatePerSecondMicroUsdc": str(price.base_rate),
        "expiresAt": iso(quote.expires_at_ms),
        "availableOperators": quote.available_operators,
        "ownSessionId": quote.own_session_id,
        "lat": quote.lat,
        "lng": quote.lng,
        "durationSeconds": quote.duration_s,
    }


def _box(value: object) -> object:
    if not isinstance(value, str) or not _BOX.fullmatch(value):
        raise labelled("coverage:bbox", "bbox is west,south,east,north in decimal degrees, within the globe")
    west, south, east, north = (float(part) for part in value.split(","))
    if west > east or south > north:
        raise labelled("coverage:bbox", "bbox must have west <= east and south <= north")
    if max(east - west, north - south) > BOX_DEGREES_MAX:
        raise labelled("coverage:bbox", f"bbox may span at most {BOX_DEGREES_MAX:g} degrees each way")
    return cell_box(south=south, west=west, north=north, east=east)


class CoverageQuery(Query):
    """Which part of the map."""

    AREA = "coverage"

    bbox: Annotated[
        CellBox,
        BeforeValidator(_box),
        WithJsonSchema(
            {
                "type": "string",
                "pattern": BOX_PATTERN,
                "description": "west,south,east,north in decimal degrees, at most 20 each way; widened to whole cells",
                "examples": ["13.0,52.3,13.8,52.7"],
            }
        ),
    ]


class CoverageCell(Output):
    """A cell with operators in it."""

    south: float
    west: float
    operators: int


class Coverage(Output):
    """Where operators are free, by the cell that contains the centre of their coverage."""

    items: list[CoverageCell]
    next_cursor: None
    cell_degrees: float = Field(description="Width and height of a cell")
    everywhere: int = Field(description="Operators online that set no coverage and count as covering every place")


def coverage_json(cells: CoverageCells) -> dict[str, object]:
    """Present cells as `Coverage`."""
    return {
        "items": [
            {"south": row / CELLS_PER_DEGREE, "west": column / CELLS_PER_DEGREE, "operators": count}
            for (row, column), count in cells.counts.items()
        ],
        "nextCursor": None,
        "cellDegrees": 1 / CELLS_PER_DEGREE,
        "everywhere": cells.everywhere,
    }
