"""What is settled on the chain for one ended session. Immutable once composed."""

from dataclasses import dataclass
from typing import final

from sightline.domain.units import MicroUsdc, floor_div

BASIS_POINTS = 10_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementPayload:
    """The amounts and parties of one settlement; to_amount + fee_amount = rate x chargeable_seconds, exactly."""

    session_id: str
    from_address: str
    to_address: str
    to_amount: MicroUsdc
    fee_amount: MicroUsdc
    rate: MicroUsdc
    chargeable_seconds: int
    consumer_workspace_id: str
    operator_workspace_id: str
    platform_fee_bps: int


def fee_of(charged: MicroUsdc, platform_fee_bps: int) -> MicroUsdc:
    """The platform's part of a charge, rounded down; the payee gets the rest."""
    return MicroUsdc(floor_div(charged * platform_fee_bps, BASIS_POINTS))
