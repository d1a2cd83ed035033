"""Deliveries to a webhook endpoint: look at them, and send them again."""

from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.domain.webhooks import DeliveryState
from sightline.http.budgets import RateClass
from sightline.http.cursors import delivery_cursor, read_number
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.webhooks import (
    DeliveriesQuery,
    Replay,
    ReplayBody,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookDeliveryWithBody,
    delivery_json,
    replay_json,
)
from sightline.http.services import Services
from sightline.ports.webhooks import DeliveryQuery

TAG: Final = "webhooks"
_ONE: Final = "/api/v1/webhooks/{id}"
_PATH: Final = _ONE + "/deliveries"


@final
class WebhookDeliveryResources:
    """/webhooks/{id}/deliveries, /webhooks/{id}/replay."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._webhooks = services.webhooks
        self._idempotency = idempotency

    @Route(
        "GET",
        _PATH,
        "listWebhookDeliveries",
        TAG,
        "List deliveries of the last 30 days, newest first",
        operation=Operation.MANAGE_WEBHOOKS,
        rate=RateClass.LIST,
        query=DeliveriesQuery,
        output=WebhookDeliveryPage,
        errors=(Code.NOT_FOUND,),
    )
    async def list(self, call: Call) -> Reply:
        """A page of deliveries."""
        query: DeliveriesQuery = call.query
        rows = await self._webhooks.deliveries(
            call.workspace_id,
            DeliveryQuery(
                endpoint_id=call.params["id"],
                limit=query.limit + 1,
                state=None if query.state is None else DeliveryState(query.state),
                before_number=None if query.cursor is None else read_number(query.cursor),
            ),
        )
        page = rows[: query.limit]
        following = delivery_cursor(page[-1].number) if len(rows) > query.limit else None
        return Reply({"items": [delivery_json(row) for row in page], "nextCursor": following})

    @Route(
        "GET",
        _PATH + "/{eventId}",
        "getWebhookDelivery",
        TAG,
        "Read a delivery with the body that is sent",
        operation=Operation.MANAGE_WEBHOOKS,
        output=WebhookDeliveryWithBody,
        errors=(Code.NOT_FOUND,),
    )
    async def get(self, call: Call) -> Reply:
        """One delivery."""
        row = await self._webhooks.delivery(call.workspace_id, call.params["id"], call.params["eventId"])
        return Reply(delivery_json(row) | {"body": row.message.body})

    @Route(
        "POST",
        _PATH + "/{eventId}/resend",
        "resendWebhookDelivery",
        TAG,
        "Send an event again now",
        operation=Operation.MANAGE_WEBHOOKS,
        output=WebhookDelivery,
        errors=(Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
    )
    async def resend(self, call: Call) -> Reply:
        """Queue it again, with the retry schedule from its start."""

        async def resend() -> Reply:
            row = await self._webhooks.resend(call.workspace_id, call.params["id"], call.params["eventId"])
            return Reply(delivery_json(row))

        return await self._idempotency.recorded(call.caller().idempotency, resend)

    @Route(
        "POST",
        _ONE + "/replay",
        "replayWebhookEvents",
        TAG,
        "Send the workspace's events since an instant again",
        description="Up to 10,000 events of the endpoint's types, delivered ones included, oldest first.",
        operation=Operation.MANAGE_WEBHOOKS,
        rate=RateClass.LIST,
        body=ReplayBody,
        output=Replay,
        errors=(Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
    )
    async def replay(self, call: Call) -> Reply:
        """Queue events again."""
        body: ReplayBody = call.body

        async def replay() -> Reply:
            replayed = await self._webhooks.replay(call.workspace_id, call.params["id"], since_ms=body.since)
            return Reply(replay_json(replayed))

        return await self._idempotency.recorded(call.caller().idempotency, replay)
