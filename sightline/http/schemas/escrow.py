"""Escrow: what a payer signs, what it sends, and the meter's signed statements."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from sightline.actors.service.escrow import ExtensionOffer, MandateToday, Offer
from sightline.domain.addresses import shown_address
from sightline.domain.escrow import ConsentKind, PayerConsent, SignedMandate
from sightline.domain.units import MicroUsdc
from sightline.http.schemas.base import (
    HASH_PATTERN,
    INTEGER_TEXT,
    WHOLE,
    Address,
    Input,
    Money,
    Output,
    Query,
    Uuid,
)
from sightline.ports.chain import ChainConfig
from sightline.ports.escrow import AllowancePermit, PermitTerms, SignedPermit, SignedStatement

_HEX: Final = r"^0x(?:[0-9a-fA-F]{2}){1,2048}$"
_UNIX_MAX: Final = 2**53
_WORD_MAX: Final = 2**256 - 1


def _word(text: str) -> str:
    if int(text) > _WORD_MAX:
        raise ValueError("must be below 2^256")
    return text


Signature: TypeAlias = Annotated[str, StringConstraints(pattern=_HEX)]
Word: TypeAlias = Annotated[Money, AfterValidator(_word)]
Nonce: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,78}$"), AfterValidator(_word)]
UnixSeconds: TypeAlias = Annotated[int, Field(ge=0, le=_UNIX_MAX), WHOLE]


class MandateBody(Input):
    """A payer's consent to many sessions, as signed (`Mandate` of SessionEscrow, with an empty delegate)."""

    AREA = "session"

    payer: Address
    max_per_session: Money
    max_per_day: Money
    max_rate_per_second: Money
    max_fee_bps: Annotated[int, Field(ge=0, le=10_000), WHOLE]
    valid_until: UnixSeconds
    salt: Annotated[str, StringConstraints(pattern=HASH_PATTERN)]


class SignedPaymentBody(Input):
    """The payer's signature for one session."""

    AREA = "session"

    kind: Literal["authorization", "consent"] = Field(
        description="authorization: an EIP-3009 authorization, without allowance and gas. consent: a signature of the "
        "terms, paid from the allowance"
    )
    open_by: UnixSeconds = Field(description="As signed; from the terms")
    signature: Signature = Field(description="Of the payer's wallet", repr=False)

    def consent(self) -> PayerConsent:
        """Return the consent of the payer."""
        return PayerConsent(kind=ConsentKind(self.kind), open_by_s=self.open_by, signature=self.signature)


class SignedMandateBody(Input):
    """A mandate with the payer's signature."""

    AREA = "wallet"

    mandate: MandateBody
    signature: Signature = Field(description="Of the payer's wallet", repr=False)

    def signed(self) -> SignedMandate:
        """Return the mandate."""
        body = self.mandate
        return SignedMandate(
            payer=body.payer.lower(), max_per_session=MicroUsdc(int(body.max_per_session)),
            max_per_day=MicroUsdc(int(body.max_per_day)), max_rate=MicroUsdc(int(body.max_rate_per_second)),
            max_fee_bps=body.max_fee_bps, valid_until_s=body.valid_until, salt=body.salt, signature=self.signature,
        )  # fmt: skip


class MandatePaymentBody(SignedMandateBody):
    """The payer's signature for many sessions, paid from the allowance."""

    AREA = "session"

    kind: Literal["mandate"]

    def consent(self) -> PayerConsent:
        """Return the consent of the payer. The service chooses until when the hold may be opened."""
        return PayerConsent(kind=ConsentKind.MANDATE, open_by_s=0, mandate=self.signed())


class StoredMandate(Output):
    """The mandate under which the workspace pays for sessions that are created without a payment."""

    payer: Address
    max_per_session: Money
    max_per_day: Money
    max_rate_per_second: Money
    max_fee_bps: int
    valid_until: int = Field(description="Unix seconds")
    salt: str = Field(pattern=HASH_PATTERN)
    held_today: Money | None = Field(
        description="What the contract has held under it since 0:00 UTC, also for sessions that cost less in the end. "
        "It counts towards maxPerDay. null while the chain does not answer"
    )


