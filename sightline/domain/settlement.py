"""What is settled on the chain for ended sessions, and payments that are read from the chain."""

from typing import Final, final

from sightline.domain.units import MicroUsdc, floor_div
from sightline.domain.value import Value

BASIS_POINTS = 10_000
MAIN_NETWORKS: Final = frozenset({1, 10, 56, 100, 137, 8453, 42161, 43114, 59144})
"""Chain ids of networks with real money. What a wallet signs for such an id, on whatever chain, is valid there."""


@final
class SettlementPayload(Value, kw_only=True):
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


@final
class ChainPayment(Value, kw_only=True):
    """A Settled event of the contract. Addresses and hashes are lower-case; amounts are micro-USDC."""

    session_id_hash: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    rate: int
    seconds: int
    fee_bps: int
    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str

    @property
    def total(self) -> int:
        """The whole charge in micro-USDC."""
        return self.to_amount + self.fee_amount


@final
class UnknownPayments(Value, kw_only=True):
    """Number and sum of the payments that are final and unknown to the database."""

    count: int = 0
    amount_micro: int = 0


NO_PAYMENTS: Final = UnknownPayments()


@final
class PaymentSums(Value, kw_only=True):
    """Number and sum of the payments in the books: settlements that are on the chain, and adopted payments."""

    settled: UnknownPayments
    adopted: UnknownPayments
