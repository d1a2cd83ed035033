"""EIP-712 messages of SessionEscrow and of USDC: their hashes, and the typed data that a wallet signs.

Every message is a value whose fields are those of the Solidity struct, in their order. Hashes are 32 bytes,
addresses have 0x and 40 hex digits, amounts are micro-USDC, times are Unix seconds. Tests compare the hashes with
eth_account and with the contract.
"""

from typing import Any, ClassVar, Final, TypeAlias, final

from eth_abi.abi import encode

from sightline.domain.value import Value
from sightline.system.keccak import keccak256

Field: TypeAlias = str | int | bool | bytes
Members: TypeAlias = tuple[tuple[str, str], ...]

DOMAIN_FIELDS: Final[Members] = (
    ("name", "string"), ("version", "string"), ("chainId", "uint256"), ("verifyingContract", "address"),
)  # fmt: skip
MAX_SECONDS: Final = 14_400
"""The longest session that the contract opens, extensions included."""
SLACK_S: Final = 30
"""A charge may have this many seconds more than have passed on the chain since the hold was opened."""
INTERIM_DELAY_S: Final = 3_600
"""From this long after its latest end, a session can be claimed by a statement that is not final."""
RECLAIM_DELAY_S: Final = 172_800
"""From this long after its latest end, a hold can be returned to its payer."""
NOBODY: Final = "0x" + "00" * 20


def _type_hash(name: str, members: Members) -> bytes:
    listed = ",".join(f"{kind} {member}" for member, kind in members)
    return keccak256(f"{name}({listed})".encode("ascii"))


class TypedMessage(Value, kw_only=True):
    """A message of EIP-712. Subclasses name its members with their types, in the order of the value's fields."""

    NAME: ClassVar[str]
    MEMBERS: ClassVar[Members]

    def values(self) -> tuple[Field, ...]:
        """Return the members' values in their order."""
        return tuple(getattr(self, name) for name in self.__struct_fields__)

    def struct_hash(self) -> bytes:
        """Return hashStruct of EIP-712. All members have static types of one word."""
        words = encode([kind for _, kind in self.MEMBERS], self.values())
        return keccak256(_type_hash(self.NAME, self.MEMBERS) + words)


@final
class SigningDomain(Value, kw_only=True):
    """The EIP-712 domain of a contract: a signature is valid for this contract on this chain only."""

    name: str
    version: str
    chain_id: int
    contract: str

    def separator(self) -> bytes:
        """Return the domain separator."""
        texts = (keccak256(self.name.encode()), keccak256(self.version.encode()))
        words = encode(["bytes32", "bytes32", "uint256", "address"], [*texts, self.chain_id, self.contract])
        return keccak256(_type_hash("EIP712Domain", DOMAIN_FIELDS) + words)

    def digest(self, message: TypedMessage) -> bytes:
        """Return the 32 bytes that a key signs."""
        return keccak256(b"\x19\x01" + self.separator() + message.struct_hash())

    def typed_data(self, message: TypedMessage) -> dict[str, Any]:
        """Return the argument of eth_signTypedData_v4, with integers as decimal text."""
        return {
            "types": {
                "EIP712Domain": _listed(DOMAIN_FIELDS),
                message.NAME: _listed(message.MEMBERS),
            },
            "primaryType": message.NAME,
            "domain": {
                "name": self.name,
                "version": self.version,
                "chainId": self.chain_id,
                "verifyingContract": self.contract,
            },
            "message": {
                member: _shown(value) for (member, _), value in zip(message.MEMBERS, message.values(), strict=True)
            },
        }


def escrow_domain(chain_id: int, contract: str) -> SigningDomain:
    """Return the domain of a SessionEscrow."""
    return SigningDomain(name="SessionEscrow", version="1", chain_id=chain_id, contract=contract)


def _listed(members: Members) -> list[dict[str, str]]:
    return [{"name": member, "type": kind} for member, kind in members]


def _shown(value: Field) -> str | bool:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return value if isinstance(value, bool | str) else str(value)