class PermitFields(Input):
    """An allowance, as signed (`Permit` of the token, EIP-2612)."""

    AREA = "wallet"

    owner: Address
    spender: Address
    value: Word
    nonce: Nonce = Field(description="The owner's nonce in the token")
    deadline: UnixSeconds


class SignedPermitBody(Input):
    """A permit with its owner's signature."""

    AREA = "wallet"

    permit: PermitFields
    signature: Signature = Field(description="Of the workspace's wallet", repr=False)

    def signed(self) -> SignedPermit:
        """Return the permit."""
        body = self.permit
        return SignedPermit(
            owner=body.owner.lower(), spender=body.spender.lower(), amount=MicroUsdc(int(body.value)),
            nonce=int(body.nonce), deadline_s=body.deadline, signature=self.signature,
        )  # fmt: skip


class PermitQuery(Query):
    """The allowance for which the permit is asked."""

    AREA = "wallet"

    value: Word


class PermitOffer(Output):
    """What the workspace's wallet signs to give the escrow contract an allowance without gas."""

    owner: Address
    spender: Address = Field(description="The escrow contract")
    value: Money
    nonce: Nonce = Field(description="The owner's nonce in the token")
    deadline: int = Field(description="Unix seconds")
    typed_data: dict[str, Any] = Field(description="Argument of eth_signTypedData_v4")


class RelayedPermit(Output):
    """A permit that the token has taken."""

    owner: Address
    spender: Address
    value: Money = Field(description="The allowance that it has set")
    tx_hash: str = Field(pattern=HASH_PATTERN)


PaymentBody: TypeAlias = Annotated[SignedPaymentBody | MandatePaymentBody, Field(discriminator="kind")]


class TermsQuery(Query):
    """The quote and the duration for which the terms are asked."""

    AREA = "session"
    LABELS: ClassVar[Mapping[str, str]] = {"quoteId": "pricing:quote", "maxDurationSeconds": "session:duration"}

    quote_id: Uuid
    max_duration_seconds: Annotated[int, Field(ge=1, le=14_400), INTEGER_TEXT] = 600


class ExtensionTermsQuery(Query):
    """For how many more seconds the terms are asked."""

    AREA = "session"
    LABELS: ClassVar[Mapping[str, str]] = {"seconds": "session:duration"}

    seconds: Annotated[int, Field(ge=1, le=14_400), INTEGER_TEXT]


class ExtensionTerms(Output):
    """What the payer signs, so that the contract may add to the session's hold."""

    session_id: Uuid
    payer: Address
    seconds: int
    extra_amount_micro_usdc: Money
    open_by: int = Field(description="Unix seconds; send it back in payment")
    authorization: dict[str, Any] = Field(description="Argument of eth_signTypedData_v4 for kind authorization")
    consent: dict[str, Any] = Field(description="Argument of eth_signTypedData_v4 for kind consent")


class SessionTerms(Output):
    """What the payer signs, so that the contract may hold the session's amount."""

    session_id: Uuid = Field(description="The id of the session that is created with this quote and payment")
    payer: Address
    max_amount_micro_usdc: Money
    rate_per_second_micro_usdc: Money
    platform_fee_bps: int
    open_by: int = Field(description="Unix seconds; send it back in payment")
    authorization: dict[str, Any] = Field(description="Argument of eth_signTypedData_v4 for kind authorization")
    consent: dict[str, Any] = Field(description="Argument of eth_signTypedData_v4 for kind consent")


