"""The contract of the question what waits to be sent, on memory and on Postgres."""

import pytest

from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import SessionState
from sightline.domain.webhooks import ENDPOINTS_MAX, WebhookEventType
from sightline.ports.store import Committed, SessionWrite
from sightline.ports.webhooks import (
    AttemptRecord,
    PushStore,
    PushSubscription,
    SendQueues,
    Unsent,
    WebhookEndpoint,
    WebhookMessage,
    WebhookStore,
)
from sightline.storage.postgres.webhooks.pushes import PostgresPushes
from sightline.storage.postgres.webhooks.queues import PostgresSendQueues
from sightline.storage.postgres.webhooks.store import PostgresWebhooks
from simulation.memory.ledger import MemoryLedger
from simulation.memory.pushes import MemorySendQueues
from simulation.memory.store import MemoryStore
from tests.contract.builders import PAYEE, T0, a_session, an_id, an_operator, in_phase, recorded
from tests.contract.conftest import Stored

NOTHING = Unsent(webhooks=False, pushes=False)
A_WEBHOOK = Unsent(webhooks=True, pushes=False)
A_PUSH = Unsent(webhooks=False, pushes=True)


@pytest.fixture
def webhooks(stored: Stored) -> WebhookStore:
    if stored.database is not None:
        return PostgresWebhooks(stored.database)
    assert isinstance(stored.ledger, MemoryLedger)
    return stored.ledger.webhooks


@pytest.fixture
def pushes(stored: Stored) -> PushStore:
    if stored.database is not None:
        return PostgresPushes(stored.database)
    assert isinstance(stored.store, MemoryStore)
    return stored.store.pushes


@pytest.fixture
def queues(stored: Stored) -> SendQueues:
    if stored.database is not None:
        return PostgresSendQueues(stored.database)
    assert isinstance(stored.ledger, MemoryLedger)
    assert isinstance(stored.store, MemoryStore)
    return MemorySendQueues(stored.ledger.webhooks, stored.store.pushes)


async def test_a_webhook_waits_from_its_event_to_its_last_attempt(
    stored: Stored, webhooks: WebhookStore, queues: SendQueues
) -> None:
    session, events = recorded(a_session(), Event(EventKind.CREATED, T0))
    mine = session.terms.consumer_workspace_id
    endpoint = WebhookEndpoint(
        id=an_id(),
        workspace_id=mine,
        url="https://example.com/hook",
        description="",
        event_types=frozenset(),
        created_at_ms=T0,
    )
    assert await webhooks.add_endpoint(endpoint, limit=ENDPOINTS_MAX)
    assert await queues.unsent() == NOTHING
    write = SessionWrite(lease=stored.lease(), session=session, at_ms=T0, due_at_ms=None, events=events)
    assert isinstance(await stored.store.write_session(write), Committed)
    assert await queues.unsent() == A_WEBHOOK, "an event is in the outbox"
    (row,) = await webhooks.outbox(limit=10)
    await webhooks.postpone([row.number], for_ms=60_000)
    assert await queues.unsent() == NOTHING, "the event is postponed"
    message = WebhookMessage(
        id=an_id(), workspace_id=mine, type=WebhookEventType.SESSION_REQUESTED, at_ms=T0, body="{}"
    )
    await webhooks.publish([(row.number, message)], now_ms=T0)
    assert await queues.unsent() == A_WEBHOOK, "a delivery is due"
    (job,) = await webhooks.claim_deliveries(limit=10, failing_max=10)
    failed = AttemptRecord(is_delivered=False, status=503, error="status", retry_in_ms=0)
    await webhooks.record_attempt(job, failed)
    assert await queues.unsent() == A_WEBHOOK, "it is tried again"
    (job,) = await webhooks.claim_deliveries(limit=10, failing_max=10)
    await webhooks.record_attempt(job, AttemptRecord(is_delivered=True, status=204))
    assert await queues.unsent() == NOTHING


async def test_a_push_waits_until_it_is_finished(stored: Stored, pushes: PushStore, queues: SendQueues) -> None:
    mine = an_id()
    subscription = PushSubscription(
        id=an_id(),
        workspace_id=mine,
        endpoint="https://push.example.com/1",
        p256dh=b"p" * 65,
        auth=b"a" * 16,
        key_id=None,
        wallet=PAYEE,
        renewed_at_ms=T0,
    )
    await pushes.add_subscription(subscription, limit=1)
    assigned = in_phase(a_session(id=an_id()), SessionState.ASSIGNED, an_operator(mine))
    session, events = recorded(assigned, Event(EventKind.ASSIGNED, T0))
    write = SessionWrite(lease=stored.lease(), session=session, at_ms=T0, due_at_ms=None, events=events)
    assert await queues.unsent() == NOTHING
    assert isinstance(await stored.store.write_session(write), Committed)
    assert await queues.unsent() == A_PUSH
    (job,) = await pushes.claim_pushes(limit=10)
    await pushes.finish_push(job)
    assert await queues.unsent() == NOTHING
