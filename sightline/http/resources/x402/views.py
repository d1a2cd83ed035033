"""Views for a payment: no account, no key beforehand."""

from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.addresses import shown_address
from sightline.domain.refusal import Code
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.x402.extension import ViewExtensions
from sightline.http.resources.x402.purchase import VIEWS_PATH, ViewSales
from sightline.http.schemas.x402 import (
    BoughtView,
    BuyViewBody,
    ExtendViewBody,
    PaidView,
    PaymentSignature,
    payment_response,
    view_json,
)
from sightline.http.services import Services

TAG: Final = "x402"
_TEXT: Final = {"type": "string"}


@final
class PaidViewResources:
    """/x402/views."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sales = ViewSales(services)
        self._extensions = ViewExtensions(services)

    @Route(
        "POST",
        VIEWS_PATH,
        "buyView",
        TAG,
        "Buy a view of a place by x402, without an account",
        description="Without the header PAYMENT-SIGNATURE: 402 PAYMENT_REQUIRED, and the header PAYMENT-REQUIRED names "
        "the price (x402 version 2, scheme exact). The clients of x402 sign it and repeat the request with "
        "PAYMENT-SIGNATURE. Then the answer has a key that opens this view only. Nothing moves before an operator "
        "starts the view; at the end what was not used returns to the payer. A repeat of the same payment answers with "
        "the same view and key. 503 UNAVAILABLE while no operator covers the place: nothing moves.",
        rate=RateClass.AUTH,
        checks_origin=False,
        body=BuyViewBody,
        output=BoughtView,
        response_headers={"PAYMENT-RESPONSE": (_TEXT, "Base64 of JSON: success, payer, network")},
        errors=(Code.PAYMENT_REQUIRED, Code.INSUFFICIENT_CREDIT, Code.NOT_AUTHORIZED, Code.NOT_FOUND, Code.CONFLICT),
        links=(Link("getView", {"id": "$response.body#/data/viewId"}),),
    )
    async def buy(self, call: Call) -> Reply:
        """Sell a view, or say what it costs."""
        body: BuyViewBody = call.body
        url, header = f"{call.base_url()}{VIEWS_PATH}", call.headers.get("payment-signature")
        if header is None:
            await self._sales.ask(body, url)
        bought = await self._sales.buy(body, url, PaymentSignature.of(header))
        receipt = payment_response(self._services.broker.escrow.exact_asset, bought.payer)
        view = view_json(bought.status, call.base_url())
        return Reply({**view, "key": bought.key}, headers=(("PAYMENT-RESPONSE", receipt),))

    @Route(
        "POST",
        f"{VIEWS_PATH}/{{id}}/extend",
        "extendView",
        TAG,
        "Buy more seconds of a LIVE view by x402",
        description="With the view's key, and as buyView: 402 with PAYMENT-REQUIRED, then the request again with "
        "PAYMENT-SIGNATURE of the same payer. The price is the view's rate. The answer comes when the contract has the "
        "amount; 503 UNAVAILABLE while it has not. A repeat of the same payment has the same answer and adds nothing.",
        operation=Operation.CREATE_SESSION,
        body=ExtendViewBody,
        output=PaidView,
        response_headers={"PAYMENT-RESPONSE": (_TEXT, "Base64 of JSON: success, transaction, payer, network")},
        errors=(
            Code.PAYMENT_REQUIRED,
            Code.INSUFFICIENT_CREDIT,
            Code.NOT_FOUND,
            Code.SESSION_NOT_FOUND,
            Code.INVALID_STATE,
            Code.CONFLICT,
        ),
    )
    async def extend(self, call: Call) -> Reply:
        """Sell seconds, or say what they cost."""
        body: ExtendViewBody = call.body
        view_id, caller = call.params["id"], call.caller()
        url, header = f"{call.base_url()}{VIEWS_PATH}/{view_id}/extend", call.headers.get("payment-signature")
        if header is None:
            await self._extensions.ask(view_id, caller, body, url)
        signed = PaymentSignature.of(header)
        extended = await self._extensions.extend(view_id, caller, body, url, signed)
        receipt = payment_response(
            self._services.broker.escrow.exact_asset, shown_address(signed.payment().payer),
            extended.value.extension_tx_hash or "",
        )  # fmt: skip
        return Reply(view_json(extended.value, call.base_url()), headers=(("PAYMENT-RESPONSE", receipt),))

    @Route(
        "GET",
        f"{VIEWS_PATH}/{{id}}",
        "getView",
        TAG,
        "Read a view that was bought by x402",
        operation=Operation.READ_SESSION,
        output=PaidView,
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def read(self, call: Call) -> Reply:
        """The view."""
        answer = await self._services.broker.reads.read_session(call.params["id"], call.workspace_id)
        return Reply(view_json(answer.value, call.base_url()), answer.at_ms)
