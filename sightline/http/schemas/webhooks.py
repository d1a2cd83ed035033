"""Webhooks: endpoints, deliveries, and the bodies that are sent. Push subscriptions of browsers."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, assert_never

import orjson
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session, SessionLimits
from sightline.domain.session.status import session_status
from sightline.domain.webhooks import ROTATION_MS, WebhookEventType
from sightline.http.cursors import DELIVERY_CURSOR
from sightline.http.schemas.base import (
    INTEGER_TEXT,
    LINE_PATTERN,
    Input,
    Instant,
    InstantMs,
    Output,
    Query,
    Uuid,
    iso,
    iso_or_none,
    labelled,
)
from sightline.http.schemas.money import settlement_json, wallet_event_json
from sightline.http.schemas.sessions import session_json
from sightline.http.schemas.workspaces import are_unique, workspace_json
from sightline.ports.ledger import LedgerRow, SettlementRecord
from sightline.ports.webhooks import OutboxRow, ReplayedEvents, WebhookEndpoint
from sightline.ports.webhooks import PushSubscription as DomainSubscription
from sightline.ports.webhooks import WebhookDelivery as DomainDelivery

EventTypeName: TypeAlias = Literal[
    "session.requested",
    "session.assigned",
    "session.live",
    "session.paused",
    "session.resumed",
    "session.extended",
    "session.message",
    "session.ended",
    "session.cancelled",
    "session.expired",
    "settlement.confirmed",
    "wallet.deposit",
    "workspace.availability",
]
DeliveryStateName: TypeAlias = Literal["PENDING", "DELIVERED", "FAILED"]
DisabledReasonName: TypeAlias = Literal["OWNER", "GONE", "FAILING"]
EndpointUrl: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=2_048),
    Field(json_schema_extra={"examples": ["https://example.com/sightline"]}),
]
Description: TypeAlias = Annotated[str, StringConstraints(max_length=200, pattern=LINE_PATTERN)]
EventTypes: TypeAlias = Annotated[
    list[EventTypeName],
    Field(max_length=13, json_schema_extra={"uniqueItems": True, "examples": [["session.live", "session.ended"]]}),
    AfterValidator(are_unique),
]


_NAMES_ELSEWHERE: Final = dict.fromkeys(("events", "types", "enabledEvents"), "eventTypes")


class CreateWebhookBody(Input):
    """A new endpoint."""

    AREA = "webhook"
    REFUSES_MISSPELT = True
    NAMES_ELSEWHERE: ClassVar[Mapping[str, str]] = _NAMES_ELSEWHERE

    url: EndpointUrl = Field(description="https; must not resolve to a private address")
    description: Description = ""
    event_types: EventTypes = Field(default_factory=list, description="Empty: every type")


class PatchWebhookBody(Input):
    """What to change; at least one field."""

    AREA = "webhook"
    REFUSES_NULL = True
    REFUSES_MISSPELT = True
    NAMES_ELSEWHERE: ClassVar[Mapping[str, str]] = _NAMES_ELSEWHERE
    model_config: ClassVar = {"json_schema_extra": {"minProperties": 1}}

    url: EndpointUrl | None = None
    description: Description | None = None
    event_types: EventTypes | None = Field(default=None, description="Empty: every type")
    enabled: bool | None = Field(default=None, description="true also ends a failure of the endpoint")

    @model_validator(mode="after")
    def _says_something(self) -> "PatchWebhookBody":
        if not self.model_fields_set:
            raise labelled("webhook:empty", "name at least one field to change")
        return self


class ReplayBody(Input):
    """Which events to send again."""

    AREA = "webhook"
    REFUSES_MISSPELT = True

    since: InstantMs = Field(description="Events that happened at or after this instant; they are kept for 30 days")


class DeliveriesQuery(Query):
    """Which deliveries, newest first."""

    AREA = "webhook"
    LABELS: ClassVar[Mapping[str, str]] = {"limit": "pagination:limit", "cursor": "pagination:cursor"}

    state: DeliveryStateName | None = None
    limit: Annotated[int, Field(ge=1, le=100), INTEGER_TEXT] = 20
    cursor: str | None = Field(default=None, pattern=DELIVERY_CURSOR, description="nextCursor of the page before")


class PushKeys(Input):
    """Keys of a browser's PushSubscription."""

    AREA = "push"

    p256dh: str = Field(alias="p256dh", max_length=100, description="Public key of the browser, in base64url")
    auth: str = Field(max_length=40, description="Authentication secret: 16 bytes in base64url")


class CreatePushBody(Input):
    """A browser's PushSubscription, as its `toJSON()` gives it."""

    AREA = "push"

    endpoint: EndpointUrl = Field(description="https; must not resolve to a private address")
    keys: PushKeys


class PushSubscription(Output):
    """A browser that is told of jobs. Its URL and keys are secrets and are not shown."""

    id: Uuid
    renewed_at: Instant = Field(description="When it was last sent; one that is not sent again for 90 days is deleted")


class PushSubscriptionList(Output):
    """The workspace's subscriptions."""

    items: list[PushSubscription]
    next_cursor: None
    server_key: str = Field(description="`applicationServerKey` for PushManager.subscribe, in base64url")


