"""Webhook endpoints of the caller's workspace."""

from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.domain.webhooks import WebhookEventType
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Link, Route
from sightline.http.schemas.webhooks import (
    CreateWebhookBody,
    PatchWebhookBody,
    Webhook,
    WebhookDelivery,
    WebhookList,
    WebhookWithSecret,
    delivery_json,
    webhook_json,
)
from sightline.http.services import Services
from sightline.ports.store import IdempotencyRecord
from sightline.ports.webhooks import EndpointChange, WebhookEndpoint

TAG: Final = "webhooks"
_PATH: Final = "/api/v1/webhooks"
_ONE: Final = _PATH + "/{id}"


@final
class WebhookEndpointResources:
    """/webhooks."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._webhooks = services.webhooks
        self._clock = services.clock
        self._idempotency = idempotency

    def _shown(self, endpoint: WebhookEndpoint) -> dict[str, object]:
        return webhook_json(endpoint, self._clock.now_ms())

    @Route(
        "POST",
        _PATH,
        "createWebhook",
        TAG,
        "Add an endpoint; its signing secret is shown once",
        description="At most 20 per workspace. Messages are signed as Standard Webhooks describes; see docs/guides.",
        operation=Operation.MANAGE_WEBHOOKS,
        body=CreateWebhookBody,
        output=WebhookWithSecret,
        errors=(Code.CONFLICT,),
        links=(
            Link("getWebhook", {"id": "$response.body#/data/id"}),
            Link("pingWebhook", {"id": "$response.body#/data/id"}),
        ),
    )
    async def create(self, call: Call) -> Reply:
        """Create. The answer holds a secret and is not recorded: a repeat with the same idempotency key is refused."""
        body: CreateWebhookBody = call.body

        async def create(record: IdempotencyRecord | None) -> Reply:
            endpoint, secret = await self._webhooks.create(
                call.workspace_id,
                url=body.url,
                description=body.description,
                event_types=[WebhookEventType(name) for name in body.event_types],
                call=record,
            )
            return Reply(self._shown(endpoint) | {"secret": secret})

        return await self._idempotency.once(call.caller().idempotency, create)

    @Route(
        "GET",
        _PATH,
        "listWebhooks",
        TAG,
        "List endpoints",
        operation=Operation.MANAGE_WEBHOOKS,
        rate=RateClass.LIST,
        output=WebhookList,
    )
    async def list(self, call: Call) -> Reply:
        """All endpoints: few, hence one page."""
        endpoints = await self._webhooks.endpoints(call.workspace_id)
        return Reply({"items": [self._shown(endpoint) for endpoint in endpoints], "nextCursor": None})

    @Route(
        "GET",
        _ONE,
        "getWebhook",
        TAG,
        "Read an endpoint",
        operation=Operation.MANAGE_WEBHOOKS,
        output=Webhook,
        errors=(Code.NOT_FOUND,),
    )
    async def get(self, call: Call) -> Reply:
        """One endpoint."""
        return Reply(self._shown(await self._webhooks.endpoint(call.workspace_id, call.params["id"])))

    @Route(
        "PATCH",
        _ONE,
        "updateWebhook",
        TAG,
        "Change, disable or enable an endpoint",
        operation=Operation.MANAGE_WEBHOOKS,
        body=PatchWebhookBody,
        output=Webhook,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def update(self, call: Call) -> Reply:
        """Change."""
        body: PatchWebhookBody = call.body
        types = None if body.event_types is None else frozenset(map(WebhookEventType, body.event_types))
        change = EndpointChange(url=body.url, description=body.description, event_types=types, is_enabled=body.enabled)

        async def update() -> Reply:
            return Reply(self._shown(await self._webhooks.change(call.workspace_id, call.params["id"], change)))

        return await self._idempotency.recorded(call.caller().idempotency, update)

    @Route(
        "DELETE",
        _ONE,
        "deleteWebhook",
        TAG,
        "Delete an endpoint; what waits for it is not sent",
        operation=Operation.MANAGE_WEBHOOKS,
        output=Webhook,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def delete(self, call: Call) -> Reply:
        """Delete; answers with the endpoint as it was."""

        async def delete() -> Reply:
            return Reply(self._shown(await self._webhooks.remove(call.workspace_id, call.params["id"])))

        return await self._idempotency.recorded(call.caller().idempotency, delete)

    @Route(
        "POST",
        _ONE + "/rotate",
        "rotateWebhookSecret",
        TAG,
        "Make a new signing secret",
        description=(
            "For 24 hours messages are also signed with the previous secret. A rotation within that time leaves it "
            "valid; while three earlier secrets are, a rotation is refused with 409 `webhook:rotations`."
        ),
        operation=Operation.MANAGE_WEBHOOKS,
        output=WebhookWithSecret,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def rotate(self, call: Call) -> Reply:
        """Rotate. The answer is not recorded, as with `create`."""

        async def rotate(record: IdempotencyRecord | None) -> Reply:
            endpoint, secret = await self._webhooks.rotate(call.workspace_id, call.params["id"], call=record)
            return Reply(self._shown(endpoint) | {"secret": secret})

        return await self._idempotency.once(call.caller().idempotency, rotate)

    @Route(
        "POST",
        _ONE + "/ping",
        "pingWebhook",
        TAG,
        "Send a test event, `webhook.ping`",
        operation=Operation.MANAGE_WEBHOOKS,
        output=WebhookDelivery,
        errors=(Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
    )
    async def ping(self, call: Call) -> Reply:
        """Queue a ping."""

        async def ping() -> Reply:
            return Reply(delivery_json(await self._webhooks.ping(call.workspace_id, call.params["id"])))

        return await self._idempotency.recorded(call.caller().idempotency, ping)
