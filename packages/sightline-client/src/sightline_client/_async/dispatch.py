"""Waits until an operator is dispatched to a session."""

import logging
from typing import Final

from sightline_client._async.resources import AsyncSessions
from sightline_client.errors import InvalidStateError, NoOperatorError, RateLimitedError, UnavailableError
from sightline_client.models import Quote, Session
from sightline_client.retry import HELD_BACK, NO_OPERATOR, UNSEEN
from sightline_client.runtime import async_sleep, monotonic_s

LOG: Final = logging.getLogger("sightline_client")


async def dispatch_within(
    sessions: AsyncSessions,
    session: Session,
    place: tuple[float, float],
    wait_s: float,
    quote: Quote | None,
    *,
    says_unseen: bool,
) -> Session:
    """Have an operator dispatched, and wait for one if none is available. Returns the session.

    A session that an operator accepted meanwhile, or that is over, is returned as it was given.

    Args:
        place: Latitude and longitude, for messages.
        wait_s: Seconds to wait for an operator; 0 asks once.
        quote: The price that was agreed; it says whether an operator was online.
        says_unseen: Warn if an operator is dispatched at once whose device the quote did not count.

    Raises:
        NoOperatorError: No operator was available in time.
    """
    deadline_s, is_said = monotonic_s() + wait_s, False
    while True:
        try:
            session = await sessions.dispatch(session.id)
            # The quote counts operators whose device sent a heartbeat within a minute. It says nothing about an
            # operator who came online after it.
            counted = 1 if quote is None else quote.available_operators
            if says_unseen and not is_said and counted == 0:
                LOG.warning("Session %s has an operator. %s Waiting until it films.", session.id, UNSEEN)
            else:
                LOG.info("Session %s has an operator. Waiting until its device films.", session.id)
            return session
        except InvalidStateError:  # an operator accepted it, or it is over
            return session
        except RateLimitedError as error:
            delay_s = float(error.retry_after_s or 1)
            if error.detail not in HELD_BACK or delay_s > deadline_s - monotonic_s():
                raise
            LOG.warning("%s Waiting for that.", error)
            await async_sleep(delay_s)
            continue
        except UnavailableError as error:
            if error.detail != NO_OPERATOR:
                raise
            remaining_s = deadline_s - monotonic_s()
            own = None if quote is None else quote.own_session_id
            if remaining_s <= 0:
                raise NoOperatorError(*place, wait_s, own) from error
            # Retry-After may exceed the time that is left: the last attempt is made at the deadline.
            delay_s = min(float(error.retry_after_s or 1), remaining_s)
        if not is_said:
            # A warning, because a program that sets up no logging prints only those.
            LOG.warning(
                "No operator is available at %s, %s now%s. Waiting for one, at most %g s.",
                *place, "" if own is None else f": your session {own} has it", wait_s,
            )  # fmt: skip
            is_said = True
        await async_sleep(delay_s)
