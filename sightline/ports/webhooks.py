"""The ports of the customers' webhooks (endpoints, the outbox of committed events, deliveries) and of Web Push.

The outbox is filled by the writes of the other stores, in the transaction of the event. Due times and leases are by the
store's clock, so that several processes, and steps of their clocks, cannot send one message twice at the same time.

Every method may raise `StoreUnavailableError` (nothing was written) and, if it writes, `OutcomeUnknownError`.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, final

from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session
from sightline.domain.value import Value, hiding
from sightline.domain.webhooks import DeliveryState, DisabledReason, WebhookEventType
from sightline.ports.ledger import LedgerRow, SettlementRecord
from sightline.ports.store import IdempotencyRecord

LEASE_MS: Final = 30_000
"""How long a claimed delivery belongs to its claimer. More than the timeout of an attempt."""


@final
class WebhookEndpoint(Value, kw_only=True):
    """Where events of a workspace are sent. `event_types` is empty for every type."""

    id: str
    workspace_id: str
    url: str
    description: str
    event_types: frozenset[WebhookEventType]
    created_at_ms: int
    generation: int = 1
    """Number of the signing secret."""
    rotations_ms: tuple[int, ...] = ()
    """Instants of the last `EARLIER_SECRETS_MAX` rotations, newest first. [0] replaced secret `generation - 1`."""
    failing_since_ms: int | None = None
    is_slow: bool = False
    """Whether its last answer took longer than `SLOW_MS`."""
    disabled_reason: DisabledReason | None = None
    disabled_at_ms: int | None = None

    @property
    def is_troubled(self) -> bool:
        """Whether it is failing or slow."""
        return self.is_slow or self.failing_since_ms is not None


@final
class EndpointChange(Value, kw_only=True):
    """What to change of an endpoint; None leaves a field as it is."""

    url: str | None = None
    description: str | None = None
    event_types: frozenset[WebhookEventType] | None = None
    is_enabled: bool | None = None


WebhookSubject: TypeAlias = Session | SettlementRecord | LedgerRow | Workspace | WebhookEndpoint
"""What an event is about; an endpoint for `webhook.ping`."""


@final
class OutboxRow(Value, kw_only=True):
    """A committed event of one workspace."""

    number: int
    workspace_id: str
    type: WebhookEventType
    at_ms: int
    stored_at_ms: int
    sequence: int
    """Orders the events of one session, wallet event or workspace."""
    subject: WebhookSubject | None
    """What the event is about, as it was committed. None: the stored row cannot be read, which is a defect."""


@final
class WebhookMessage(Value, kw_only=True):
    """An event as it is sent. Every attempt, resend and replay has the same id and body."""

    id: str
    workspace_id: str
    type: WebhookEventType
    at_ms: int
    body: str


@final
class DeliveryJob(Value, kw_only=True):
    """A claimed delivery, to be attempted within `LEASE_MS`."""

    endpoint: WebhookEndpoint
    number: int
    message: WebhookMessage
    attempts: int
    step: int


@final
class AttemptRecord(Value, kw_only=True):
    """What became of an attempt. `retry_in_ms` is None when there is no further attempt."""

    is_delivered: bool
    status: int | None = None
    error: str | None = None
    retry_in_ms: int | None = None
    is_gone: bool = False
    is_slow: bool = False


@final
class WebhookDelivery(Value, kw_only=True):
    """One message for one endpoint, as shown to its workspace."""

    number: int
    endpoint_id: str
    message: WebhookMessage
    state: DeliveryState
    attempts: int
    created_at_ms: int
    next_attempt_at_ms: int | None
    last_attempt_at_ms: int | None
    last_status: int | None
    last_error: str | None
    delivered_at_ms: int | None


@final
class DeliveryQuery(Value, kw_only=True):
    """A page of an endpoint's deliveries, newest first, strictly before `before_number`."""

    endpoint_id: str
    limit: int
    state: DeliveryState | None = None
    before_number: int | None = None


@final
class ReplayedEvents(Value, kw_only=True):
    """What a replay queued. `next_since_ms` is set when its limit was reached: continue there."""

    count: int
    next_since_ms: int | None = None


@final
class Unsent(Value, kw_only=True):
    """Whether anything waits to be sent now or later."""

    webhooks: bool
    """An event to prepare, or a delivery to attempt."""
    pushes: bool


class SendQueues(Protocol):
    """What waits to be sent, of webhooks and of pushes."""

    async def unsent(self) -> Unsent:
        """Ask for both in one query."""
        ...


@final
class WebhookBacklog(Value, kw_only=True):
    """What waits now, for metrics. Deliveries to disabled endpoints are not counted."""

    outbox: int
    pending: int
    oldest_age_ms: int
    """Age of the oldest event that waits in the outbox or for its first attempt."""
    endpoints: int
    endpoints_failing: int
    endpoints_disabled: int


