"""Which failed calls are repeated, and when. Pure: no I/O."""

from dataclasses import dataclass, replace
from typing import Final

from sightline_client.errors import (
    ApiError,
    NotReachedError,
    OutcomeUnknownError,
    RateLimitedError,
    SightlineError,
    UnavailableError,
)

IN_PROGRESS: Final = "idempotency:inProgress"
NO_OPERATOR: Final = "dispatch:noOperator"
"""Not repeated by the transport: it is an answer, and the caller decides how long to wait for an operator."""

HELD_BACK: Final = frozenset({"dispatch:abandoned", "dispatch:unstarted"})
"""Refusals (429) of a dispatch because earlier sessions of the workspace were dispatched and never started.

Not repeated by the transport: the caller decides whether to wait, for up to a minute.
"""

UNSEEN: Final = "Its device has not been seen lately, so it may film late, or not at all."
"""Said of an operator that was dispatched although the quote counted none."""

TOO_MANY_MESSAGES: Final = "session:messages"
"""Not repeated by the transport: a message such as "turn left" has no use a minute later."""


RESTART_ATTEMPTS: Final = 100
"""Attempts of a call that is repeated until the server has started again, or the time of its policy is over."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long a call is repeated. `attempts=1` repeats nothing.

    The default repeats a call to a server that is down for 8 to 16 s, about 12 s on average.
    """

    attempts: int = 8
    budget_s: float = 60.0
    """No retry starts later than this after the first attempt."""
    first_delay_s: float = 0.2
    longest_delay_s: float = 5.0

    @property
    def longest_s(self) -> float:
        """Seconds after the first attempt in which the last one begins, at most; a longer Retry-After adds to it."""
        delays = (min(self.longest_delay_s, self.first_delay_s * 2.0**number) for number in range(self.attempts - 1))
        return min(self.budget_s, sum(delays))

    @property
    def through_restarts(self) -> "RetryPolicy":
        """The same, with as many attempts as `budget_s` has room for; a policy of one attempt stays as it is."""
        return self if self.attempts == 1 else replace(self, attempts=max(self.attempts, RESTART_ATTEMPTS))

    def delay_s(self, error: SightlineError, *, attempt: int, elapsed_s: float, jitter: float) -> float | None:
        """Return the delay before the next attempt, or None if the error is final.

        Args:
            error: What the attempt raised.
            attempt: Number of the attempt, from 1.
            elapsed_s: Seconds since the first attempt began.
            jitter: Factor of the delay, from 0.5 to 1. Retry-After is kept in full.
        """
        if attempt >= self.attempts or not is_repeatable(error):
            return None
        delay = min(self.longest_delay_s, self.first_delay_s * 2 ** (attempt - 1)) * jitter
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            delay = max(delay, float(error.retry_after_s))
        return delay if elapsed_s + delay <= self.budget_s else None


NO_RETRY: Final = RetryPolicy(attempts=1)
"""Makes each call once."""


def is_repeatable(error: SightlineError) -> bool:
    """Whether a call that failed like this may be repeated without a second effect.

    429, 503 and a failed connection had no effect. A lost answer is repeatable because a change carries an
    Idempotency-Key, and a read has no effect; `OutcomeUnknownError` of a call without a key is raised as it is.
    """
    match error:
        case NotReachedError(is_final=is_final):
            return not is_final
        case RateLimitedError(detail=detail):
            return detail != TOO_MANY_MESSAGES and detail not in HELD_BACK
        case UnavailableError(detail=detail):
            return detail != NO_OPERATOR
        case OutcomeUnknownError(is_repeatable=repeatable):
            return repeatable
        case ApiError(detail=detail):
            return detail == IN_PROGRESS
        case _:
            return False
