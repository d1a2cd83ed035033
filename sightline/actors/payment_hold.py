"""Holds new sessions while the chain has payments that the database does not know."""

from collections.abc import Awaitable, Callable
from typing import Final, final

import structlog
import trio

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.settlement import NO_PAYMENTS, UnknownPayments

RETRY_AFTER_S: Final = 60
"""A person has to act."""
READING_POLL_S: Final = 0.05
READING_POLL_MAX_S: Final = 1.0

log = structlog.get_logger("sightline")


@final
class PaymentHold:
    """Says whether a session that may be charged may begin.

    A database that is older than the chain also lacks sessions, holds and limits of that time. Sessions that have begun
    go on and are settled: the contract takes each session once.
    """

    def __init__(self, *, is_chain_read: bool = True) -> None:
        self.unknown = NO_PAYMENTS
        """The payments that nobody has adopted, as of the last `load`."""
        self._was_read = trio.Event()
        self.is_chain_read = is_chain_read
        """Whether a watcher has read the chain up to its head since the start. Before, `unknown` may lack payments."""

    async def await_reading(
        self, is_read: Callable[[], Awaitable[bool]], read: Callable[[], Awaitable[UnknownPayments]]
    ) -> None:
        """Ask until the chain has been read, and load what is unknown then. Returns at once if it was read before.

        Raises:
            SightlineError: The database did not answer.
        """
        if self.is_chain_read:
            return
        wait_s = READING_POLL_S
        while not await is_read():
            await trio.sleep(wait_s)
            wait_s = min(READING_POLL_MAX_S, 1.5 * wait_s)
        await self.load(read)
        self.is_chain_read = True
        self._was_read.set()

    async def wait_read(self) -> None:
        """Return when `await_reading` has succeeded."""
        if not self.is_chain_read:
            await self._was_read.wait()

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
            RefusedError: UNAVAILABLE, while there are unknown payments or none were read.
        """
        if not self.is_chain_read:
            message = "New sessions are held until the chain has been read since the start. Nothing was charged"
            raise RefusedError(Refusal(Code.UNAVAILABLE, "payments:unread", message, retry_after_s=1))
        if self.unknown.count:
            message = (
                f"New sessions are held: {self.unknown.count} payments on the chain are not in the database of this "
                "service, until an administrator has adopted them. Nothing was charged"
            )
            raise RefusedError(Refusal(Code.UNAVAILABLE, "payments:unknown", message, retry_after_s=RETRY_AFTER_S))
