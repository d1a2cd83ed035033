"""Statements of a workspace by month, as JSON or CSV."""

from typing import final

from sightline.domain.access import Operation
from sightline.domain.books.statement import invoice_due
from sightline.domain.refusal import Code
from sightline.http.pipeline.call import Call, Raw, Reply
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Param, Route
from sightline.http.resources.money.usage import CSV, wants_csv
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.statements import MonthStatement, StatementQuery, month_of, statement_csv, statement_json
from sightline.http.services import Services


@final
class StatementResources:
    """/workspaces/{id}/statements/{month}."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/workspaces/{id}/statements/{month}",
        "getMonthStatement",
        "money",
        "Get the statement of a month, with the invoice",
        description="Sessions by the time of the block that settled them, month in UTC (YYYY-MM). When the month is "
        "closed, the first call writes the invoice of its charges. `format=csv` or `Accept: text/csv` returns the "
        "sessions as CSV without envelope.",
        operation=Operation.READ_WALLET,
        rate=RateClass.LIST,
        params={"id": Param.UUID, "month": Param.TEXT},
        query=StatementQuery,
        output=MonthStatement,
        other_media_type=CSV,
        errors=(Code.NOT_FOUND,),
    )
    async def statement(self, call: Call) -> Reply | Raw:
        """The statement of a month."""
        workspace_id = await require_own_workspace(call, self._services.broker)
        now_ms = self._services.clock.now_ms()
        month = month_of(call.params["month"], now_ms)
        ledger = self._services.ledger
        statement = await ledger.statement(workspace_id, month)
        invoice = await ledger.invoice(statement, now_ms=now_ms) if invoice_due(statement) else None
        data = statement_json(statement, invoice)
        query: StatementQuery = call.query
        if not wants_csv(query.format, call.headers.get("accept")):
            return Reply(data)
        headers = (
            ("content-type", "text/csv; charset=utf-8; header=present"),
            ("content-disposition", f'attachment; filename="statement-{month.name}.csv"'),
            ("cache-control", "no-store"),
        )
        return Raw(200, headers, statement_csv(data))
