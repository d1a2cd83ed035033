"""Webhook endpoints and deliveries."""

from pydantic import Field

from sightline_client.models.base import Model, OpenEnum, Secret, Time


class WebhookEventType(OpenEnum):
    """What a message reports. Pings are sent on request only."""

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


class WebhookDisabledReason(OpenEnum):
    """Why nothing is sent to an endpoint."""

    OWNER = "OWNER"
    GONE = "GONE"
    FAILING = "FAILING"


class WebhookDeliveryState(OpenEnum):
    """State of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class Webhook(Model):
    """An endpoint that events are sent to. Without `event_types` it gets every type."""

    id: str
    url: str
    description: str
    event_types: list[WebhookEventType]
    enabled: bool
    disabled_reason: WebhookDisabledReason | None = None
    disabled_at: Time | None = None
    failing_since: Time | None = None
    previous_secret_expires_at: Time | None = None
    created_at: Time


class WebhookWithSecret(Webhook):
    """An endpoint with its signing secret, which is shown only once."""

    secret: Secret


class WebhookList(Model):
    """The endpoints, oldest first."""

    items: list[Webhook]
    next_cursor: None = None


class WebhookDelivery(Model):
    """One event for one endpoint. `event_id` is the header webhook-id of every attempt."""

    event_id: str
    event_type: WebhookEventType
    event_at: Time
    state: WebhookDeliveryState
    attempts: int
    created_at: Time
    next_attempt_at: Time | None = None
    last_attempt_at: Time | None = None
    last_status: int | None = None
    last_error: str | None = None
    delivered_at: Time | None = None


class WebhookDeliveryWithBody(WebhookDelivery):
    """One event for one endpoint, with the exact text that is sent."""

    body: str = Field(repr=False)


class WebhookDeliveryPage(Model):
    """One page of deliveries."""

    items: list[WebhookDelivery]
    next_cursor: str | None = None


class Replay(Model):
    """What a replay queued. `next_since` is set when there are more events: replay again from there."""

    count: int
    next_since: Time | None = None
