"""Chain, wallet and settlements."""

from typing import Annotated

from pydantic import Field

from sightline_client.models.base import FrameSigning, Model, Money, RefusedFor, SettlementState, Time, WalletEventKind
from sightline_client.money import MicroUsdc
from sightline_client.verification import TrustedDeployment


class ChainConfig(Model):
    """The chain on which sessions are paid."""

    environment: str
    chain_id: int
    chain_name: str
    rpc_url: str
    explorer_url: str
    usdc_address: str
    settlement_address: str
    is_escrow: bool = False
    """Whether a session needs a signed payment, or the workspace a mandate."""
    clip_seconds: int = 0
    """Seconds of video that the server keeps for clips; 0: it has no clips."""
    frame_signing: FrameSigning = FrameSigning.REQUEST
    """When frames and clips have content credentials. REQUEST if an older server does not send this field."""

    @property
    def deployment(self) -> TrustedDeployment:
        """The chain and the contracts, as the service states them, for `Receipt.verify`."""
        return TrustedDeployment(self.chain_id, self.settlement_address, self.usdc_address)


class SettlementPayload(Model):
    """What the settlement contract is called with; for a `mismatched` settlement, what the contract settled."""

    session_id_hash: str
    from_: Annotated[str, Field(alias="from")]
    to: str
    to_amount: Money
    fee_amount: Money
    rate_per_second: Money
    chargeable_seconds: int
    consumer_workspace_id: str
    operator_workspace_id: str
    platform_fee_bps: int


class Settlement(Model):
    """The payment of a session."""

    session_id: str
    state: SettlementState
    payload: SettlementPayload | None = None
    tx_hash: str | None = None
    confirmed_at: Time | None = None
    mismatched: bool = False
    """Whether the contract settled the session with parties or numbers that differ from its record."""
    refused_for: RefusedFor | None = None
    """Why the newest try was refused. It is repeated."""
    written_off: bool = False
    """Whether the administrators of the service gave the payment up: nothing is owed any more."""


class WalletLimits(Model):
    """Limits that a wallet set on the settlement contract."""

    per_session_micro_usdc: Money
    per_day_micro_usdc: Money
    """For one UTC day."""
    left_today_micro_usdc: Money
    """Of the limit per day: what is neither charged today nor held."""


class KeyLimitsToday(Model):
    """Spending limits of the API key of the call; None: no such limit."""

    per_session_micro_usdc: Money | None = None
    per_day_micro_usdc: Money | None = None
    """For the sessions that the key creates on one UTC day."""
    left_today_micro_usdc: Money | None = None
    """Of the limit per day: what neither holds nor charges of the key's sessions of today take."""


class Wallet(Model):
    """Balance, allowance, limits and holds of a workspace's wallet."""

    workspace_id: str
    wallet_address: str
    tracked_balance: Money
    tracked_allowance: Money
    held_micro_usdc: Money
    escrowed_micro_usdc: Money = MicroUsdc(0)
    """In the escrow contract for open sessions; the balance is without it."""
    available_micro_usdc: Money
    """What balance and allowance leave beside what is held."""
    limits: WalletLimits | None = None
    """None: the wallet set none on the settlement contract."""
    key_limits: KeyLimitsToday | None = None
    """None: the API key has no spending limits, or the server is older."""
    last_sync_block: str
    updated_at: Time

    @property
    def spendable_micro_usdc(self) -> MicroUsdc:
        """The most that a new session may cost: what is available, within the limits of the wallet and the key."""
        return self.within_key_limits(self.covered_micro_usdc)

    def within_key_limits(self, amount: MicroUsdc) -> MicroUsdc:
        """Return the amount, or what the limits of the API key leave for a new session if that is less."""
        if self.key_limits is None:
            return amount
        most = (self.key_limits.per_session_micro_usdc, self.key_limits.left_today_micro_usdc)
        return min([amount, *(limit for limit in most if limit is not None)])

    @property
    def covered_micro_usdc(self) -> MicroUsdc:
        """What the wallet covers of a new session, whatever the limits of the API key: available, within its limits."""
        if self.limits is None:
            return self.available_micro_usdc
        limits = self.limits
        return min(self.available_micro_usdc, limits.per_session_micro_usdc, limits.left_today_micro_usdc)


class WalletEvent(Model):
    """A movement on the chain."""

    id: str
    workspace_id: str
    kind: WalletEventKind
    tx_hash: str
    log_index: int
    block_number: str
    block_hash: str
    from_address: str
    to_address: str
    amount_micro_usdc: Money
    session_id: str | None = None
    confirmations: int
    confirmed_at: Time | None = None
    removed: bool
    created_at: Time


class WalletEventPage(Model):
    """One page of movements."""

    items: list[WalletEvent]
    next_cursor: str | None = None
