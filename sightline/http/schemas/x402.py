"""Views that are paid by x402: the request, the headers of version 2, and the view."""

import base64
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import orjson
from pydantic import Field, StringConstraints

from sightline.domain.errors import RefusedError
from sightline.domain.escrow import ExactTransfer
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.status import SessionStatus
from sightline.domain.units import MicroUsdc
from sightline.http.schemas.base import (
    INTEGER_PATTERN,
    WHOLE,
    Address,
    Input,
    Instant,
    Latitude,
    Longitude,
    Money,
    Output,
    Uuid,
    iso_or_none,
)
from sightline.http.schemas.escrow import Signature
from sightline.http.schemas.sessions import EndReason, State
from sightline.ports.escrow import ExactAsset, ExactPayment

X402_VERSION = 2
SCHEME = "exact"
VIEW_SECONDS_MAX = 3_600
_HEADER_BYTES_MAX = 16_384
_LABEL = "x402:payment"
_Seconds: TypeAlias = Annotated[str, StringConstraints(pattern=INTEGER_PATTERN)]


class BuyViewBody(Input):
    """A place, and for how long it may be seen."""

    AREA = "x402"
    REFUSES_MISSPELT = True
    LABELS: ClassVar[Mapping[str, str]] = {
        "lat": "session:location",
        "lng": "session:location",
        "maxDurationSeconds": "session:duration",
    }

    lat: Latitude
    lng: Longitude
    max_duration_seconds: Annotated[int, Field(ge=1, le=VIEW_SECONDS_MAX), WHOLE]


class ExtendViewBody(Input):
    """For how many more seconds a view may be seen."""

    AREA = "x402"
    REFUSES_MISSPELT = True
    LABELS: ClassVar[Mapping[str, str]] = {"seconds": "session:duration"}

    seconds: Annotated[int, Field(ge=1, le=VIEW_SECONDS_MAX), WHOLE]


class _Extra(Input):
    AREA = "x402"

    quote_id: Annotated[str, StringConstraints(max_length=200)]


class _Accepted(Input):
    AREA = "x402"

    scheme: Literal["exact"]
    network: str
    asset: Address
    amount: Money
    pay_to: Address
    extra: _Extra


class _Authorization(Input):
    AREA = "x402"

    from_: Address = Field(alias="from")
    to: Address
    value: Money
    valid_after: _Seconds
    valid_before: _Seconds
    nonce: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")]


class _ExactPayload(Input):
    AREA = "x402"

    authorization: _Authorization
    signature: Signature = Field(repr=False)


class PaymentSignature(Input):
    """The header PAYMENT-SIGNATURE: what was accepted, and the payer's signature of an EIP-3009 transfer."""

    AREA = "x402"

    x402_version: Literal[2]
    accepted: _Accepted
    payload: _ExactPayload

    @classmethod
    def of(cls, header: str) -> Self:
        """Decode the header.

        Raises:
            RefusedError: INVALID_INPUT.
        """
        try:
            if len(header) > _HEADER_BYTES_MAX:
                raise ValueError
            message: object = orjson.loads(base64.b64decode(header, validate=True))
            if not isinstance(message, dict):
                raise ValueError
        except ValueError as error:
            why = "PAYMENT-SIGNATURE is not base64 of a JSON object"
            raise RefusedError(Refusal(Code.INVALID_INPUT, _LABEL, why)) from error
        return cls.parse(message)

    @classmethod
    def label_of(cls, name: str) -> str:
        """All fields have one label: the caller's library makes the header."""
        return _LABEL

    def payment(self) -> ExactPayment:
        """Return the signed transfer."""
        signed = self.payload.authorization
        return ExactPayment(
            payer=signed.from_.lower(), amount=MicroUsdc(int(signed.value)), valid_before_s=int(signed.valid_before),
            transfer=ExactTransfer(nonce=signed.nonce.lower(), valid_after_s=int(signed.valid_after)),
            signature=self.payload.signature,
        )  # fmt: skip

    def why_other(self, asset: ExactAsset, amount: int) -> str | None:
        """Return in what the payment differs from what was asked; None if it is what was asked."""
        accepted, signed = self.accepted, self.payload.authorization
        checks = {
            "network": accepted.network == network_of(asset),
            "asset": accepted.asset.lower() == asset.token.lower(),
            "payTo": {accepted.pay_to.lower(), signed.to.lower()} == {asset.pay_to.lower()},
            "amount": {accepted.amount, signed.value} == {str(amount)},
        }
        return next((f"another {name} than was asked" for name, is_same in checks.items() if not is_same), None)


