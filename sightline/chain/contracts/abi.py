"""Encodes call data and names the event topics of both contracts. Tests compare them with the artefacts' ABI."""

from collections.abc import Sequence
from typing import Any, Final, Self, final

from eth_abi.abi import decode, encode

from sightline.domain.value import Value, hiding
from sightline.system.keccak import keccak256

CONSENT_TYPE: Final = "(uint256,uint256,uint256,bytes)"
SETTLE_SIGNATURE: Final = f"settle(bytes32,address,address,uint256,uint256,uint256,uint256,uint256,{CONSENT_TYPE})"
SETTLE_TYPES: Final = (
    "bytes32", "address", "address", "uint256", "uint256", "uint256", "uint256", "uint256", CONSENT_TYPE,
)  # fmt: skip
SETTLE_MANY_SIGNATURE: Final = "settleMany((bytes32,address,address,uint256,uint256)[])"
SETTLE_MANY_TYPES: Final = ("(bytes32,address,address,uint256,uint256)[]",)
CONSTRUCTOR_TYPES: Final = ("address", "address", "address", "address", "uint256", "uint256", "bool", "uint256")


def selector(signature: str) -> bytes:
    """Return the four-byte selector of a function signature."""
    return keccak256(signature.encode("ascii"))[:4]


def topic(signature: str) -> str:
    """Return topic 0 of an event: the hash of its signature."""
    return "0x" + keccak256(signature.encode("ascii")).hex()


TRANSFER_TOPIC: Final = topic("Transfer(address,address,uint256)")
APPROVAL_TOPIC: Final = topic("Approval(address,address,uint256)")
LIMITS_SET_TOPIC: Final = topic("LimitsSet(address,uint256,uint256,bool)")
SETTLED_TOPIC: Final = topic("Settled(bytes32,address,address,uint256,uint256,uint256,uint256,uint256)")


def call_data(signature: str, values: Sequence[Any] = ()) -> bytes:
    """Encode a call of a function whose parameters have static types, such as transfer(address,uint256)."""
    types = signature[signature.index("(") + 1 : -1]
    return selector(signature) + encode(types.split(",") if types else [], list(values))


@final
class Consent(Value, kw_only=True):
    """The payer's EIP-712 signature over the terms of one session; empty when the contract does not require consent."""

    max_total: int = 0
    max_fee_bps: int = 0
    deadline_s: int = 0
    signature: bytes = b""

    __repr__ = hiding("signature")


@final
class SettleCall(Value, kw_only=True):
    """The arguments of SessionSettlement.settle."""

    session_id_hash: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    rate: int
    seconds: int
    platform_fee_bps: int
    consent: Consent = Consent()

    def data(self) -> bytes:
        """Encode the call data of `settle`."""
        consent = self.consent
        return selector(SETTLE_SIGNATURE) + encode(
            SETTLE_TYPES,
            [
                bytes.fromhex(self.session_id_hash[2:]), self.payer, self.payee, self.to_amount, self.fee_amount,
                self.rate, self.seconds, self.platform_fee_bps,
                (consent.max_total, consent.max_fee_bps, consent.deadline_s, consent.signature),
            ],
        )  # fmt: skip


def settle_many_data(calls: Sequence[SettleCall]) -> bytes:
    """Encode the call data of SessionSettlement.settleMany, which settles sessions with a charge of 0.

    Raises:
        ValueError: One of the sessions has a charge.
    """
    if any(call.to_amount or call.fee_amount for call in calls):
        raise ValueError("settleMany is for sessions without a charge")
    rows = [
        (bytes.fromhex(call.session_id_hash[2:]), call.payer, call.payee, call.rate, call.platform_fee_bps)
        for call in calls
    ]
    return selector(SETTLE_MANY_SIGNATURE) + encode(SETTLE_MANY_TYPES, [rows])


@final
class SettledEvent(Value, kw_only=True):
    """The decoded event Settled; addresses are lower-case."""

    session_id_hash: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    rate: int
    seconds: int
    platform_fee_bps: int

    @classmethod
    def of(cls, topics: Sequence[str], data: bytes) -> Self:
        """Decode a log that the settlement contract emitted with SETTLED_TOPIC as its first topic."""
        words = [int.from_bytes(data[start : start + 32], "big") for start in range(0, 160, 32)]
        return cls(
            session_id_hash=topics[1].lower(), payer=topic_address(topics[2]), payee=topic_address(topics[3]),
            to_amount=words[0], fee_amount=words[1], rate=words[2], seconds=words[3], platform_fee_bps=words[4],
        )  # fmt: skip


def settlement_constructor(
    *, token: str, owner: str, relayer: str, fee_receiver: str, max_fee_bps: int, session_cap_micro: int,
    consent_required: bool, admin_delay_s: int,
) -> bytes:  # fmt: skip
    """Encode the constructor arguments of SessionSettlement."""
    return encode(
        CONSTRUCTOR_TYPES,
        [token, owner, relayer, fee_receiver, max_fee_bps, session_cap_micro, consent_required, admin_delay_s],
    )


def address_topic(address: str) -> str:
    """Encode an address as the topic of an indexed parameter."""
    return "0x" + "0" * 24 + address.removeprefix("0x").lower()


def topic_address(word: str) -> str:
    """Decode the topic of an indexed address parameter to a lower-case address."""
    return "0x" + word[-40:].lower()


def revert_reason(data: bytes) -> str | None:
    """Decode the reason of a revert with Error(string); None for other revert data."""
    if data[:4] != b"\x08\xc3\x79\xa0":
        return None
    try:
        return str(decode(["string"], data[4:])[0])
    except Exception:  # noqa: BLE001  # hostile bytes raise anything; they are no reason text
        return None
