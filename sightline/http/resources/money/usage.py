"""Usage of a workspace by day, as JSON or CSV."""

from collections.abc import Mapping
from typing import Any, Final, final

from sightline.domain.access import Operation
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw, Reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.usage import Usage, UsageQuery, usage_csv, usage_json
from sightline.http.services import Services
from sightline.ports.ledger import UsageSide

CSV: Final = "text/csv"


@final
class UsageResources:
    """/usage."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/usage",
        "getUsage",
        "money",
        "Get sessions, seconds and money by day",
        description="Counts ended sessions by the UTC day on which their end was recorded, settled or not; write-offs "
        "are left out. At most 366 days. `format=csv` or `Accept: text/csv` returns CSV without envelope.",
        operation=Operation.READ_WALLET,
        rate=RateClass.LIST,
        query=UsageQuery,
        output=Usage,
        other_media_types=(CSV,),
    )
    async def usage(self, call: Call) -> Reply | Raw:
        """Usage by day."""
        query: UsageQuery = call.query
        days = await self._services.ledger.usage(
            call.workspace_id, UsageSide(query.side), first_day=query.from_, last_day=query.to
        )
        data = usage_json(query, days)
        if chosen_format(query.format, call.headers.get("accept"), {"csv": CSV}) == "json":
            return Reply(data)
        items: Any = data["items"]
        name = f"sightline-usage-{query.side}-{items[0]['date']}-{items[-1]['date']}.csv"
        headers = (
            ("content-type", "text/csv; charset=utf-8; header=present"),
            ("content-disposition", f'attachment; filename="{name}"'),
            ("cache-control", "no-store"),
        )
        return Raw(200, headers, usage_csv(items))


def chosen_format(chosen: str | None, accept: str | None, offered: Mapping[str, str]) -> str:
    """The form that the caller asks for: "json", or one of those offered by name and media type.

    The query wins over the Accept header, of which the first form that is offered counts.
    """
    if chosen is not None:
        return chosen
    wanted = [part.partition(";")[0].strip().lower() for part in (accept or "").split(",")]
    return next((name for media_type in wanted for name, its in offered.items() if its == media_type), "json")
