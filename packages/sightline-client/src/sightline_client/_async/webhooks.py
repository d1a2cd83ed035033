"""Webhook endpoints of the workspace and their deliveries."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

from sightline_client._async.transport import AsyncTransport
from sightline_client.models import (
    Replay,
    Webhook,
    WebhookDelivery,
    WebhookDeliveryPage,
    WebhookDeliveryWithBody,
    WebhookList,
    WebhookWithSecret,
)
from sightline_client.webhooks import verify
from sightline_client.wire import given, segment


class AsyncWebhooks:
    """Endpoints that the server sends signed events to. Needs the scope `webhooks:write`, or an OWNER or ADMIN."""

    verify = staticmethod(verify)

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        url: str,
        *,
        description: str | None = None,
        event_types: Iterable[str] | None = None,
        idempotency_key: str | None = None,
    ) -> WebhookWithSecret:
        """Add an endpoint. Its secret is in this answer only.

        Args:
            url: An https URL that resolves to public addresses only.
            event_types: Types to send; default: all.
        """
        types = None if event_types is None else list(event_types)
        body = given(url=url, description=description, eventTypes=types)
        return await self._transport.change(WebhookWithSecret, "POST", "/webhooks", body, key=idempotency_key)

    async def list(self) -> Sequence[Webhook]:
        """List the endpoints, oldest first."""
        return (await self._transport.get(WebhookList, "/webhooks")).items

    async def get(self, webhook_id: str) -> Webhook:
        """Read an endpoint."""
        return await self._transport.get(Webhook, f"/webhooks/{segment(webhook_id)}")

    async def update(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        description: str | None = None,
        event_types: Iterable[str] | None = None,
        enabled: bool | None = None,
    ) -> Webhook:
        """Change the fields that are given. `enabled=True` also starts a failing endpoint again."""
        types = None if event_types is None else list(event_types)
        body = given(url=url, description=description, eventTypes=types, enabled=enabled)
        return await self._transport.change(Webhook, "PATCH", f"/webhooks/{segment(webhook_id)}", body)

    async def delete(self, webhook_id: str) -> Webhook:
        """Delete an endpoint."""
        return await self._transport.change(Webhook, "DELETE", f"/webhooks/{segment(webhook_id)}")

    async def rotate_secret(self, webhook_id: str) -> WebhookWithSecret:
        """Create a new secret. Messages are also signed with the previous one for 24 hours.

        An answer that was lost is not repeated: the second call would rotate again.
        """
        data = await self._transport.data("POST", f"/webhooks/{segment(webhook_id)}/rotate")
        return WebhookWithSecret.model_validate(data)

    async def ping(self, webhook_id: str) -> WebhookDelivery:
        """Send a test event."""
        return await self._transport.change(WebhookDelivery, "POST", f"/webhooks/{segment(webhook_id)}/ping")

    async def deliveries_page(
        self, webhook_id: str, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> WebhookDeliveryPage:
        """Read one page of deliveries of the last 30 days, newest first."""
        query = given(state=state, limit=limit, cursor=cursor)
        return await self._transport.get(WebhookDeliveryPage, f"/webhooks/{segment(webhook_id)}/deliveries", query)

    async def deliveries(self, webhook_id: str, *, state: str | None = None) -> AsyncIterator[WebhookDelivery]:
        """Iterate over the deliveries of the last 30 days, newest first."""
        cursor: str | None = None
        while True:
            page = await self.deliveries_page(webhook_id, state=state, cursor=cursor)
            for delivery in page.items:
                yield delivery
            cursor = page.next_cursor
            if cursor is None:
                return

    async def delivery(self, webhook_id: str, event_id: str) -> WebhookDeliveryWithBody:
        """Read one delivery with the text that is sent."""
        path = f"/webhooks/{segment(webhook_id)}/deliveries/{segment(event_id)}"
        return await self._transport.get(WebhookDeliveryWithBody, path)

    async def resend(self, webhook_id: str, event_id: str) -> WebhookDelivery:
        """Send one event again."""
        path = f"/webhooks/{segment(webhook_id)}/deliveries/{segment(event_id)}/resend"
        return await self._transport.change(WebhookDelivery, "POST", path)

    async def replay(self, webhook_id: str, *, since: datetime) -> Replay:
        """Send all events since an instant again, also those that happened while the endpoint was disabled."""
        return await self._transport.change(
            Replay, "POST", f"/webhooks/{segment(webhook_id)}/replay", given(since=since)
        )
