"""The statement of a workspace for one month in UTC, and the invoice of a consumer."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Self, final

from sightline.domain.units import HOUR_MS
from sightline.domain.value import Value

CLOSED_AFTER_MS: Final = HOUR_MS
"""A month is closed when the chain was read so long after its end: clocks differ, and blocks come late."""


@final
class Month(Value, order=True):
    """A calendar month in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, at_ms: int) -> Self:
        """Return the month of an instant."""
        at = datetime.fromtimestamp(at_ms / 1_000, UTC)
        return cls(at.year, at.month)

    @property
    def name(self) -> str:
        """The month as YYYY-MM."""
        return f"{self.year:04}-{self.number:02}"

    @property
    def first_ms(self) -> int:
        """The month's first instant."""
        return int(datetime(self.year, self.number, 1, tzinfo=UTC).timestamp()) * 1_000

    @property
    def end_ms(self) -> int:
        """The first instant after the month."""
        return type(self)(self.year + self.number // 12, self.number % 12 + 1).first_ms


@final
class SessionAmounts(Value, kw_only=True):
    """What the journal's entries of one month say of one session, in micro-USDC.

    `returned` went from escrow back to the payer, `refunded` was paid by the service. `credited` is the part of
    `earned` that the payee's wallet refused, and that it can withdraw from the contract.
    """

    session_id: str
    is_consumer: bool
    is_operator: bool
    settled_at_ms: int
    """The time of the last block that settled the session or returned a rest of it, until the end of the month. Of a
    session without one: of its last refund."""
    tx_hash: str
    charged: int = 0
    returned: int = 0
    refunded: int = 0
    earned: int = 0
    fee: int = 0
    credited: int = 0


@final
class WorkspaceStatement(Value, kw_only=True):
    """The sessions of a workspace with entries in a month, by time, and what waits at its end."""

    workspace_id: str
    month: Month
    is_closed: bool
    """Whether nothing can be added any more."""
    sessions: tuple[SessionAmounts, ...]
    waiting: int
    """What the workspace earns for sessions that ended before the month's end and were not settled then."""

    def sum_of(self, name: str, *, is_operator: bool) -> int:
        """Add up an amount over the sessions of one side."""
        return sum(getattr(each, name) for each in self.side(is_operator=is_operator))

    def side(self, *, is_operator: bool) -> Iterable[SessionAmounts]:
        """Return the sessions in which the workspace was the operator, or the consumer."""
        return (each for each in self.sessions if (each.is_operator if is_operator else each.is_consumer))


@final
class Invoice(Value, kw_only=True):
    """An invoice to a consumer about a closed month. It never changes; numbers of a year have no gaps."""

    year: int
    number: int
    workspace_id: str
    month: str
    issued_at_ms: int
    sessions: int
    charged: int
    refunded: int

    @property
    def name(self) -> str:
        """The number as it is printed. All money of this service is test money."""
        return f"TEST-{self.year}-{self.number:06}"


def invoice_due(statement: WorkspaceStatement) -> bool:
    """Return whether a statement is one for which an invoice is written."""
    return statement.is_closed and statement.sum_of("charged", is_operator=False) > 0
