"""Escrow: the terms that a payer signs, and the meter's statements."""

from functools import partial
from typing import final

from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.http.pipeline.call import Call, Reply, reply
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.escrow import SessionTerms, Statement, TermsQuery, offer_json, statement_json
from sightline.http.services import Services


@final
class EscrowResources:
    """/sessions/terms and /sessions/{id}/statement."""

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
