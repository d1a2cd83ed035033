"""Prices, and where operators are online."""

from typing import final

from sightline.domain.access import Operation
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply, reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.base import coordinate
from sightline.http.schemas.pricing import Coverage, CoverageQuery, Quote, QuoteQuery, coverage_json, quote_json
from sightline.http.services import Services


@final
class QuoteResources:
    """GET /pricing/quote and /coverage."""

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

    @Route(
        "GET",
        "/api/v1/coverage",
        "getCoverage",
        "pricing",
        "Count the operators online per cell of 0.1 degrees",
        description="Counts each ONLINE operator that was seen within 60 s in the cell of its coverage centre. Never "
        "shows a position. The counts are up to 5 s old; the timestamp says how old.",
        operation=Operation.READ_COVERAGE,
        rate=RateClass.LIST,
        query=CoverageQuery,
        output=Coverage,
    )
    async def coverage(self, call: Call) -> Reply:
        """Count operators per cell."""
        query: CoverageQuery = call.query
        return reply(await self._services.broker.coverage.within(query.bbox), coverage_json)
