"""Usage of a workspace by day."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from sightline.http.schemas.base import Money, Output, Query, labelled
from sightline.ports.ledger import UsageDay, UsageSide

DAYS_MAX: Final = 366
CSV_COLUMNS: Final = ("date", "sessions", "cleanSeconds", "amountMicroUsdc", "platformFeeMicroUsdc")
_EPOCH: Final = date(1970, 1, 1)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _day(value: Any) -> Any:
    """Read a calendar date as days since the epoch."""
    try:
        if isinstance(value, str) and _DATE.fullmatch(value):
            return (date.fromisoformat(value) - _EPOCH).days
    except ValueError:
        pass
    raise PydanticCustomError("date", "must be a date YYYY-MM-DD")


_AS_DATE: Final = WithJsonSchema({"type": "string", "format": "date", "examples": ["2026-11-20"]})
Day: TypeAlias = Annotated[int, Field(ge=0), BeforeValidator(_day), _AS_DATE]
"""A calendar date in UTC, read into days since the epoch."""


class UsageQuery(Query):
    """Which side and which days; both ends are inclusive."""

    AREA = "usage"
    LABELS: ClassVar[Mapping[str, str]] = {"from": "usage:from", "to": "usage:to"}

    side: Literal["consumer", "operator"]
    from_: Day = Field(alias="from")
    to: Day
    bucket: Literal["day"] = "day"
    format: Literal["json", "csv"] | None = Field(default=None, description="Default: by the Accept header, else json")

    @model_validator(mode="after")
    def _is_bounded(self) -> "UsageQuery":
        if not 0 <= self.to - self.from_ < DAYS_MAX:
            raise labelled("usage:range", f"to must be from 0 to {DAYS_MAX - 1} days after from")
        return self


class UsageTotal(Output):
    """Ended sessions and their money."""

    sessions: int
    clean_seconds: int
    amount_micro_usdc: Money = Field(
        description="consumer: what was charged, fee included; operator: what was earned, fee deducted"
    )
    platform_fee_micro_usdc: Money


class UsageBucket(UsageTotal):
    """The sessions that ended on one day in UTC."""

    date: str = Field(json_schema_extra={"format": "date"})


class Usage(Output):
    """Usage by day, every day of the range, oldest first."""

    side: Literal["consumer", "operator"]
    items: list[UsageBucket]
    next_cursor: None
    total: UsageTotal


def usage_json(query: UsageQuery, days: Sequence[UsageDay]) -> dict[str, object]:
    """Present the days of a query as `Usage`."""
    by_day, side = {each.day: each for each in days}, UsageSide(query.side)
    every = [by_day.get(day, UsageDay(day, 0, 0, 0, 0)) for day in range(query.from_, query.to + 1)]
    total = UsageDay(
        query.from_,
        sum(each.sessions for each in every),
        sum(each.clean_seconds for each in every),
        sum(each.to_amount for each in every),
        sum(each.fee_amount for each in every),
    )
    return {
        "side": side,
        "items": [{"date": (_EPOCH + timedelta(each.day)).isoformat(), **_amounts(each, side)} for each in every],
        "nextCursor": None,
        "total": _amounts(total, side),
    }


def _amounts(day: UsageDay, side: UsageSide) -> dict[str, object]:
    return {
        "sessions": day.sessions,
        "cleanSeconds": day.clean_seconds,
        "amountMicroUsdc": str(day.to_amount + (day.fee_amount if side is UsageSide.CONSUMER else 0)),
        "platformFeeMicroUsdc": str(day.fee_amount),
    }


def usage_csv(items: Sequence[Mapping[str, object]]) -> bytes:
    """Present the items of `Usage` as CSV (RFC 4180)."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS)
    writer.writeheader()
    writer.writerows(items)
    return text.getvalue().encode()