class WebhookStore(Protocol):
    """Durable state of the customers' webhooks."""

    async def add_endpoint(
        self, endpoint: WebhookEndpoint, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Store a new endpoint unless its workspace already has `limit`. Returns whether it was stored.

        The record of the call is stored in the same transaction.

        Raises:
            CallRecordedError: The call is recorded already.
        """
        ...

    async def endpoints(self, workspace_id: str) -> Sequence[WebhookEndpoint]:
        """The endpoints of a workspace, oldest first."""
        ...

    async def endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint | None:
        """Read one endpoint of a workspace."""
        ...

    async def change_endpoint(
        self, workspace_id: str, endpoint_id: str, change: EndpointChange, *, now_ms: int
    ) -> WebhookEndpoint | None:
        """Change an endpoint and return it; None if there is none. Enabling it ends its failure."""
        ...

    async def rotate_endpoint(
        self, workspace_id: str, endpoint_id: str, *, from_generation: int, now_ms: int,
        call: IdempotencyRecord | None = None,
    ) -> WebhookEndpoint | None:  # fmt: skip
        """Give the endpoint the next signing secret unless it has another generation already. Returns the endpoint.

        The record of the call is stored in the same transaction, if the endpoint exists.

        Raises:
            CallRecordedError: The call is recorded already.
        """
        ...

    async def remove_endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint | None:
        """Delete an endpoint and return it as it was. What was queued for it is never sent."""
        ...

    async def outbox(self, *, limit: int) -> Sequence[OutboxRow]:
        """Events that are not prepared yet, oldest first, without postponed ones."""
        ...

    async def publish(self, prepared: Sequence[tuple[int, WebhookMessage]], *, now_ms: int) -> int:
        """Turn rows of the outbox into messages, and queue each for the enabled endpoints that want its type.

        A row that is no longer in the outbox is skipped: another process published it. Returns how many were published.
        """
        ...

    async def postpone(self, numbers: Sequence[int], *, for_ms: int) -> None:
        """Leave rows of the outbox aside for this long."""
        ...

    async def enqueue(self, endpoint_id: str, message: WebhookMessage, *, now_ms: int) -> WebhookDelivery:
        """Store a message for one endpoint only."""
        ...

    async def claim_deliveries(self, *, limit: int, failing_max: int) -> Sequence[DeliveryJob]:
        """Claim due deliveries for `LEASE_MS`: at most two in flight per endpoint and eight per workspace.

        Endpoints that work come first, and then the workspaces in turn.

        Args:
            failing_max: At most this many of them to endpoints that are failing or slow.
        """
        ...

    async def record_attempt(self, job: DeliveryJob, attempt: AttemptRecord) -> DisabledReason | None:
        """Record an attempt and give the claim up. Returns why the endpoint was disabled by it, if it was.

        Ignored if the delivery was attempted by another process meanwhile.
        """
        ...

    async def deliveries(self, query: DeliveryQuery) -> Sequence[WebhookDelivery]:
        """Read one page."""
        ...

    async def delivery(self, endpoint_id: str, message_id: str) -> WebhookDelivery | None:
        """Read one delivery by the id of its message."""
        ...

    async def resend(self, endpoint_id: str, message_id: str) -> WebhookDelivery | None:
        """Make a delivery due now, with the retry schedule from its start. None if there is none."""
        ...

    async def replay(self, endpoint: WebhookEndpoint, *, since_ms: int, limit: int, now_ms: int) -> ReplayedEvents:
        """Queue the workspace's events since an instant for this endpoint, oldest first, delivered ones included.

        Those that wait for a later attempt are due at once; those that are due or on their way stay as they are. Of
        pings only those of this endpoint that wait are among them.
        """
        ...

    async def backlog(self) -> WebhookBacklog:
        """Count what waits."""
        ...


PUSH_LEASE_MS: Final = 15_000
"""How long a claimed push belongs to its claimer. More than the timeout of an attempt."""
PUSH_LIFE_MS: Final = 60_000
"""How long after its assignment a job is told. Later the operator could not start in time."""
PUSHES_AT_ONCE_MAX: Final = 8
"""Pushes of one workspace in flight."""


@final
class PushSubscription(Value, kw_only=True):
    """A browser that is told of the jobs of a workspace. Its URL and keys are secrets of the browser."""

    id: str
    workspace_id: str
    endpoint: str
    p256dh: bytes
    auth: bytes
    key_id: str | None
    """The API key that allowed it, or None."""
    wallet: str | None
    """The wallet of the member who allowed it, or None."""
    renewed_at_ms: int
    """When it was last allowed: the console repeats the call each time it is opened."""

    __repr__ = hiding("endpoint", "p256dh", "auth")


@final
class PushJob(Value, kw_only=True):
    """A claimed push, to be attempted within `PUSH_LEASE_MS`."""

    subscription: PushSubscription
    session: Session
    attempts: int
    left_ms: int
    """Time until it is no longer worth telling."""


class PushStore(Protocol):
    """Durable state of Web Push. Each assignment queues a push for every subscription of the operator's workspace.

    Queued by the writes of the other stores, in the transaction of the assignment.
    """

    async def add_subscription(self, subscription: PushSubscription, *, limit: int) -> PushSubscription | None:
        """Store a subscription, or renew the one of this workspace with the same URL, whose id stays.

        Returns:
            The stored one; None if it is new and its workspace already has `limit`.
        """
        ...

    async def subscriptions(self, workspace_id: str) -> Sequence[PushSubscription]:
        """The subscriptions of a workspace, by id."""
        ...

    async def remove_subscription(self, workspace_id: str, subscription_id: str) -> PushSubscription | None:
        """Delete a subscription and what waits for it; returns it as it was."""
        ...

    async def claim_pushes(self, *, limit: int) -> Sequence[PushJob]:
        """Claim due pushes for `PUSH_LEASE_MS`, at most `PUSHES_AT_ONCE_MAX` in flight per workspace.

        Deletes those that are too old, and those whose session is no longer assigned to the workspace.
        """
        ...

    async def finish_push(self, job: PushJob) -> None:
        """Delete a push that was delivered or given up, unless it was queued again or claimed by another meanwhile."""
        ...

    async def retry_push(self, job: PushJob, *, after_ms: int) -> None:
        """Give a claim up, and make the push due again after a time."""
        ...
