"""The customers' webhooks in memory, with the contract of Postgres; for simulation and tests.

The other stores in memory call the `note_...` methods where Postgres has triggers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

from sightline.domain.operator.model import Workspace
from sightline.domain.session.messages import EventKind
from sightline.domain.value import replace
from sightline.domain.webhooks import (
    EARLIER_SECRETS_MAX,
    FAILING_MS_MAX,
    SENT_AT_ONCE_MAX,
    WORKSPACE_AT_ONCE_MAX,
    DeliveryState,
    DisabledReason,
    WebhookEventType,
)
from sightline.ports.ledger import LedgerRow, SettlementRecord
from sightline.ports.store import CallRecordedError, IdempotencyRecord, SessionWrite
from sightline.ports.webhooks import (
    LEASE_MS,
    AttemptRecord,
    DeliveryJob,
    DeliveryQuery,
    EndpointChange,
    OutboxRow,
    ReplayedEvents,
    WebhookBacklog,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookMessage,
    WebhookSubject,
)

_TYPES = {
    EventKind.CREATED: WebhookEventType.SESSION_REQUESTED,
    EventKind.REOPENED: WebhookEventType.SESSION_REQUESTED,
    EventKind.ASSIGNED: WebhookEventType.SESSION_ASSIGNED,
    EventKind.STARTED: WebhookEventType.SESSION_LIVE,
    EventKind.PAUSED: WebhookEventType.SESSION_PAUSED,
    EventKind.RESUMED: WebhookEventType.SESSION_RESUMED,
    EventKind.EXTENDED: WebhookEventType.SESSION_EXTENDED,
    EventKind.ENDED: WebhookEventType.SESSION_ENDED,
    EventKind.CANCELLED: WebhookEventType.SESSION_CANCELLED,
    EventKind.EXPIRED: WebhookEventType.SESSION_EXPIRED,
}


@dataclass(slots=True)
class _Row:
    delivery: WebhookDelivery
    next_at_ms: int
    step: int = 0
    lease_until_ms: int | None = None

    def shown(self) -> WebhookDelivery:
        is_pending = self.delivery.state is DeliveryState.PENDING
        return replace(self.delivery, next_attempt_at_ms=self.next_at_ms if is_pending else None)

    def queue(self, now_ms: int) -> None:
        """Make the delivery due now, with the schedule from its start."""
        self.delivery = replace(self.delivery, state=DeliveryState.PENDING)
        self.step, self.next_at_ms = 0, now_ms


@final
class MemoryWebhooks:
    """Implements `WebhookStore` with dictionaries."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        """Create an empty store. `now_ms` is what the database's clock is on Postgres."""
        self._now_ms = now_ms
        self.record_call: Callable[[IdempotencyRecord], bool] = lambda _: True
        """Records the answer of a call; False if one is recorded already. Set by the store that keeps them."""
        self._endpoints: dict[str, WebhookEndpoint] = {}
        self._outbox: dict[int, tuple[OutboxRow, int]] = {}
        self._messages: dict[int, WebhookMessage] = {}
        self._numbers: dict[str, int] = {}
        self._rows: dict[tuple[str, int], _Row] = {}
        self._last_event = 0

    # --- what other stores note, as part of their own step ---

    def note_session(self, write: SessionWrite) -> None:
        """Add the session's new events to the outbox."""
        session = write.session
        parties = {session.terms.consumer_workspace_id}
        if session.operator is not None:
            parties.add(session.operator.workspace_id)
        for recorded in write.events:
            if recorded.event.kind in _TYPES:
                for workspace_id in sorted(parties):
                    self.note(
                        workspace_id, _TYPES[recorded.event.kind], recorded.event.at_ms, write.at_ms,
                        recorded.sequence, replace(session, version=recorded.sequence),
                    )  # fmt: skip

    def note_workspace(self, before: Workspace | None, after: Workspace, at_ms: int) -> None:
        """Add a change of availability to the outbox."""
        if before is not None and before.availability is not after.availability:
            kind = WebhookEventType.WORKSPACE_AVAILABILITY
            self.note(after.id, kind, at_ms, at_ms, after.version, after)

    def note_settlement(self, record: SettlementRecord) -> None:
        """Add a confirmed settlement to the outbox."""
        at_ms, payload = record.updated_at_ms, record.payload
        for workspace_id in sorted({payload.consumer_workspace_id, payload.operator_workspace_id}):
            self.note(workspace_id, WebhookEventType.SETTLEMENT_CONFIRMED, at_ms, at_ms, at_ms, record)

    def note_deposit(self, row: LedgerRow) -> None:
        """Add a confirmed deposit to the outbox."""
        at_ms = row.confirmed_at_ms
        assert at_ms is not None
        self.note(row.workspace_id, WebhookEventType.WALLET_DEPOSIT, at_ms, at_ms, row.sequence, row)

    def note(
        self,
        workspace_id: str,
        kind: WebhookEventType,
        at_ms: int,
        stored_at_ms: int,
        sequence: int,
        subject: WebhookSubject,
    ) -> None:
        """Add an event to the outbox if its workspace has an endpoint."""
        if any(endpoint.workspace_id == workspace_id for endpoint in self._endpoints.values()):
            self._last_event += 1
            row = OutboxRow(
                number=self._last_event,
                workspace_id=workspace_id,
                type=kind,
                at_ms=at_ms,
                stored_at_ms=stored_at_ms,
                sequence=sequence,
                subject=subject,
            )
            self._outbox[row.number] = (row, 0)

    # --- endpoints ---

    async def add_endpoint(
        self, endpoint: WebhookEndpoint, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Store a new endpoint unless its workspace already has `limit`."""
        if len(await self.endpoints(endpoint.workspace_id)) >= limit:
            return False
        self._require_first_call(call)
        self._endpoints[endpoint.id] = endpoint
        return True

    async def endpoints(self, workspace_id: str) -> Sequence[WebhookEndpoint]:
        """The endpoints of a workspace, oldest first."""
        found = [endpoint for endpoint in self._endpoints.values() if endpoint.workspace_id == workspace_id]
        return sorted(found, key=lambda endpoint: (endpoint.created_at_ms, endpoint.id))

    async def endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint | None:
        """Read one endpoint of a workspace."""
        found = self._endpoints.get(endpoint_id)
        return found if found is not None and found.workspace_id == workspace_id else None

    async def change_endpoint(
        self, workspace_id: str, endpoint_id: str, change: EndpointChange, *, now_ms: int
    ) -> WebhookEndpoint | None:
        """Change an endpoint and return it."""
        old = await self.endpoint(workspace_id, endpoint_id)
        if old is None:
            return None
        new = replace(
            old,
            url=old.url if change.url is None else change.url,
            description=old.description if change.description is None else change.description,
            event_types=old.event_types if change.event_types is None else change.event_types,
        )
        if change.is_enabled:
            new = replace(new, failing_since_ms=None, disabled_reason=None, disabled_at_ms=None)
        elif change.is_enabled is not None:
            disabled_at_ms = now_ms if old.disabled_at_ms is None else old.disabled_at_ms
            new = replace(new, disabled_reason=DisabledReason.OWNER, disabled_at_ms=disabled_at_ms)
        self._endpoints[endpoint_id] = new
        return new

    async def rotate_endpoint(
        self, workspace_id: str, endpoint_id: str, *, from_generation: int, now_ms: int,
        call: IdempotencyRecord | None = None,
    ) -> WebhookEndpoint | None:  # fmt: skip
        """Give the endpoint the next signing secret unless it has another generation already."""
        found = await self.endpoint(workspace_id, endpoint_id)
        if found is not None:
            self._require_first_call(call)
        if found is not None and found.generation == from_generation:
            rotations_ms = (now_ms, *found.rotations_ms)[:EARLIER_SECRETS_MAX]
            found = self._endpoints[endpoint_id] = replace(
                found, generation=from_generation + 1, rotations_ms=rotations_ms
            )
        return found

    async def remove_endpoint(self, workspace_id: str, endpoint_id: str) -> WebhookEndpoint | None:
        """Delete an endpoint."""
        found = await self.endpoint(workspace_id, endpoint_id)
        return None if found is None else self._endpoints.pop(endpoint_id)

    def _require_first_call(self, call: IdempotencyRecord | None) -> None:
        if call is not None and not self.record_call(call):
            raise CallRecordedError

    # --- the outbox ---

    def has_unsent(self) -> bool:
        """Whether an event is to be prepared, or a delivery waits for an attempt."""
        pending = any(row.delivery.state is DeliveryState.PENDING for row in self._rows.values())
        return pending or any(retry_at_ms <= self._now_ms() for _, retry_at_ms in self._outbox.values())

    async def outbox(self, *, limit: int) -> Sequence[OutboxRow]:
        """Events that are not prepared yet, oldest first."""
        now_ms = self._now_ms()
        return [row for row, retry_at_ms in self._outbox.values() if retry_at_ms <= now_ms][:limit]

    async def publish(self, prepared: Sequence[tuple[int, WebhookMessage]], *, now_ms: int) -> int:
        """Turn rows of the outbox into messages and deliveries."""
        taken = [message for number, message in prepared if self._outbox.pop(number, None) is not None]
        for message in taken:
            number = self._add_message(message)
            for endpoint in self._endpoints.values():
                wants = not endpoint.event_types or message.type in endpoint.event_types
                if endpoint.workspace_id == message.workspace_id and endpoint.disabled_reason is None and wants:
                    self._queue(endpoint.id, number, now_ms)
        return len(taken)

    async def postpone(self, numbers: Sequence[int], *, for_ms: int) -> None:
        """Leave rows of the outbox aside."""
        for number in numbers:
            if number in self._outbox:
                self._outbox[number] = (self._outbox[number][0], self._now_ms() + for_ms)

    def _add_message(self, message: WebhookMessage) -> int:
        number = len(self._messages) + 1
        self._messages[number] = message
        self._numbers[message.id] = number
        return number

    def _queue(self, endpoint_id: str, number: int, now_ms: int) -> None:
        delivery = WebhookDelivery(
            number=number,
            endpoint_id=endpoint_id,
            message=self._messages[number],
            state=DeliveryState.PENDING,
            attempts=0,
            created_at_ms=now_ms,
            next_attempt_at_ms=None,
            last_attempt_at_ms=None,
            last_status=None,
            last_error=None,
            delivered_at_ms=None,
        )
        self._rows[endpoint_id, number] = _Row(delivery, self._now_ms())

    async def enqueue(self, endpoint_id: str, message: WebhookMessage, *, now_ms: int) -> WebhookDelivery:
        """Store a message for one endpoint only."""
        number = self._add_message(message)
        self._queue(endpoint_id, number, now_ms)
        return self._rows[endpoint_id, number].shown()

    # --- deliveries ---

    async def claim_deliveries(self, *, limit: int, failing_max: int) -> Sequence[DeliveryJob]:
        """Claim due deliveries."""
        now_ms = self._now_ms()
        due: list[tuple[str, bool, int, int, str]] = []
        flying: Counter[str] = Counter()
        for endpoint in self._endpoints.values():
            pending = [
                row
                for (endpoint_id, _), row in self._rows.items()
                if endpoint_id == endpoint.id and row.delivery.state is DeliveryState.PENDING
            ]
            leased = sum(_is_leased(row, now_ms) for row in pending)
            flying[endpoint.workspace_id] += leased
            ready = [row for row in pending if row.next_at_ms <= now_ms and not _is_leased(row, now_ms)]
            ready.sort(key=lambda row: (row.next_at_ms, row.delivery.number))
            if endpoint.disabled_reason is None:
                due += [
                    (endpoint.workspace_id, endpoint.is_troubled, row.next_at_ms, row.delivery.number, endpoint.id)
                    for row in ready[: max(0, SENT_AT_ONCE_MAX - leased)]
                ]
        turns: list[tuple[bool, int, int, int, str]] = []
        for workspace_id, rows in groupby(sorted(due), lambda each: each[0]):
            free = WORKSPACE_AT_ONCE_MAX - flying[workspace_id]
            turns += [
                (is_troubled, turn, at_ms, number, endpoint_id)
                for turn, (_, is_troubled, at_ms, number, endpoint_id) in enumerate(rows)
                if turn < free
            ]
        turns.sort()
        troubled = [each for each in turns if each[0]]
        chosen = [*(each for each in turns if not each[0]), *troubled[:failing_max]][:limit]
        return [self._claim(endpoint_id, number, now_ms) for *_, number, endpoint_id in chosen]

    def _claim(self, endpoint_id: str, number: int, now_ms: int) -> DeliveryJob:
        row = self._rows[endpoint_id, number]
        row.lease_until_ms = now_ms + LEASE_MS
        return DeliveryJob(
            endpoint=self._endpoints[endpoint_id],
            number=number,
            message=row.delivery.message,
            attempts=row.delivery.attempts,
            step=row.step,
        )

    async def record_attempt(self, job: DeliveryJob, attempt: AttemptRecord) -> DisabledReason | None:
        """Record an attempt and give the claim up."""
        row, now_ms = self._rows[job.endpoint.id, job.number], self._now_ms()
        delivery = row.delivery
        if delivery.attempts != job.attempts or delivery.state is not DeliveryState.PENDING:
            return None
        state = DeliveryState.DELIVERED if attempt.is_delivered else DeliveryState.PENDING
        if not attempt.is_delivered and attempt.retry_in_ms is None:
            state = DeliveryState.FAILED
        row.delivery = replace(
            delivery,
            state=state,
            attempts=delivery.attempts + 1,
            last_attempt_at_ms=now_ms,
            last_status=attempt.status,
            last_error=attempt.error,
            delivered_at_ms=now_ms if attempt.is_delivered else delivery.delivered_at_ms,
        )
        row.step, row.lease_until_ms, row.next_at_ms = row.step + 1, None, now_ms + (attempt.retry_in_ms or 0)
        return self._judge(job.endpoint.id, attempt, now_ms)

    def _judge(self, endpoint_id: str, attempt: AttemptRecord, now_ms: int) -> DisabledReason | None:
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is None:
            return None
        if attempt.is_delivered:
            self._endpoints[endpoint_id] = replace(endpoint, failing_since_ms=None, is_slow=attempt.is_slow)
            return None
        if endpoint.disabled_reason is not None:
            return None
        since_ms = now_ms if endpoint.failing_since_ms is None else endpoint.failing_since_ms
        why = DisabledReason.FAILING if now_ms - since_ms >= FAILING_MS_MAX else None
        why = DisabledReason.GONE if attempt.is_gone else why
        disabled_at_ms = None if why is None else now_ms
        self._endpoints[endpoint_id] = replace(
            endpoint, failing_since_ms=since_ms, disabled_reason=why, disabled_at_ms=disabled_at_ms
        )
        return why

    async def deliveries(self, query: DeliveryQuery) -> Sequence[WebhookDelivery]:
        """Read one page, newest first."""
        found = [
            row.shown()
            for (endpoint_id, number), row in sorted(self._rows.items(), key=lambda item: item[0][1], reverse=True)
            if endpoint_id == query.endpoint_id
            and query.state in (None, row.delivery.state)
            and (query.before_number is None or number < query.before_number)
        ]
        return found[: query.limit]

    async def delivery(self, endpoint_id: str, message_id: str) -> WebhookDelivery | None:
        """Read one delivery by the id of its message."""
        row = self._rows.get((endpoint_id, self._numbers.get(message_id, 0)))
        return None if row is None else row.shown()

    async def resend(self, endpoint_id: str, message_id: str) -> WebhookDelivery | None:
        """Make a delivery due now."""
        row = self._rows.get((endpoint_id, self._numbers.get(message_id, 0)))
        if row is None:
            return None
        row.queue(self._now_ms())
        return row.shown()

    async def replay(self, endpoint: WebhookEndpoint, *, since_ms: int, limit: int, now_ms: int) -> ReplayedEvents:
        """Queue events since an instant again."""
        events = sorted(
            (message.at_ms, number)
            for number, message in self._messages.items()
            if message.workspace_id == endpoint.workspace_id
            and message.at_ms >= since_ms
            and (
                self._waits(endpoint.id, number)
                if message.type is WebhookEventType.PING
                else not endpoint.event_types or message.type in endpoint.event_types
            )
        )[:limit]
        queued = 0
        for _, number in events:
            row = self._rows.get((endpoint.id, number))
            if row is None:
                self._queue(endpoint.id, number, now_ms)
            elif row.delivery.state is DeliveryState.PENDING and row.next_at_ms <= self._now_ms():
                continue
            else:
                row.queue(self._now_ms())
            queued += 1
        is_more = len(events) == limit
        return ReplayedEvents(count=queued, next_since_ms=max(events[-1][0], since_ms + 1) if is_more else None)

    def _waits(self, endpoint_id: str, number: int) -> bool:
        row = self._rows.get((endpoint_id, number))
        return row is not None and row.delivery.state is DeliveryState.PENDING

    async def backlog(self) -> WebhookBacklog:
        """Count what waits."""
        enabled = {each.id for each in self._endpoints.values() if each.disabled_reason is None}
        pending = [
            row
            for (endpoint_id, _), row in self._rows.items()
            if endpoint_id in enabled and row.delivery.state is DeliveryState.PENDING
        ]
        since = [row.delivery.created_at_ms for row in pending if row.step == 0]
        since += [row.stored_at_ms for row, _ in self._outbox.values()]
        return WebhookBacklog(
            outbox=len(self._outbox),
            pending=len(pending),
            oldest_age_ms=max(0, self._now_ms() - min(since)) if since else 0,
            endpoints=len(self._endpoints),
            endpoints_failing=sum(self._endpoints[each].failing_since_ms is not None for each in enabled),
            endpoints_disabled=len(self._endpoints) - len(enabled),
        )


def _is_leased(row: _Row, now_ms: int) -> bool:
    return row.lease_until_ms is not None and now_ms < row.lease_until_ms <= now_ms + LEASE_MS
