"""Escrow: what a payer signs, and the meter's signed statements."""

from typing import Any

from sightline_client.models.base import Model, Money
from sightline_client.money import MicroUsdc


class SessionTerms(Model):
    """What the payer signs, so that the contract may hold the session's amount."""

    session_id: str
    """Id of the session that is created with this quote and payment."""
    payer: str
    max_amount_micro_usdc: Money
    rate_per_second_micro_usdc: Money
    platform_fee_bps: int
    open_by: int
    """Unix seconds."""
    authorization: dict[str, Any]
    """Typed data (EIP-712) for a payment of kind authorization."""
    consent: dict[str, Any]
    """Typed data (EIP-712) for a payment of kind consent."""


class ExtensionTerms(Model):
    """What the payer signs, so that the contract may add to the hold of a LIVE session."""

    session_id: str
    payer: str
    seconds: int
    extra_amount_micro_usdc: Money
    open_by: int
    """Unix seconds."""
    authorization: dict[str, Any]
    """Typed data (EIP-712) for a payment of kind authorization."""
    consent: dict[str, Any]
    """Typed data (EIP-712) for a payment of kind consent."""


class StoredMandate(Model):
    """The mandate under which a workspace pays for sessions that are created without a payment."""

    payer: str
    max_per_session: Money
    max_per_day: Money
    max_rate_per_second: Money
    max_fee_bps: int
    valid_until: int
    """Unix seconds."""
    salt: str
    held_today: Money | None = None
    """What the contract has held under it on this UTC day. None while the chain does not answer."""

    @property
    def left_today(self) -> MicroUsdc:
        """What it leaves for the rest of this UTC day."""
        return MicroUsdc(max(0, self.max_per_day - (self.held_today or 0)))


class PermitOffer(Model):
    """What a wallet signs to give the escrow contract an allowance without gas (EIP-2612)."""

    owner: str
    spender: str
    value: Money
    nonce: str
    """The owner's nonce in the token."""
    deadline: int
    """Unix seconds."""
    typed_data: dict[str, Any]
    """Argument of eth_signTypedData_v4."""


class RelayedPermit(Model):
    """A permit that the token has taken."""

    owner: str
    spender: str
    value: Money
    """The allowance that it has set."""
    tx_hash: str


class EscrowHold(Model):
    """A hold as the contract knows it."""

    session_id_hash: str
    payer: str
    payee: str
    max_amount: Money
    rate_per_second: Money
    fee_bps: int
    opened_at: int
    """Unix seconds of the block."""


class Statement(Model):
    """The meter's signed reading of a session, with which anybody can claim its charge from the contract."""

    session_id: str
    chain_id: int
    escrow_address: str
    hold: EscrowHold
    clean_seconds: int
    head_hash: str
    is_final: bool
    signature: str
