"""Statements of a workspace by month, as JSON, CSV or PDF."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, final

import trio

from sightline.domain.access import Operation
from sightline.domain.books.statement import invoice_due
from sightline.domain.refusal import Code
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw, Reply
from sightline.http.pipeline.routes import Param, Route
from sightline.http.resources.money.usage import CSV, chosen_format
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.statements import MonthStatement, StatementQuery, month_of, statement_csv, statement_json
from sightline.http.services import Services

PDF: Final = "application/pdf"


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
        "closed, the first call writes the invoice of its charges. `format` or `Accept` choose another form than JSON, "
        "without envelope: the sessions as CSV, or statement and invoice as PDF with the first 1,000 sessions.",
        operation=Operation.READ_WALLET,
        rate=RateClass.LIST,
        params={"id": Param.UUID, "month": Param.TEXT},
        query=StatementQuery,
        output=MonthStatement,
        other_media_types=(CSV, PDF),
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
        form = chosen_format(query.format, call.headers.get("accept"), {"csv": CSV, "pdf": PDF})
        if form == "json":
            return Reply(data)
        content_type = PDF if form == "pdf" else "text/csv; charset=utf-8; header=present"
        headers = (
            ("content-type", content_type),
            ("content-disposition", f'attachment; filename="sightline-statement-{month.name}.{form}"'),
            ("cache-control", "no-store"),
        )
        return Raw(200, headers, statement_csv(data) if form == "csv" else await self._printed(workspace_id, data))

    async def _printed(self, workspace_id: str, data: Mapping[str, Any]) -> bytes:
        from sightline.http.resources.money.statement_pdf import statement_pdf

        workspace = (await self._services.broker.reads.read_workspace(workspace_id)).value
        holder = (
            f"{workspace.name} ({workspace.slug})",
            f"Workspace {workspace.id}",
            f"Wallet {workspace.wallet_address}",
        )
        issuer = tuple(line.strip() for line in self._services.options.invoice_issuer.split("|"))
        # Beside the loop: 2,000 sessions take 80 ms.
        return await trio.to_thread.run_sync(partial(statement_pdf, data, issuer=issuer, holder=holder))
