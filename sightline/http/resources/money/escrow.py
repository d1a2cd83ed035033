"""Escrow: the terms that a payer signs, and the meter's statements."""

from functools import partial
from typing import final

from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.domain.units import MicroUsdc
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply, reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.escrow import (
    ExtensionTerms,
    ExtensionTermsQuery,
    PermitOffer,
    PermitQuery,
    RelayedPermit,
    SessionTerms,
    SignedMandateBody,
    SignedPermitBody,
    Statement,
    StoredMandate,
    TermsQuery,
    extension_offer_json,
    mandate_json,
    offer_json,
    permit_json,
    permit_offer_json,
    statement_json,
)
from sightline.http.services import Services


@final
class EscrowResources:
    """/sessions/terms, /sessions/{id}/extend/terms, /sessions/{id}/statement, /wallet/mandate and /wallet/permit."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/sessions/terms",
        "getSessionTerms",
        "money",
        "What the payer signs before a session, where the service holds its amount in escrow",
        description="For a quote of the caller's. Sign `authorization` (EIP-3009: no allowance, no gas) or `consent` "
        "with the payer's wallet, and create the session with the same quoteId, maxDurationSeconds and `payment`. "
        "Nothing moves before the session starts. 404 `session:escrow` where the service has no escrow.",
        operation=Operation.GET_QUOTE,
        rate=RateClass.QUOTE,
        query=TermsQuery,
        output=SessionTerms,
        errors=(Code.NOT_FOUND, Code.INVALID_STATE),
    )
    async def terms(self, call: Call) -> Reply:
        """Offer terms."""
        query: TermsQuery = call.query
        offer = await self._services.broker.escrow.offer(call.caller(), query.quote_id, query.max_duration_seconds)
        return reply(offer, offer_json)

    @Route(
        "GET",
        "/api/v1/sessions/{id}/extend/terms",
        "getExtensionTerms",
        "money",
        "What the payer signs to extend a session whose amount is in escrow",
        description="Sign `authorization` (EIP-3009: no allowance, no gas) or `consent` with the payer's wallet, and "
        "extend the session by the same seconds with `payment`.",
        operation=Operation.CREATE_SESSION,
        query=ExtensionTermsQuery,
        output=ExtensionTerms,
        errors=(Code.SESSION_NOT_FOUND, Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
    )
    async def extension_terms(self, call: Call) -> Reply:
        """Offer terms of an extension."""
        query: ExtensionTermsQuery = call.query
        offer = await self._services.broker.escrow.offer_extension(call.caller(), call.params["id"], query.seconds)
        return reply(offer, extension_offer_json)

    @Route(
        "GET",
        "/api/v1/sessions/{id}/statement",
        "getStatement",
        "money",
        "The meter's signed reading of a session in escrow",
        description="Operators keep the newest: with it `claim` of the contract pays them even if the service is gone.",
        operation=Operation.READ_SESSION,
        output=Statement,
        errors=(Code.SESSION_NOT_FOUND, Code.NOT_FOUND),
    )
    async def statement(self, call: Call) -> Reply:
        """Sign the present reading."""
        statement = await self._services.broker.escrow.statement(call.params["id"], call.workspace_id)
        return reply(statement, partial(statement_json, chain=self._services.chain))

    @Route(
        "PUT",
        "/api/v1/wallet/mandate",
        "setMandate",
        "money",
        "Let the workspace pay for its sessions within limits",
        description="A mandate that the workspace's wallet has signed (EIP-712 `Mandate` of the escrow contract). "
        "Sessions created without `payment`, as API keys do, are held under it. It replaces an earlier one here; "
        "on the contract each is valid until its end or its revocation.",
        operation=Operation.CREATE_SESSION,
        body=SignedMandateBody,
        output=StoredMandate,
        errors=(Code.NOT_FOUND,),
    )
    async def set_mandate(self, call: Call) -> Reply:
        """Store a mandate."""
        body: SignedMandateBody = call.body
        return reply(await self._services.broker.escrow.keep_mandate(call.workspace_id, body.signed()), mandate_json)

    @Route(
        "GET",
        "/api/v1/wallet/mandate",
        "getMandate",
        "money",
        "The mandate under which the workspace pays",
        operation=Operation.READ_WALLET,
        output=StoredMandate,
        errors=(Code.NOT_FOUND,),
    )
    async def mandate(self, call: Call) -> Reply:
        """The stored mandate."""
        return reply(await self._services.broker.escrow.mandate(call.workspace_id), mandate_json)

    @Route(
        "DELETE",
        "/api/v1/wallet/mandate",
        "deleteMandate",
        "money",
        "Stop paying under the mandate",
        description="The service forgets it. To revoke it on the contract too, the wallet calls `revokeMandate`.",
        operation=Operation.CREATE_SESSION,
        output=StoredMandate,
        errors=(Code.NOT_FOUND,),
    )
    async def delete_mandate(self, call: Call) -> Reply:
        """Forget the mandate."""
        return reply(await self._services.broker.escrow.drop_mandate(call.workspace_id), mandate_json)

    @Route(
        "GET",
        "/api/v1/wallet/permit",
        "getPermit",
        "money",
        "What the wallet signs to give the escrow contract an allowance without gas",
        description="Sign `typedData` (EIP-2612 `Permit` of the token) with the workspace's wallet, and send owner, "
        "spender, value, nonce and deadline with the signature. 404 `session:escrow` where the service has no escrow, "
        "`wallet:permit` where the token has no permit.",
        operation=Operation.CREATE_SESSION,
        rate=RateClass.QUOTE,
        query=PermitQuery,
        output=PermitOffer,
        errors=(Code.NOT_FOUND,),
    )
    async def permit(self, call: Call) -> Reply:
        """Offer a permit."""
        query: PermitQuery = call.query
        amount = MicroUsdc(int(query.value))
        return reply(await self._services.broker.escrow.permit_terms(call.workspace_id, amount), permit_offer_json)

    @Route(
        "POST",
        "/api/v1/wallet/permit",
        "relayPermit",
        "money",
        "Give the escrow contract an allowance, whose gas the service pays",
        description="Sends the permit to the token, and answers when it is in a block. A repeat returns the same "
        "transaction. 400 `wallet:permit` of another owner, for another spender, expired or not signed by the owner; "
        "409 `wallet:permitNonce` if the token has used its nonce; 429 `session:gasBudget` beyond the budget of gas "
        "that the service pays for a payer in 24 hours.",
        operation=Operation.CREATE_SESSION,
        rate=RateClass.CREATE,
        body=SignedPermitBody,
        output=RelayedPermit,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def relay_permit(self, call: Call) -> Reply:
        """Relay a permit."""
        body: SignedPermitBody = call.body
        answer = await self._services.broker.escrow.relay_permit(call.workspace_id, body.signed())
        self._services.wake_watcher()
        return reply(answer, permit_json)
