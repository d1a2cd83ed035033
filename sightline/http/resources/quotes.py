"""Prices."""

from typing import final

from sightline.actors.types import Answer
from sightline.domain.access import Operation
from sightline.domain.views import coordinate
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.pricing import Quote, QuoteQuery


@final
class QuoteResources:
    """GET /pricing/quote."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="GET",
                path="/api/v1/pricing/quote",
                operation_id="getQuote",
                tag="pricing",
                summary="Price a place and a duration; the quote lives 120 s and can be used once",
                description="The factors multiply to the rate. Bound to the workspace; good within 50 m of the point.",
                handler=self.quote,
                operation=Operation.GET_QUOTE,
                rate=RateClass.QUOTE,
                query=QuoteQuery,
                output=Quote,
                is_hot=True,
                finishes=True,
            ),
        )

    async def quote(self, call: Call) -> Answer:
        """Compute and keep a quote."""
        query: QuoteQuery = call.query
        return await self._deps.broker.pricing.quote(
            call.workspace_id, coordinate(query.lat), coordinate(query.lng), query.duration_seconds
        )
