"""Payments that a wallet signs, where the service holds the session's amount in escrow."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

from sightline_client.keccak import keccak256
from sightline_client.models import ChainConfig, ExtensionTerms, SessionTerms
from sightline_client.runtime import new_key
from sightline_client.signers import require_wallet, require_wallet_of

Payment: TypeAlias = Mapping[str, Any]
"""The `payment` of a new session or of an extension."""
_DOMAIN: Final = [
    {"name": "name", "type": "string"}, {"name": "version", "type": "string"},
    {"name": "chainId", "type": "uint256"}, {"name": "verifyingContract", "type": "address"},
]  # fmt: skip
_MANDATE: Final = [
    {"name": "payer", "type": "address"}, {"name": "delegate", "type": "address"},
    {"name": "maxPerSession", "type": "uint256"}, {"name": "maxPerDay", "type": "uint256"},
    {"name": "maxRatePerSecond", "type": "uint256"}, {"name": "maxFeeBps", "type": "uint256"},
    {"name": "validUntil", "type": "uint256"}, {"name": "salt", "type": "bytes32"},
]  # fmt: skip
_NOBODY: Final = "0x" + "00" * 20


class TypedDataSigner(Protocol):
    """A wallet that signs typed data, for example `sightline_client.wallet.LocalWallet`."""

    @property
    def address(self) -> str:
        """Address of the wallet."""

    def sign_typed_data(self, typed_data: dict[str, Any]) -> str:
        """Sign typed data (EIP-712). Returns hex with the prefix 0x."""


def sign_payment(terms: SessionTerms | ExtensionTerms, wallet: TypedDataSigner) -> Payment:
    """Sign the payment of one session by an EIP-3009 authorization, which needs neither allowance nor gas.

    Args:
        terms: From `sl.sessions.terms(...)` or `sl.sessions.extension_terms(...)`.

    Raises:
        InvalidArgumentError: The wallet is not the payer of the terms.
    """
    require_wallet_of(wallet, terms.payer)
    signature = wallet.sign_typed_data(terms.authorization)
    return {"kind": "authorization", "openBy": terms.open_by, "signature": signature}


def sign_mandate(
    config: ChainConfig,
    wallet: TypedDataSigner,
    *,
    max_per_session: int,
    max_per_day: int,
    max_rate_per_second: int,
    valid_until: int,
    max_fee_bps: int = 1_500,
) -> Payment:
    """Sign a payment for many sessions within limits, so that a program can pay without the wallet's key.

    The contract takes each session's amount from the wallet's allowance, which the wallet gives once. It checks the
    limits itself; the wallet revokes the mandate by `revokeMandate` of the contract, or by lowering the allowance.

    Args:
        config: From `sl.config()`.
        max_per_session: Largest hold of one session, in micro-USDC.
        max_per_day: Largest sum of the holds that are opened on one UTC day, in micro-USDC: what is held,
            not what is charged.
        max_rate_per_second: Highest rate in micro-USDC.
        valid_until: Unix seconds from which on no session is held any more.
        max_fee_bps: Highest platform fee in basis points; it is part of the charge.
    """
    require_wallet(wallet)
    message: dict[str, Any] = {
        "payer": wallet.address,
        "delegate": _NOBODY,
        "maxPerSession": str(max_per_session),
        "maxPerDay": str(max_per_day),
        "maxRatePerSecond": str(max_rate_per_second),
        "maxFeeBps": str(max_fee_bps),
        "validUntil": str(valid_until),
        "salt": "0x" + keccak256(new_key().encode()).hex(),
    }
    signature = wallet.sign_typed_data(
        {
            "types": {"EIP712Domain": _DOMAIN, "Mandate": _MANDATE},
            "primaryType": "Mandate",
            "domain": {
                "name": "SessionEscrow",
                "version": "1",
                "chainId": config.chain_id,
                "verifyingContract": config.settlement_address,
            },
            "message": message,
        }
    )
    mandate = {
        **message,
        "maxFeeBps": max_fee_bps,
        "validUntil": valid_until,
    }
    del mandate["delegate"]
    return {"kind": "mandate", "mandate": mandate, "signature": signature}
