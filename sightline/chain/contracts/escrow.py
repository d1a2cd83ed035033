"""Calls and events of SessionEscrow. Tests compare them with the artefact's ABI. See `messages` for what is signed."""

from collections.abc import Sequence
from enum import IntEnum, unique
from typing import Any, Final, Self, final

from eth_abi.abi import decode, encode

from sightline.chain.contracts.abi import selector, topic, topic_address
from sightline.chain.contracts.messages import CAPTURE_TYPE, HOLD_TYPE, CaptureItem, EscrowHold, Mandate, SessionTerms
from sightline.domain.value import Value

CAPTURES_MAX: Final = 50
"""The most items that captureMany takes."""
CLOSED: Final = (1).to_bytes(32)
"""stateOf of a session that was captured, claimed or reclaimed. Before `open` it is 0, between them the hold's hash."""
TERMS_TYPE: Final = "(bytes32,address,address,uint256,uint256,uint256,uint256)"
MANDATE_TYPE: Final = "(address,address,uint256,uint256,uint256,uint256,uint256,bytes32)"
CONSTRUCTOR_TYPES: Final = (*("address",) * 5, *("uint256",) * 4)
FUNCTIONS: Final = {
    "openWithAuthorization": (TERMS_TYPE, "address", "bytes", "bytes"),
    "openExact": (TERMS_TYPE, "address", "uint256", "uint256", "bytes32", "bytes", "bytes"),
    "openWithConsent": (TERMS_TYPE, "address", "bytes", "bytes"),
    "openWithMandate": (TERMS_TYPE, "address", MANDATE_TYPE, "bytes", "bytes", "bytes"),
    "extendWithAuthorization": (HOLD_TYPE, "uint256", "uint256", "bytes", "bytes"),
    "extendExact": (HOLD_TYPE, "uint256", "uint256", "uint256", "uint256", "bytes32", "bytes", "bytes"),
    "extendWithConsent": (HOLD_TYPE, "uint256", "uint256", "bytes", "bytes"),
    "extendWithMandate": (HOLD_TYPE, "uint256", "uint256", MANDATE_TYPE, "bytes", "bytes", "bytes"),
    "captureMany": (f"{CAPTURE_TYPE}[]", "bytes"),
    "claim": (HOLD_TYPE, "uint256", "bytes32", "bool", "bytes"),
    "reclaim": (HOLD_TYPE,),
    "withdraw": ("address",),
    "returnStray": ("address", "uint256", "bytes32", "bytes"),
    "revokeMandate": (MANDATE_TYPE,),
    "revokeMandateFor": (MANDATE_TYPE, "bytes"),
}
"""The calls that move or bind money, with the types of their parameters."""

OPENED_TOPIC: Final = topic("Opened(bytes32,address,address,uint256,uint256,uint256,uint256)")
EXTENDED_TOPIC: Final = topic("Extended(bytes32,uint256,uint256)")
EVIDENCE_TOPIC: Final = topic("Evidence(bytes32,bytes32,uint256)")
RECLAIMED_TOPIC: Final = topic("Reclaimed(bytes32,address,uint256)")
SKIPPED_TOPIC: Final = topic("Skipped(bytes32,uint256)")
CREDITED_TOPIC: Final = topic("Credited(address,bytes32,uint256)")
WITHDRAWN_TOPIC: Final = topic("Withdrawn(address,uint256)")
STRAY_RETURNED_TOPIC: Final = topic("StrayReturned(address,bytes32,uint256)")


@unique
class SkippedWhy(IntEnum):
    """Why captureMany skipped an item."""

    NO_SUCH_HOLD = 1
    """The session is unknown or closed, or the hold is not the one that is stored."""
    OVER_TIME = 2
    """More seconds than have passed since the hold was opened, and SLACK_S."""
    OVER_AMOUNT = 3
    """More seconds than the hold pays for."""


def escrow_call(function: str, *values: Any) -> bytes:
    """Encode a call of a function in FUNCTIONS. Structs are given as their classes of `messages`."""
    types = FUNCTIONS[function]
    return selector(f"{function}({','.join(types)})") + encode(types, [_plain(value) for value in values])


def _plain(value: Any) -> Any:
    if isinstance(value, SessionTerms | Mandate | EscrowHold | CaptureItem):
        return value.values()
    return [_plain(item) for item in value] if isinstance(value, list) else value


def escrow_constructor(
    *, token: str, owner: str, meter: str, standby_meter: str, fee_receiver: str, max_fee_bps: int,
    session_cap_micro: int, max_rate: int, admin_delay_s: int,
) -> bytes:  # fmt: skip
    """Encode the constructor arguments of SessionEscrow."""
    return encode(
        CONSTRUCTOR_TYPES,
        [token, owner, meter, standby_meter, fee_receiver, max_fee_bps, session_cap_micro, max_rate, admin_delay_s],
    )


def opened_hold(topics: Sequence[str], data: bytes) -> EscrowHold:
    """Decode a log that the escrow contract emitted with OPENED_TOPIC as its first topic. Addresses are lower-case."""
    max_amount, rate, fee_bps, opened_at_s = decode(["uint256"] * 4, data)
    return EscrowHold(
        session_id_hash=bytes.fromhex(topics[1][2:]), payer=topic_address(topics[2]), payee=topic_address(topics[3]),
        max_amount=max_amount, rate=rate, fee_bps=fee_bps, opened_at_s=opened_at_s,
    )  # fmt: skip


@final
class EvidenceEvent(Value, kw_only=True):
    """The decoded event Evidence: the hash of the session's last event, and what returned to the payer."""

    session_id_hash: bytes
    head_hash: bytes
    returned: int

    @classmethod
    def of(cls, topics: Sequence[str], data: bytes) -> Self:
        """Decode a log that the escrow contract emitted with EVIDENCE_TOPIC as its first topic."""
        head_hash, returned = decode(["bytes32", "uint256"], data)
        return cls(session_id_hash=bytes.fromhex(topics[1][2:]), head_hash=head_hash, returned=returned)
