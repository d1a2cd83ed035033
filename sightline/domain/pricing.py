"""What a second costs: a base rate times factors in basis points, rounded half up, never free."""

from typing import Final, final

from sightline.domain.settlement import BASIS_POINTS
from sightline.domain.units import MicroUsdc, floor_div, round_half_up_div
from sightline.domain.value import Value

SUPPLY_STEP_BPS: Final = 625
SUPPLY_NEUTRAL: Final = 4
SUPPLY_RANGE_BPS: Final = (8_000, 12_500)
DEMAND_SLOPE_BPS: Final = 2_000
DEMAND_RANGE_BPS: Final = (10_000, 16_000)
DEMAND_STEP_BPS: Final = 500
CORRIDOR_RANGE_BPS: Final = (5_000, 30_000)


@final
class Price(Value, kw_only=True):
    """A rate per second and the factors that made it, in basis points."""

    base_rate: MicroUsdc
    supply_bps: int
    demand_bps: int
    corridor_bps: int

    @property
    def rate(self) -> MicroUsdc:
        """Micro-USDC per second, at least 1."""
        product = self.base_rate * self.supply_bps * self.demand_bps * self.corridor_bps
        return MicroUsdc(max(1, round_half_up_div(product, BASIS_POINTS**3)))


def _clamp(value: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(bounds[1], value))


def price(base_rate: MicroUsdc, *, supply: int, demand: int, corridor_bps: int = BASIS_POINTS) -> Price:
    """Price a point.

    Args:
        supply: ONLINE operators that cover the point and sent a heartbeat lately.
        demand: Other consumer workspaces that wait near it and can pay.
        corridor_bps: The zone's own multiplier, clamped to 5000..30000.
    """
    supply_bps = _clamp(BASIS_POINTS + SUPPLY_STEP_BPS * (SUPPLY_NEUTRAL - supply), SUPPLY_RANGE_BPS)
    pressure = floor_div(DEMAND_SLOPE_BPS * max(0, demand - supply), max(supply, 1))
    demand_bps = _clamp(BASIS_POINTS + pressure, DEMAND_RANGE_BPS)
    demand_bps -= demand_bps % DEMAND_STEP_BPS
    return Price(
        base_rate=base_rate,
        supply_bps=supply_bps,
        demand_bps=demand_bps,
        corridor_bps=_clamp(corridor_bps, CORRIDOR_RANGE_BPS),
    )


@final
class Quote(Value):
    """A stored price for a point and a duration, bound to one workspace, good once."""

    id: str
    workspace_id: str
    lat: float
    lng: float
    duration_s: int
    price: Price
    available_operators: int
    created_at_ms: int
    expires_at_ms: int
    consumed_by: str | None = None
    own_session_id: str | None = None
    """Where no operator is free: a session of the caller whose operator covers the point. Not stored."""

    @property
    def estimated_total(self) -> MicroUsdc:
        """The price of the whole duration."""
        return MicroUsdc(self.price.rate * self.duration_s)