class EscrowHold(Output):
    """A hold as the contract knows it: the argument `hold` of claim and reclaim."""

    session_id_hash: str = Field(pattern=HASH_PATTERN)
    payer: Address
    payee: Address
    max_amount: Money
    rate_per_second: Money
    fee_bps: int
    opened_at: int = Field(description="Unix seconds of the block")


class Statement(Output):
    """The meter's signed reading. With it anyone can call `claim` of the escrow contract."""

    session_id: Uuid
    chain_id: int
    escrow_address: Address
    hold: EscrowHold
    clean_seconds: int
    head_hash: str = Field(pattern=HASH_PATTERN)
    is_final: bool = Field(
        description="A final statement can be claimed at any time, another one from an hour after the latest end"
    )
    signature: str = Field(description="Of the meter, over MeterStatement (EIP-712)")


def offer_json(offer: Offer) -> dict[str, object]:
    """Present terms as `SessionTerms`."""
    terms = offer.terms
    return {
        "sessionId": terms.session_id,
        "payer": shown_address(terms.payer),
        "maxAmountMicroUsdc": str(terms.max_amount),
        "ratePerSecondMicroUsdc": str(terms.rate),
        "platformFeeBps": terms.fee_bps,
        "openBy": terms.open_by_s,
        "authorization": offer.typed_data[ConsentKind.AUTHORIZATION],
        "consent": offer.typed_data[ConsentKind.CONSENT],
    }


def extension_offer_json(offer: ExtensionOffer) -> dict[str, object]:
    """Present the terms of an extension as `ExtensionTerms`."""
    return {
        "sessionId": offer.session.id,
        "payer": shown_address(offer.session.terms.payer_address),
        "seconds": offer.seconds,
        "extraAmountMicroUsdc": str(offer.amount),
        "openBy": offer.extend_by_s,
        "authorization": offer.typed_data[ConsentKind.AUTHORIZATION],
        "consent": offer.typed_data[ConsentKind.CONSENT],
    }


def permit_offer_json(terms: PermitTerms) -> dict[str, object]:
    """Present the terms of a permit as `PermitOffer`."""
    return {
        "owner": terms.owner,
        "spender": terms.spender,
        "value": str(terms.amount),
        "nonce": str(terms.nonce),
        "deadline": terms.deadline_s,
        "typedData": terms.typed_data,
    }


def permit_json(permit: AllowancePermit) -> dict[str, object]:
    """Present a permit as `RelayedPermit`, without its signature."""
    return {
        "owner": shown_address(permit.owner),
        "spender": shown_address(permit.spender),
        "value": str(permit.amount),
        "txHash": permit.tx_hash,
    }


def mandate_json(today: MandateToday) -> dict[str, object]:
    """Present a mandate as `StoredMandate`, without its signature."""
    mandate, held = today
    return {
        "payer": shown_address(mandate.payer),
        "maxPerSession": str(mandate.max_per_session),
        "maxPerDay": str(mandate.max_per_day),
        "maxRatePerSecond": str(mandate.max_rate),
        "maxFeeBps": mandate.max_fee_bps,
        "validUntil": mandate.valid_until_s,
        "salt": mandate.salt,
        "heldToday": None if held is None else str(held),
    }


def statement_json(statement: SignedStatement, *, chain: ChainConfig) -> dict[str, object]:
    """Present a statement as `Statement`."""
    hold = statement.hold
    return {
        "sessionId": hold.session_id,
        "chainId": chain.chain_id,
        "escrowAddress": chain.settlement_address,
        "hold": {
            "sessionIdHash": hold.session_id_hash,
            "payer": shown_address(hold.payer),
            "payee": shown_address(hold.payee),
            "maxAmount": str(hold.max_amount + hold.extended),
            "ratePerSecond": str(hold.rate),
            "feeBps": hold.fee_bps,
            "openedAt": hold.opened_at_s,
        },
        "cleanSeconds": statement.clean_seconds,
        "headHash": "0x" + statement.head_hash,
        "isFinal": statement.is_final,
        "signature": statement.signature,
    }
