"""Quotes."""

from typing import Annotated, Final

from pydantic import Field

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
)

_LAT: Final = decimal_parameter(-90, 90, 52.520008, "Decimal degrees")
_LNG: Final = decimal_parameter(-180, 180, 13.404954, "Decimal degrees")


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
    available_operators: int = Field(description="ONLINE operators that cover the point")
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
        "lat": quote.lat,
        "lng": quote.lng,
        "durationSeconds": quote.duration_s,
    }