@final
class SessionTerms(TypedMessage, kw_only=True):
    """What the payer agrees to for one session. With NOBODY as payee, the meter names the payee."""

    NAME = "SessionTerms"
    MEMBERS: ClassVar[Members] = (
        ("sessionIdHash", "bytes32"), ("payer", "address"), ("payee", "address"), ("maxAmount", "uint256"),
        ("ratePerSecond", "uint256"), ("feeBps", "uint256"), ("openBy", "uint256"),
    )  # fmt: skip

    session_id_hash: bytes
    payer: str
    payee: str
    max_amount: int
    rate: int
    fee_bps: int
    open_by_s: int


@final
class Opening(TypedMessage, kw_only=True):
    """The meter's consent to open a hold, with the payee."""

    NAME = "Opening"
    MEMBERS: ClassVar[Members] = (("termsHash", "bytes32"), ("payee", "address"))

    terms_hash: bytes
    payee: str


@final
class MeterStatement(TypedMessage, kw_only=True):
    """The meter's reading of a session. A final one can be claimed at any time."""

    NAME = "MeterStatement"
    MEMBERS: ClassVar[Members] = (
        ("holdHash", "bytes32"),
        ("cleanSeconds", "uint256"),
        ("headHash", "bytes32"),
        ("isFinal", "bool"),
    )

    hold_hash: bytes
    clean_seconds: int
    head_hash: bytes
    is_final: bool


@final
class CaptureBatch(TypedMessage, kw_only=True):
    """The meter's consent to a captureMany that somebody else sends."""

    NAME = "CaptureBatch"
    MEMBERS: ClassVar[Members] = (("capturesHash", "bytes32"),)

    captures_hash: bytes


@final
class Extension(TypedMessage, kw_only=True):
    """An addition to a hold. The meter signs it, and the payer or the delegate of its mandate does."""

    NAME = "Extension"
    MEMBERS: ClassVar[Members] = (("holdHash", "bytes32"), ("extraAmount", "uint256"), ("extendBy", "uint256"))

    hold_hash: bytes
    extra_amount: int
    extend_by_s: int


@final
class Mandate(TypedMessage, kw_only=True):
    """The payer's consent to many sessions. With NOBODY as delegate, the meter's Opening is enough for each."""

    NAME = "Mandate"
    MEMBERS: ClassVar[Members] = (
        ("payer", "address"), ("delegate", "address"), ("maxPerSession", "uint256"), ("maxPerDay", "uint256"),
        ("maxRatePerSecond", "uint256"), ("maxFeeBps", "uint256"), ("validUntil", "uint256"), ("salt", "bytes32"),
    )  # fmt: skip

    payer: str
    delegate: str
    max_per_session: int
    max_per_day: int
    max_rate: int
    max_fee_bps: int
    valid_until_s: int
    salt: bytes


@final
class MandateRevocation(TypedMessage, kw_only=True):
    """The payer's revocation of a mandate, for somebody else to send."""

    NAME = "MandateRevocation"
    MEMBERS: ClassVar[Members] = (("mandateHash", "bytes32"),)

    mandate_hash: bytes


@final
class StrayReturn(TypedMessage, kw_only=True):
    """The meter's consent to return money that came without a hold."""

    NAME = "StrayReturn"
    MEMBERS: ClassVar[Members] = (("receiver", "address"), ("amount", "uint256"), ("reference", "bytes32"))

    receiver: str
    amount: int
    reference: bytes


_AUTHORIZATION: Final[Members] = (
    ("from", "address"), ("to", "address"), ("value", "uint256"), ("validAfter", "uint256"),
    ("validBefore", "uint256"), ("nonce", "bytes32"),
)  # fmt: skip


@final
class TransferWithAuthorization(TypedMessage, kw_only=True):
    """EIP-3009: a transfer that anybody may send to the token. Clients of x402's scheme exact sign it."""

    NAME = "TransferWithAuthorization"
    MEMBERS: ClassVar[Members] = _AUTHORIZATION

    sender: str
    receiver: str
    value: int
    valid_after_s: int
    valid_before_s: int
    nonce: bytes


