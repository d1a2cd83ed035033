"""Rules of the customers' webhooks: event types, the retry schedule, and when an endpoint is disabled."""

from enum import StrEnum
from typing import Final

from sightline.domain.units import DAY_MS, SECOND_MS

ENDPOINTS_MAX: Final = 20
"""Endpoints of one workspace."""
FAILING_MS_MAX: Final = 5 * DAY_MS
"""An endpoint that has failed for this long, without a delivery in between, is disabled."""
ROTATION_MS: Final = DAY_MS
"""After a rotation, messages are also signed with the secret that it replaced for this long."""
EARLIER_SECRETS_MAX: Final = 3
"""Secrets before the present one that sign at the same time. A rotation that would make more is refused."""
SENT_AT_ONCE_MAX: Final = 2
"""Messages in flight to one endpoint."""
WORKSPACE_AT_ONCE_MAX: Final = 8
"""Deliveries of one workspace in flight, so that a few workspaces cannot take all places of the service."""
SLOW_MS: Final = 2_000
"""An endpoint whose last answer took longer shares places with the failing ones."""

_MINUTE: Final = 60
_HOUR: Final = 3_600
RETRY_SECONDS: Final = (
    5, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR
)  # fmt: skip
"""Wait after each failed attempt. After one attempt more than this has waits, the delivery has failed."""
JITTER: Final = 0.2
"""A wait is up to this fraction longer, so that messages that failed together are not sent again together."""
RETRY_AFTER_SECONDS_MAX: Final = 24 * _HOUR
"""A longer Retry-After is shortened to this."""


class WebhookEventType(StrEnum):
    """What an endpoint can be told."""

    SESSION_REQUESTED = "session.requested"
    SESSION_ASSIGNED = "session.assigned"
    SESSION_LIVE = "session.live"
    SESSION_PAUSED = "session.paused"
    SESSION_RESUMED = "session.resumed"
    SESSION_EXTENDED = "session.extended"
    SESSION_MESSAGE = "session.message"
    SESSION_ENDED = "session.ended"
    SESSION_CANCELLED = "session.cancelled"
    SESSION_EXPIRED = "session.expired"
    SETTLEMENT_CONFIRMED = "settlement.confirmed"
    WALLET_DEPOSIT = "wallet.deposit"
    WORKSPACE_AVAILABILITY = "workspace.availability"
    PING = "webhook.ping"
    """Sent only on request, and whatever the endpoint's types are."""


class DisabledReason(StrEnum):
    """Why nothing is sent to an endpoint."""

    OWNER = "OWNER"
    """By a call."""
    GONE = "GONE"
    """The endpoint answered 410."""
    FAILING = "FAILING"
    """It failed for `FAILING_MS_MAX`."""


class DeliveryState(StrEnum):
    """State of one message for one endpoint."""

    PENDING = "PENDING"
    """Waiting for its first or next attempt."""
    DELIVERED = "DELIVERED"
    """The endpoint answered 2xx."""
    FAILED = "FAILED"
    """Every attempt failed."""


def retry_in_ms(
    step: int, jitter: float, retry_after_s: int | None, schedule: tuple[int, ...] = RETRY_SECONDS
) -> int | None:
    """Return the wait before the next attempt, or None if there is none.

    Args:
        step: Failed attempts since the message was queued, this one not included.
        jitter: Random number in [0, 1).
        retry_after_s: The endpoint's Retry-After; the wait is never shorter.
        schedule: Seconds to wait after each failed attempt.
    """
    if step >= len(schedule):
        return None
    wait_ms = round(schedule[step] * SECOND_MS * (1 + JITTER * jitter))
    return max(wait_ms, min(retry_after_s or 0, RETRY_AFTER_SECONDS_MAX) * SECOND_MS)
