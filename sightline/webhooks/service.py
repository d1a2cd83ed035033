"""What a workspace does with its webhooks: endpoints, pings, deliveries, resends and replays."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final, final

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.webhooks import EARLIER_SECRETS_MAX, ENDPOINTS_MAX, ROTATION_MS, WebhookEventType
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.store import IdempotencyRecord
from sightline.ports.webhooks import (
    DeliveryQuery,
    EndpointChange,
    OutboxRow,
    ReplayedEvents,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookMessage,
    WebhookStore,
)
from sightline.webhooks.addresses import check_url
from sightline.webhooks.signing import WebhookSigner

REPLAY_MAX: Final = 10_000
"""Events that one call replays."""

NO_ENDPOINT: Final = Refusal(Code.NOT_FOUND, "webhook:notFound", "No such webhook endpoint")
NO_DELIVERY: Final = Refusal(Code.NOT_FOUND, "webhook:deliveryNotFound", "No such delivery; they are kept for 30 days")
LIMIT: Final = Refusal(
    Code.CONFLICT, "webhook:limit", f"A workspace has at most {ENDPOINTS_MAX} webhook endpoints; delete one first"
)
DISABLED: Final = Refusal(
    Code.INVALID_STATE, "webhook:disabled", "The endpoint is disabled; enable it first", state="DISABLED"
)


@final
class WebhookEndpoints:
    """What a workspace does with its webhooks.

    Methods raise RefusedError: NOT_FOUND for an endpoint or delivery that the workspace does not have, INVALID_INPUT
    `webhook:url` for a URL that is not allowed, CONFLICT `webhook:limit` and `webhook:rotations`, and INVALID_STATE
    `webhook:disabled` where something is to be sent to a disabled endpoint.
    """

    def __init__(
        self,
        store: WebhookStore,
        signer: WebhookSigner,
        render: Callable[[OutboxRow], str],
        clock: Clock,
        ids: Ids,
        *,
        allows_loopback: bool = False,
    ) -> None:
        """Prepare the service.

        Args:
            render: Makes the body of a message.
            allows_loopback: Accept URLs of this machine, also with http.
        """
        self._store = store
        self._signer = signer
        self._render = render
        self._clock = clock
        self._ids = ids
        self._allows_loopback = allows_loopback

    async def create(
        self, workspace_id: str, *, url: str, description: str, event_types: Collection[WebhookEventType],
        call: IdempotencyRecord | None = None,
    ) -> tuple[WebhookEndpoint, str]:  # fmt: skip
        """Add an endpoint; returns it with its signing secret. `call` is recorded together with it."""
        self._check_url(url)
        endpoint = WebhookEndpoint(
            id=self._ids.uuid(),
            workspace_id=workspace_id,
            url=url,
            description=description,
            event_types=frozenset(event_types),
            created_at_ms=self._clock.now_ms(),
        )
        if not await self._store.add_endpoint(endpoint, limit=ENDPOINTS_MAX, call=call):
            raise RefusedError(LIMIT)
        return endpoint, self._signer.secret_text(endpoint)

    async def endpoints(self, workspace_id: str) -> Sequence[WebhookEndpoint]:
        """The endpoints of a workspace, oldest first."""
        return await self._store.endpoints(workspace_id)

    async def endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint:
        """One endpoint."""
        return _existing(await self._store.endpoint(workspace_id, endpoint_id))

    async def change(self, workspace_id: str, endpoint_id: str, change: EndpointChange) -> WebhookEndpoint:
        """Change an endpoint."""
        if change.url is not None:
            self._check_url(change.url)
        now_ms = self._clock.now_ms()
        return _existing(await self._store.change_endpoint(workspace_id, endpoint_id, change, now_ms=now_ms))

    async def remove(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint:
        """Delete an endpoint; returns it as it was."""
        return _existing(await self._store.remove_endpoint(workspace_id, endpoint_id))

    async def rotate(
        self, workspace_id: str, endpoint_id: str, *, call: IdempotencyRecord | None = None
    ) -> tuple[WebhookEndpoint, str]:
        """Give an endpoint a new signing secret; returns both. Concurrent calls rotate once.

        Refused while `EARLIER_SECRETS_MAX` earlier secrets are valid, so that no receiver loses its secret early.

        `call` is recorded together with the rotation.
        """
        now_ms, old = self._clock.now_ms(), await self.endpoint(workspace_id, endpoint_id)
        _require_rotatable(old, now_ms)
        rotated = _existing(
            await self._store.rotate_endpoint(
                workspace_id, endpoint_id, from_generation=old.generation, now_ms=now_ms, call=call
            )
        )
        return rotated, self._signer.secret_text(rotated)

    async def ping(self, workspace_id: str, endpoint_id: str) -> WebhookDelivery:
        """Queue a test event for one endpoint."""
        endpoint, now_ms = await self._enabled(workspace_id, endpoint_id), self._clock.now_ms()
        row = OutboxRow(
            number=0,
            workspace_id=workspace_id,
            type=WebhookEventType.PING,
            at_ms=now_ms,
            stored_at_ms=now_ms,
            sequence=0,
            subject=endpoint,
        )
        message = WebhookMessage(
            id=self._ids.uuid(), workspace_id=workspace_id, type=row.type, at_ms=now_ms, body=self._render(row)
        )
        return await self._store.enqueue(endpoint.id, message, now_ms=now_ms)

    async def deliveries(self, workspace_id: str, query: DeliveryQuery) -> Sequence[WebhookDelivery]:
        """A page of an endpoint's deliveries."""
        await self.endpoint(workspace_id, query.endpoint_id)
        return await self._store.deliveries(query)

    async def delivery(self, workspace_id: str, endpoint_id: str, message_id: str) -> WebhookDelivery:
        """One delivery, by the id of its message."""
        await self.endpoint(workspace_id, endpoint_id)
        return _known(await self._store.delivery(endpoint_id, message_id))

    async def resend(self, workspace_id: str, endpoint_id: str, message_id: str) -> WebhookDelivery:
        """Send a message again now, with the retry schedule from its start."""
        await self._enabled(workspace_id, endpoint_id)
        return _known(await self._store.resend(endpoint_id, message_id))

    async def replay(self, workspace_id: str, endpoint_id: str, *, since_ms: int) -> ReplayedEvents:
        """Send the events since an instant again."""
        endpoint = await self._enabled(workspace_id, endpoint_id)
        now_ms = self._clock.now_ms()
        return await self._store.replay(endpoint, since_ms=since_ms, limit=REPLAY_MAX, now_ms=now_ms)

    async def _enabled(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint:
        endpoint = await self.endpoint(workspace_id, endpoint_id)
        if endpoint.disabled_reason is not None:
            raise RefusedError(DISABLED)
        return endpoint

    def _check_url(self, url: str) -> None:
        refusal = check_url(url, allows_loopback=self._allows_loopback)
        if refusal is not None:
            raise RefusedError(refusal)


def _existing(endpoint: WebhookEndpoint | None) -> WebhookEndpoint:
    if endpoint is None:
        raise RefusedError(NO_ENDPOINT)
    return endpoint


def _require_rotatable(endpoint: WebhookEndpoint, now_ms: int) -> None:
    """Raise RefusedError if a rotation would end a secret before its time."""
    rotations_ms = endpoint.rotations_ms
    if len(rotations_ms) < EARLIER_SECRETS_MAX or now_ms >= rotations_ms[-1] + ROTATION_MS:
        return
    possible_at = datetime.fromtimestamp((rotations_ms[-1] + ROTATION_MS + 999) // 1_000, UTC)
    message = (
        f"The secret was changed {EARLIER_SECRETS_MAX} times within 24 hours, and each earlier one still signs. The "
        f"next change is possible from {possible_at:%Y-%m-%dT%H:%M:%SZ}. If the present secret was lost, add the URL "
        "as a new endpoint, and delete this one"
    )
    raise RefusedError(Refusal(Code.CONFLICT, "webhook:rotations", message))


def _known(delivery: WebhookDelivery | None) -> WebhookDelivery:
    if delivery is None:
        raise RefusedError(NO_DELIVERY)
    return delivery
