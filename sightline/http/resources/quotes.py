"""Prices."""

from typing import final

from sightline.domain.access import Operation
from sightline.http.pipeline.call import Call, Reply, reply
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.base import coordinate
from sightline.http.schemas.pricing import Quote, QuoteQuery, quote_json
from sightline.http.services import Services


@final
class QuoteResources:
    """GET /pricing/quote."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/pricing/quote",
        "getQuote",
        "pricing",
        "Price a place and a duration; the quote lives 120 s and can be used once",
        description="The factors multiply to the rate. Bound to the workspace; good within 50 m of the point.",
        operation=Operation.GET_QUOTE,
        rate=RateClass.QUOTE,
        query=QuoteQuery,
        output=Quote,
        is_hot=True,
        finishes=True,
    )
    async def quote(self, call: Call) -> Reply:
        """Compute and keep a quote."""
        query: QuoteQuery = call.query
        quote = await self._services.broker.pricing.quote(
            call.workspace_id, coordinate(query.lat), coordinate(query.lng), query.duration_seconds
        )
        return reply(quote, quote_json)
