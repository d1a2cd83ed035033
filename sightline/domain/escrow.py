"""What a payer signs before a session, so that the escrow contract may hold the session's highest charge (ADR 0197)."""

from enum import StrEnum
from typing import Final, final

from sightline.domain.units import MINUTE_MS, MicroUsdc
from sightline.domain.value import Value, hiding

START_RESERVE_MS: Final = 10 * MINUTE_MS
"""A hold must be possible for this long after the latest end of the wait: the session starts after it."""


class ConsentKind(StrEnum):
    """How a payer consents to a hold."""

    AUTHORIZATION = "authorization"
    """An EIP-3009 authorization to receive, whose nonce is the hash of the terms: no allowance and no gas."""
    CONSENT = "consent"
    """A signature of the terms; the contract takes the amount from the payer's allowance."""
    MANDATE = "mandate"
    """A signature for many sessions within limits; the contract takes the amount from the payer's allowance."""


@final
class SignedMandate(Value, kw_only=True):
    """A payer's consent to many sessions, within limits that the contract checks. Amounts are micro-USDC."""

    payer: str
    max_per_session: MicroUsdc
    max_per_day: MicroUsdc
    """Highest sum of the holds that are opened on one UTC day."""
    max_rate: MicroUsdc
    max_fee_bps: int
    valid_until_s: int
    """First second in which the mandate is not valid any more."""
    salt: str
    """32 bytes in hex."""
    signature: str
    """Hex, of the payer's wallet."""

    __repr__ = hiding("signature")


@final
class ExactTransfer(Value, kw_only=True):
    """The members of an EIP-3009 transfer to the contract that the payer's client chose, as in x402's scheme exact."""

    nonce: str
    """32 bytes in hex."""
    valid_after_s: int


@final
class PayerConsent(Value, kw_only=True):
    """A payer's consent to hold the highest charge of one session."""

    kind: ConsentKind
    open_by_s: int
    """First second in which the contract does not open the hold any more."""
    signature: str = ""
    """Hex, of the payer's wallet; empty for a mandate."""
    mandate: SignedMandate | None = None
    exact: ExactTransfer | None = None
    """An authorization to transfer instead of one to receive. It names amount and contract, but not the session."""

    __repr__ = hiding("signature")