class PaidView(Output):
    """A view that was paid by x402."""

    view_id: Uuid = Field(description="The id of its session")
    state: State
    frame_url: str = Field(description="The newest picture, with the key as bearer token")
    events_url: str = Field(description="Its server-sent events")
    expires_at: Instant | None = Field(description="The current deadline; null when the view is over")
    rate_per_second_micro_usdc: Money
    cap_micro_usdc: Money = Field(description="What the payment allows; what is not used returns to the payer")
    clean_seconds: int
    charged_micro_usdc: Money = Field(description="Computed at the end; 0 before")
    end_reason: EndReason | None
    hold_tx_hash: str | None = Field(description="The transaction that took the payment, at the start")
    settlement_tx_hash: str | None = Field(
        description="The transaction that paid the operator and returned the rest to the payer"
    )


class BoughtView(PaidView):
    """The answer to a payment."""

    key: str = Field(description="An API key that opens this view only. Secret")


def network_of(asset: ExactAsset) -> str:
    """Return the network by its CAIP-2 name."""
    return f"eip155:{asset.chain_id}"


def payment_required(
    asset: ExactAsset, amount: int, quote_id: str, *, url: str, timeout_s: int, error: str | None
) -> str:
    """Encode the header PAYMENT-REQUIRED.

    Source: x402 specification version 2, scheme exact on EVM.
    """
    return _encoded(
        {
            "x402Version": X402_VERSION,
            "error": error or "Payment required",
            "resource": {"url": url, "description": "Live view of a place", "mimeType": "application/json"},
            "accepts": [
                {
                    "scheme": SCHEME,
                    "network": network_of(asset),
                    "asset": asset.token,
                    "amount": str(amount),
                    "payTo": asset.pay_to,
                    "maxTimeoutSeconds": timeout_s,
                    "extra": {
                        "name": asset.name,
                        "version": asset.version,
                        "assetTransferMethod": "eip3009",
                        "quoteId": quote_id,
                    },
                }
            ],
        }
    )


def payment_response(asset: ExactAsset, payer: str, tx_hash: str = "") -> str:
    """Encode the header PAYMENT-RESPONSE. For a new view it names no transaction: nothing moves before its start."""
    return _encoded({"success": True, "transaction": tx_hash, "network": network_of(asset), "payer": payer})


def view_json(status: SessionStatus, base_url: str) -> dict[str, object]:
    """Present a session as `PaidView`."""
    terms = status.terms
    session_url = f"{base_url}/api/v1/sessions/{terms.id}"
    return {
        "viewId": terms.id,
        "state": status.state,
        "frameUrl": f"{session_url}/frame",
        "eventsUrl": f"{session_url}/events",
        "expiresAt": iso_or_none(status.expires_at_ms),
        "ratePerSecondMicroUsdc": str(terms.rate),
        "capMicroUsdc": str(terms.hold),
        "cleanSeconds": status.clean_seconds,
        "chargedMicroUsdc": str(status.charged),
        "endReason": status.end_reason,
        "holdTxHash": status.hold_tx_hash,
        "settlementTxHash": status.settlement_tx_hash,
    }


def _encoded(message: Mapping[str, object]) -> str:
    return base64.b64encode(orjson.dumps(message)).decode("ascii")
