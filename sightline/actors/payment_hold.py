"""Holds new sessions while the chain has payments that the database does not know."""

from collections.abc import Awaitable, Callable
from typing import Final, final

import structlog

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.settlement import NO_PAYMENTS, UnknownPayments

RETRY_AFTER_S: Final = 60
"""A person has to act."""

log = structlog.get_logger("sightline")


@final
class PaymentHold:
    """Says whether a session that may be charged may begin. Until the first `load` it may.

    A database that is older than the chain also lacks sessions, holds and limits of that time. Sessions that have begun
    go on and are settled: the contract takes each session once.
    """

    def __init__(self) -> None:
        self.unknown = NO_PAYMENTS
        """The payments that nobody has adopted, as of the last `load`."""

    async def load(self, read: Callable[[], Awaitable[UnknownPayments]]) -> None:
        """Read what is unknown now, and log when there is more than before, or nothing any more."""
        before, self.unknown = self.unknown, await read()
        if self.unknown.count > before.count:
            log.error(
                "unknown_payments_found",
                payments=self.unknown.count,
                amount_micro=self.unknown.amount_micro,
                advice="the database is older than the chain: run `sightline reconcile`",
            )
        elif before.count and not self.unknown.count:
            log.info("unknown_payments_adopted", payments=before.count)

    def require_none(self) -> None:
        """Refuse to begin or continue a session that is not LIVE yet.

        Raises:
            RefusedError: UNAVAILABLE, while there are unknown payments.
        """
        if self.unknown.count:
            message = (
                f"New sessions are held: {self.unknown.count} payments on the chain are not in the database of this "
                "service, until an administrator has adopted them. Nothing was charged"
            )
            raise RefusedError(Refusal(Code.UNAVAILABLE, "payments:unknown", message, retry_after_s=RETRY_AFTER_S))
