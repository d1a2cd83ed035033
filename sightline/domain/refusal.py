"""Why a call is refused: a value that state machines return and the HTTP edge maps to a response."""

from enum import StrEnum
from typing import final

from sightline.domain.value import Value


class Code(StrEnum):
    """The closed table of machine-readable error codes of the interface."""

    INVALID_INPUT = "INVALID_INPUT"
    NOT_AUTHENTICATED = "NOT_AUTHENTICATED"
    REVOKED_API_KEY = "REVOKED_API_KEY"
    INSUFFICIENT_CREDIT = "INSUFFICIENT_CREDIT"
    PAYMENT_REQUIRED = "PAYMENT_REQUIRED"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    NOT_OPERATOR = "NOT_OPERATOR"
    NOT_FOUND = "NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    FRAME_NOT_AVAILABLE = "FRAME_NOT_AVAILABLE"
    INVALID_STATE = "INVALID_STATE"
    CONFLICT = "CONFLICT"
    RATE_LIMITED = "RATE_LIMITED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    AUTHZ_ERROR = "AUTHZ_ERROR"
    VIDEO_ERROR = "VIDEO_ERROR"
    UNAVAILABLE = "UNAVAILABLE"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"


@final
class Refusal(Value):
    """One refusal. `detail` is the public label `area:what`; `message` replaces the default text of the code."""

    code: Code
    detail: str | None = None
    message: str | None = None
    retry_after_s: int | None = None
    state: str | None = None
    """The present state, where the state does not allow the call."""
    required_scope: str | None = None
    """The scope that the API key lacks; alternatives are separated by ` or `."""
    last_sequence: int | None = None
    """The last accepted heartbeat sequence, where the sequence of a heartbeat is too low."""
    left_micro: int | None = None
    """Micro-USDC that a limit still allows, where a limit is passed."""