class Webhook(Output):
    """An endpoint that events are sent to."""

    id: Uuid
    url: str
    description: str
    event_types: list[EventTypeName] = Field(description="Empty: every type")
    enabled: bool
    disabled_reason: DisabledReasonName | None = Field(
        description="OWNER: by a call. GONE: it answered 410. FAILING: it failed for 5 days"
    )
    disabled_at: Instant | None
    failing_since: Instant | None = Field(description="First failed attempt since the last delivered one")
    previous_secret_expires_at: Instant | None = Field(
        description="Until then messages are also signed with the secret from before the last rotation. One from "
        "before an earlier rotation signs until 24 hours after that rotation"
    )
    created_at: Instant


class WebhookWithSecret(Webhook):
    """An endpoint with its signing secret."""

    secret: str = Field(description="Signing secret (Standard Webhooks). Shown only here")


class WebhookList(Output):
    """The workspace's endpoints, oldest first."""

    items: list[Webhook]
    next_cursor: None


class WebhookDelivery(Output):
    """One event for one endpoint."""

    event_id: Uuid = Field(description="The header webhook-id of every attempt")
    event_type: EventTypeName | Literal["webhook.ping"]
    event_at: Instant
    state: DeliveryStateName
    attempts: int
    created_at: Instant
    next_attempt_at: Instant | None = Field(description="While PENDING")
    last_attempt_at: Instant | None
    last_status: int | None = Field(description="HTTP status of the last attempt; null if there was no response")
    last_error: str | None = Field(
        description="bad_status, redirect_refused, timeout, name_not_resolved, address_refused, connect_failed, "
        "tls_failed, connection_lost or internal_error"
    )
    delivered_at: Instant | None


class WebhookDeliveryWithBody(WebhookDelivery):
    """One event for one endpoint, with what is sent."""

    body: str = Field(description="The exact text that is sent and signed")


class WebhookDeliveryPage(Output):
    """A page of deliveries."""

    items: list[WebhookDelivery]
    next_cursor: str | None


class Replay(Output):
    """What a replay queued."""

    count: int
    next_since: Instant | None = Field(description="Set when there are more events: replay again from here")


def webhook_json(endpoint: WebhookEndpoint, now_ms: int) -> dict[str, object]:
    """Present an endpoint as `Webhook`."""
    expires_at_ms = endpoint.rotations_ms[0] + ROTATION_MS if endpoint.rotations_ms else None
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "description": endpoint.description,
        "eventTypes": sorted(endpoint.event_types),
        "enabled": endpoint.disabled_reason is None,
        "disabledReason": endpoint.disabled_reason,
        "disabledAt": iso_or_none(endpoint.disabled_at_ms),
        "failingSince": iso_or_none(endpoint.failing_since_ms),
        "previousSecretExpiresAt": iso_or_none(
            expires_at_ms if expires_at_ms is not None and now_ms < expires_at_ms else None
        ),
        "createdAt": iso(endpoint.created_at_ms),
    }


def delivery_json(delivery: DomainDelivery) -> dict[str, object]:
    """Present a delivery as `WebhookDelivery`."""
    return {
        "eventId": delivery.message.id,
        "eventType": delivery.message.type,
        "eventAt": iso(delivery.message.at_ms),
        "state": delivery.state,
        "attempts": delivery.attempts,
        "createdAt": iso(delivery.created_at_ms),
        "nextAttemptAt": iso_or_none(delivery.next_attempt_at_ms),
        "lastAttemptAt": iso_or_none(delivery.last_attempt_at_ms),
        "lastStatus": delivery.last_status,
        "lastError": delivery.last_error,
        "deliveredAt": iso_or_none(delivery.delivered_at_ms),
    }


def push_json(subscription: DomainSubscription) -> dict[str, object]:
    """Present a subscription as `PushSubscription`."""
    return {"id": subscription.id, "renewedAt": iso(subscription.renewed_at_ms)}


def replay_json(replayed: ReplayedEvents) -> dict[str, object]:
    """Present a replay as `Replay`."""
    return {"count": replayed.count, "nextSince": iso_or_none(replayed.next_since_ms)}


def message_body(row: OutboxRow, limits: SessionLimits) -> str:
    """The body of an event for one workspace: what that workspace would read from the API at that moment.

    Raises:
        ValueError: The stored row cannot be read.
    """
    data = _data(row, limits)
    if row.type is not WebhookEventType.PING:
        data["sequence"] = row.sequence
    return orjson.dumps({"type": row.type, "timestamp": iso(row.at_ms), "data": data}).decode()


def _data(row: OutboxRow, limits: SessionLimits) -> dict[str, object]:
    match row.subject:
        case Session() as session:
            data = session_json(session_status(session, row.stored_at_ms, limits, row.workspace_id))
            # Media URLs let their holder publish or watch; a webhook passes through logs and queues of others.
            del data["whepUrl"], data["whipUrl"]
            return data
        case SettlementRecord() as record:
            return settlement_json(record.session_id, record)
        case LedgerRow() as deposit:
            return wallet_event_json(deposit)
        case Workspace() as workspace:
            return workspace_json(workspace)
        case WebhookEndpoint() as endpoint:
            return {"webhookId": endpoint.id}
        case None:
            raise ValueError("the stored row of the event cannot be read")
        case _:
            assert_never(row.subject)
