"""What an error of the database means to Sightline, decided by its SQLSTATE.

No asyncpg error leaves `sightline.storage`. A unit of work raises `StoreUnavailableError` when nothing was applied and
the same call may succeed later, `OutcomeUnknownError` when the commit is in doubt, and `StatementRefusedError` when the
statement or its arguments are wrong, which is a bug of ours and does not go away by waiting.

Source: PostgreSQL manual, appendix A (error codes).
"""

import enum
from typing import Final, final

import asyncpg

from sightline.domain.errors import DependencyRefusedError

READ_ONLY: Final = "25006"
CHECK_VIOLATION: Final = "23514"
INSUFFICIENT_PRIVILEGE: Final = "42501"
OUTCOME_UNKNOWN: Final = frozenset({"40003", "08007"})

_BUG_CLASSES: Final = frozenset(
    {
        *("03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10"),
        *("20", "21", "22", "23", "24", "25", "27", "2B", "2D", "2F"),
        *("34", "38", "39", "3B", "3F", "42", "44", "54", "P0", "SL"),
    }
)
"""Classes that say that the statement, its arguments or its place are wrong (data, syntax, constraint, cursor, state of
the transaction, program limit, PL/pgSQL), and `SL`, which our own SQL functions raise."""

_UNAVAILABLE_IN_BUG_CLASSES: Final = frozenset({READ_ONLY, INSUFFICIENT_PRIVILEGE})
"""A primary that was made read-only or replaced, and a grant that was revoked: an operator repairs both."""

_LOST_CODES: Final = frozenset({*OUTCOME_UNKNOWN, "25P03", "25P04"})
"""25P03 and 25P04: the server ended the connection because the transaction was idle or open for too long."""

_STALE_CONNECTION_CODES: Final = frozenset({READ_ONLY, "26000"})
"""A new connection may find the new primary, or the prepared statement that a pooler dropped."""


class SqlstateMeaning(enum.Enum):
    """What the failure of a unit of work means."""

    UNDONE = "undone"
    """The server undid the work because of concurrency or a changed schema: run it again."""
    LOST = "lost"
    """The connection is gone or of no use. The work was undone, unless it was being committed."""
    UNAVAILABLE = "unavailable"
    """The server undid the work and cannot do it now."""
    BUG = "bug"
    """The server or asyncpg refused the statement: our bug."""
    OTHER = "other"
    """Not the database's: raised by the unit itself."""


@final
class StatementRefusedError(DependencyRefusedError):
    """The database refused a statement because it, or one of its arguments, is wrong. Nothing was applied."""

    def __init__(self, message: str, *, sqlstate: str | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.reason = reason
        """The server's own text. It can quote stored values: not to be logged."""

    @classmethod
    def of(cls, error: BaseException) -> "StatementRefusedError":
        """Make it of what asyncpg raised."""
        return cls(
            f"the database refused a statement: {describe(error)}",
            sqlstate=getattr(error, "sqlstate", None),
            reason=str(error.args[0]) if error.args else "",
        )


def describe(error: BaseException) -> str:
    """The kind of an error and its SQLSTATE. Without the server's text, which can quote stored values."""
    sqlstate = getattr(error, "sqlstate", None)
    return type(error).__name__ if sqlstate is None else f"{type(error).__name__} (SQLSTATE {sqlstate})"


def meaning_of(error: BaseException, *, is_connected: bool) -> SqlstateMeaning:
    """Classify what a unit of work raised.

    Args:
        is_connected: Whether its connection is still open.
    """
    if isinstance(error, asyncpg.PostgresError):
        return _meaning_of_sqlstate(error)
    if isinstance(error, OSError | asyncpg.InternalClientError):
        return SqlstateMeaning.LOST
    if isinstance(error, asyncpg.InterfaceError):
        return SqlstateMeaning.BUG if is_connected else SqlstateMeaning.LOST
    return SqlstateMeaning.OTHER if is_connected else SqlstateMeaning.LOST


def needs_new_connection(error: BaseException) -> bool:
    """Whether the connection is to be closed although the server keeps it open."""
    return isinstance(error, asyncpg.InternalClientError) or (
        isinstance(error, asyncpg.PostgresError) and error.sqlstate in _STALE_CONNECTION_CODES
    )


def _meaning_of_sqlstate(error: asyncpg.PostgresError) -> SqlstateMeaning:
    code = str(error.sqlstate)
    group = code[:2]
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return SqlstateMeaning.UNDONE
    if getattr(error, "severity_en", None) in {"FATAL", "PANIC"} or code in _LOST_CODES:
        return SqlstateMeaning.LOST
    if group == "40":
        return SqlstateMeaning.UNDONE
    if group == "08" or code.startswith("57P"):
        return SqlstateMeaning.LOST
    if group in _BUG_CLASSES and code not in _UNAVAILABLE_IN_BUG_CLASSES:
        return SqlstateMeaning.BUG
    return SqlstateMeaning.UNAVAILABLE