@final
class ReceiveWithAuthorization(TypedMessage, kw_only=True):
    """EIP-3009: a transfer that only its receiver can make."""

    NAME = "ReceiveWithAuthorization"
    MEMBERS: ClassVar[Members] = _AUTHORIZATION

    sender: str
    receiver: str
    value: int
    valid_after_s: int
    valid_before_s: int
    nonce: bytes


@final
class Permit(TypedMessage, kw_only=True):
    """EIP-2612: sets an allowance. Anybody may send it to the token."""

    NAME = "Permit"
    MEMBERS: ClassVar[Members] = (
        ("owner", "address"), ("spender", "address"), ("value", "uint256"), ("nonce", "uint256"),
        ("deadline", "uint256"),
    )  # fmt: skip

    owner: str
    spender: str
    value: int
    nonce: int
    deadline_s: int


def authorization_to_open(terms: SessionTerms, escrow: str) -> ReceiveWithAuthorization:
    """Return what the payer signs for openWithAuthorization, in the token's domain."""
    return ReceiveWithAuthorization(
        sender=terms.payer, receiver=escrow, value=terms.max_amount, valid_after_s=0, valid_before_s=terms.open_by_s,
        nonce=terms.struct_hash(),
    )  # fmt: skip


def authorization_to_extend(extension: Extension, payer: str, escrow: str) -> ReceiveWithAuthorization:
    """Return what the payer signs for extendWithAuthorization, in the token's domain."""
    return ReceiveWithAuthorization(
        sender=payer, receiver=escrow, value=extension.extra_amount, valid_after_s=0,
        valid_before_s=extension.extend_by_s, nonce=extension.struct_hash(),
    )  # fmt: skip


def transfer_data(transfer: TransferWithAuthorization, signature: bytes) -> bytes:
    """Encode the call by which the token makes an authorized transfer."""
    types = [*(kind for _, kind in _AUTHORIZATION), "bytes"]
    signature_of_call = f"transferWithAuthorization({','.join(types)})"
    return keccak256(signature_of_call.encode("ascii"))[:4] + encode(types, [*transfer.values(), signature])


HOLD_TYPE: Final = "(bytes32,address,address,uint256,uint256,uint256,uint256)"
CAPTURE_TYPE: Final = f"({HOLD_TYPE},uint256,bytes32)"


@final
class EscrowHold(Value, kw_only=True):
    """An open session. The contract stores its hash; every call that changes it brings the hold."""

    session_id_hash: bytes
    payer: str
    payee: str
    max_amount: int
    rate: int
    fee_bps: int
    opened_at_s: int

    @property
    def latest_end_s(self) -> int:
        """The second at which the hold is used up if it was charged from its opening on."""
        return self.opened_at_s + self.max_amount // self.rate

    def values(self) -> tuple[Field, ...]:
        """Return the members of the contract's struct in their order."""
        return (
            self.session_id_hash, self.payer, self.payee, self.max_amount, self.rate, self.fee_bps, self.opened_at_s,
        )  # fmt: skip

    def hash(self) -> bytes:
        """Return what the contract stores."""
        return keccak256(encode([HOLD_TYPE], [self.values()]))


@final
class CaptureItem(Value, kw_only=True):
    """One session of captureMany. 0 seconds return everything to the payer."""

    hold: EscrowHold
    clean_seconds: int
    head_hash: bytes

    def values(self) -> tuple[Any, ...]:
        """Return the members of the contract's struct in their order."""
        return (self.hold.values(), self.clean_seconds, self.head_hash)


def batch_of(captures: list[CaptureItem]) -> CaptureBatch:
    """Return the message that the meter signs for a batch which somebody else sends."""
    return CaptureBatch(captures_hash=keccak256(encode([f"{CAPTURE_TYPE}[]"], [[item.values() for item in captures]])))
