"""Sale of more seconds of a LIVE view for a signed payment. A repeat of the payment finds what it has bought."""

import hashlib
from typing import Final, NoReturn, final

from sightline.actors.refusals import NOT_PARTY
from sightline.actors.types import Answer, Caller, NewExtension
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code
from sightline.domain.session.status import SessionStatus
from sightline.domain.units import MicroUsdc
from sightline.http.pipeline.errors import ApiError
from sightline.http.schemas.x402 import ExtendViewBody, PaymentSignature, payment_required
from sightline.http.services import Services
from sightline.ports.store import IdempotencyKey

EXTENDING_S: Final = 180
"""What a payment must be valid for: the time to sign, and to be confirmed by the chain."""
UNPAYABLE: Final = "session:consent"


@final
class ViewExtensions:
    """Sells seconds."""

    def __init__(self, services: Services) -> None:
        self._broker = services.broker

    async def ask(self, view_id: str, caller: Caller, body: ExtendViewBody, url: str) -> NoReturn:
        """Answer 402 with the price, which is the view's rate.

        Raises:
            ApiError: PAYMENT_REQUIRED.
            RefusedError: The view is not LIVE, or it would be too long.
        """
        offered = await self._broker.escrow.require_extendable(caller, view_id, body.seconds)
        self._require_payment(view_id, offered.value, body, url)

    def _require_payment(
        self, view_id: str, amount: MicroUsdc, body: ExtendViewBody, url: str, refused: str | None = None
    ) -> NoReturn:
        header = payment_required(
            self._broker.escrow.exact_asset, amount, _quote_of(view_id, body), url=url, timeout_s=EXTENDING_S,
            error=refused,
        )  # fmt: skip
        raise ApiError(
            Code.PAYMENT_REQUIRED,
            None if refused is None else "x402:payment",
            f"Pay {amount} micro-USDC as the header PAYMENT-REQUIRED says (x402)"
            if refused is None
            else f"The payment is not taken: {refused}",
            headers=[(b"payment-required", header.encode("ascii"))],
        )

    async def extend(
        self, view_id: str, caller: Caller, body: ExtendViewBody, url: str, signed: PaymentSignature
    ) -> Answer[SessionStatus]:
        """Extend the view by what a payment pays for.

        Raises:
            ApiError: PAYMENT_REQUIRED: the payment is not taken.
            RefusedError: The view is not LIVE, or the contract refuses the payment.
            UnavailableError: The chain has not confirmed it yet. A repeat with the same payment is safe.
        """
        view = (await self._broker.reads.read_session(view_id, caller.workspace_id)).value
        if view.terms.consumer_workspace_id != caller.workspace_id:
            raise RefusedError(NOT_PARTY)
        amount, payment = MicroUsdc(view.terms.rate * body.seconds), signed.payment()
        refused = signed.why_other(self._broker.escrow.exact_asset, amount)
        if refused is None and signed.accepted.extra.quote_id != _quote_of(view_id, body):
            refused = "the payment was asked for another view or for other seconds"
        if refused is not None:
            self._require_payment(view_id, amount, body, url, refused)
        once = IdempotencyKey(
            workspace_id=caller.workspace_id, method="POST", path=f"x402 {view_id}", key=payment.transfer.nonce,
            body_hash=hashlib.sha256(_quote_of(view_id, body).encode()).hexdigest(),
        )  # fmt: skip
        paid = NewExtension(seconds=body.seconds, consent=payment.consent())
        try:
            return await self._broker.extend(
                view_id, Caller(workspace_id=caller.workspace_id, idempotency=once), paid
            )  # fmt: skip
        except RefusedError as error:
            if error.refusal.detail != UNPAYABLE:
                raise
            self._require_payment(view_id, amount, body, url, error.refusal.message)


def _quote_of(view_id: str, body: ExtendViewBody) -> str:
    """The rate of a LIVE view does not change, so the quote only says what is bought."""
    return f"{view_id}.{body.seconds}"
