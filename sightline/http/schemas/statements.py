"""Statements of a workspace by month, with the invoice."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sightline.domain.books.statement import Invoice, Month, SessionAmounts, WorkspaceStatement
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.schemas.base import Instant, Money, Output, Query, iso

SESSIONS_MAX: Final = 10_000
_MONTH: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])", re.ASCII)
CSV_COLUMNS: Final = (
    "side", "sessionId", "settledAt", "chargedMicroUsdc", "platformFeeMicroUsdc", "returnedMicroUsdc",
    "refundedMicroUsdc", "earnedMicroUsdc", "creditedMicroUsdc", "txHash",
)  # fmt: skip


class StatementQuery(Query):
    """The form of a statement."""

    AREA = "statements"

    format: Literal["json", "csv", "pdf"] | None = Field(
        default=None, description="Default: by the Accept header, else json"
    )


class ConsumerAmounts(Output):
    """What sessions cost."""

    charged_micro_usdc: Money = Field(description="Platform fee included")
    platform_fee_micro_usdc: Money = Field(description="The platform's part of the charge")
    returned_micro_usdc: Money = Field(description="Escrow: what of the held amount went back to the payer")
    refunded_micro_usdc: Money


class OperatorAmounts(Output):
    """What sessions earned."""

    earned_micro_usdc: Money
    platform_fee_micro_usdc: Money
    credited_micro_usdc: Money = Field(
        description="What of it the wallet refused: it waits in the contract until `withdraw`"
    )


class ConsumerSession(ConsumerAmounts):
    """A session that the workspace paid."""

    session_id: str
    settled_at: Instant
    tx_hash: str


class OperatorSession(OperatorAmounts):
    """A session that the workspace filmed."""

    session_id: str
    settled_at: Instant
    tx_hash: str


class ConsumerTotal(ConsumerAmounts):
    """The sum of all sessions, also of those that are not listed."""

    sessions: int


class OperatorTotal(OperatorAmounts):
    """The sum of all sessions, also of those that are not listed."""

    sessions: int
    paid_micro_usdc: Money = Field(description="Earned and not credited: sent to the wallet")
    waiting_micro_usdc: Money = Field(description="Sessions that ended before the end of the month, settled later")


class StatementInvoice(Output):
    """The invoice of a closed month. It never changes."""

    number: str = Field(json_schema_extra={"examples": ["TEST-2026-000041"]})
    issued_at: Instant
    sessions: int
    charged_micro_usdc: Money
    refunded_micro_usdc: Money


class ConsumerPart(Output):
    """The consumer's side: at most 10,000 sessions are listed."""

    items: list[ConsumerSession]
    total: ConsumerTotal
    invoice: Annotated[StatementInvoice | None, Field(description="null while the month is open, or without charges")]


class OperatorPart(Output):
    """The operator's side: at most 10,000 sessions are listed."""

    items: list[OperatorSession]
    total: OperatorTotal


class MonthStatement(Output):
    """What the books have of a workspace's sessions in a month, by the time of the block."""

    workspace_id: str
    month: str = Field(json_schema_extra={"examples": ["2026-11"]})
    environment: Literal["TEST"]
    is_closed: bool = Field(description="Whether nothing can be added: the month is over, and all its blocks are final")
    consumer: ConsumerPart
    operator: OperatorPart


def month_of(text: str, now_ms: int) -> Month:
    """Read YYYY-MM.

    Raises:
        RefusedError: It is not a month, or it has not begun.
    """
    found = _MONTH.fullmatch(text)
    if found is None or (year := int(found[1])) < 1970:
        message = f"{text[:20]!r} is not a month: use YYYY-MM"
        raise RefusedError(Refusal(Code.INVALID_INPUT, "statements:month", message))
    month = Month(year, int(found[2]))
    if month > Month.of(now_ms):
        message = f"The month {month.name} has not begun"
        raise RefusedError(Refusal(Code.INVALID_INPUT, "statements:month", message))
    return month


def statement_json(statement: WorkspaceStatement, invoice: Invoice | None) -> dict[str, Any]:
    """Present a statement as `MonthStatement`."""
    paid, filmed = ([*statement.side(is_operator=side)] for side in (False, True))
    consumer, operator = _sum(paid), _sum(filmed)
    return {
        "workspaceId": statement.workspace_id,
        "month": statement.month.name,
        "environment": "TEST",
        "isClosed": statement.is_closed,
        "consumer": {
            "items": [_place(each) | _consumer(each) for each in paid[:SESSIONS_MAX]],
            "total": {"sessions": len(paid), **_consumer(consumer)},
            "invoice": None if invoice is None else _invoice_json(invoice),
        },
        "operator": {
            "items": [_place(each) | _operator(each) for each in filmed[:SESSIONS_MAX]],
            "total": {
                "sessions": len(filmed),
                **_operator(operator),
                "paidMicroUsdc": str(operator.earned - operator.credited),
                "waitingMicroUsdc": str(statement.waiting),
            },
        },
    }


def _sum(sessions: Sequence[SessionAmounts]) -> SessionAmounts:
    names = ("charged", "returned", "refunded", "earned", "fee", "credited")
    sums = {name: sum(getattr(each, name) for each in sessions) for name in names}
    return SessionAmounts(session_id="", is_consumer=False, is_operator=False, settled_at_ms=0, tx_hash="", **sums)


def _place(each: SessionAmounts) -> dict[str, object]:
    return {"sessionId": each.session_id, "settledAt": iso(each.settled_at_ms), "txHash": each.tx_hash}


def _consumer(each: SessionAmounts) -> dict[str, object]:
    return {
        "chargedMicroUsdc": str(each.charged),
        "platformFeeMicroUsdc": str(each.fee),
        "returnedMicroUsdc": str(each.returned),
        "refundedMicroUsdc": str(each.refunded),
    }


def _operator(each: SessionAmounts) -> dict[str, object]:
    return {
        "earnedMicroUsdc": str(each.earned),
        "platformFeeMicroUsdc": str(each.fee),
        "creditedMicroUsdc": str(each.credited),
    }


def _invoice_json(invoice: Invoice) -> dict[str, object]:
    return {
        "number": invoice.name,
        "issuedAt": iso(invoice.issued_at_ms),
        "sessions": invoice.sessions,
        "chargedMicroUsdc": str(invoice.charged),
        "refundedMicroUsdc": str(invoice.refunded),
    }


def statement_csv(data: Mapping[str, Any]) -> bytes:
    """Present the sessions of `MonthStatement` as CSV (RFC 4180), a row for each side of a session."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS)
    writer.writeheader()
    for side in ("consumer", "operator"):
        writer.writerows({"side": side, **item} for item in data[side]["items"])
    return text.getvalue().encode()
