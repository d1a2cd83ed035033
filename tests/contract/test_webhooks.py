"""The contract of every webhook store, tested on memory and on Postgres: endpoints, outbox, deliveries."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

import pytest

from sightline.domain.operator.model import Availability
from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import SessionState
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.domain.webhooks import ENDPOINTS_MAX, DeliveryState, DisabledReason, WebhookEventType
from sightline.ports.ledger import (
    BlockApplication,
    BlockRef,
    ChainEvent,
    Inclusion,
    LedgerEventKind,
    LedgerQuery,
)
from sightline.ports.store import (
    CallRecordedError,
    Committed,
    IdempotencyKey,
    IdempotencyRecord,
    SessionWrite,
    WorkspaceWrite,
)
from sightline.ports.webhooks import (
    AttemptRecord,
    DeliveryJob,
    DeliveryQuery,
    EndpointChange,
    OutboxRow,
    ReplayedEvents,
    WebhookEndpoint,
    WebhookMessage,
    WebhookStore,
)
from sightline.storage.postgres.webhooks.store import PostgresWebhooks
from simulation.memory.ledger import MemoryLedger
from tests.contract.builders import (
    PAYEE,
    T0,
    a_session,
    a_settlement,
    a_workspace,
    an_id,
    an_operator,
    in_phase,
    recorded,
)
from tests.contract.conftest import Stored

LIVE, ENDED = WebhookEventType.SESSION_LIVE, WebhookEventType.SESSION_ENDED


@dataclass
class Hooks:
    """A webhook store, and the other stores whose writes fill its outbox."""

    stored: Stored
    store: WebhookStore

    async def endpoint(self, workspace_id: str, *types: WebhookEventType) -> WebhookEndpoint:
        made = an_endpoint(workspace_id, event_types=frozenset(types))
        assert await self.store.add_endpoint(made, limit=ENDPOINTS_MAX)
        return made

    async def publish(self, *rows: OutboxRow) -> list[WebhookMessage]:
        """Publish rows of the outbox, all if none are given."""
        prepared = [(row.number, a_message(row)) for row in rows or await self.store.outbox(limit=100)]
        assert await self.store.publish(prepared, now_ms=T0) == len(prepared)
        return [message for _, message in prepared]

    async def event(self, endpoint: WebhookEndpoint, at_ms: int = T0) -> WebhookMessage:
        """One published event of the endpoint's workspace: its availability changed."""
        shard, workspace = self.stored.lease(), a_workspace(id=endpoint.workspace_id)
        for availability in (Availability.OFFLINE, Availability.ONLINE):
            workspace = replace(workspace, availability=availability)
            result = await self.stored.store.write_workspace(
                WorkspaceWrite(lease=shard, workspace=workspace, at_ms=at_ms)
            )
            assert isinstance(result, Committed)
            workspace = replace(workspace, version=result.version)
        return (await self.publish())[-1]

    async def claim(self) -> list[DeliveryJob]:
        return list(await self.store.claim_deliveries(limit=100, failing_max=100))

    async def states(self, endpoint: WebhookEndpoint) -> list[DeliveryState]:
        found = await self.store.deliveries(DeliveryQuery(endpoint_id=endpoint.id, limit=100))
        return [delivery.state for delivery in found]


@pytest.fixture
async def hooks(stored: Stored) -> AsyncIterator[Hooks]:
    if stored.database is not None:
        yield Hooks(stored, PostgresWebhooks(stored.database))
    else:
        assert isinstance(stored.ledger, MemoryLedger)
        yield Hooks(stored, stored.ledger.webhooks)


def an_endpoint(workspace_id: str, **changes: object) -> WebhookEndpoint:
    made = WebhookEndpoint(
        id=an_id(),
        workspace_id=workspace_id,
        url="https://example.com/hook",
        description="Gate Nörd",
        event_types=frozenset(),
        created_at_ms=T0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


def a_message(row: OutboxRow) -> WebhookMessage:
    body = f'{{"type":"{row.type}"}}'
    return WebhookMessage(id=an_id(), workspace_id=row.workspace_id, type=row.type, at_ms=row.at_ms, body=body)


FAILED = AttemptRecord(is_delivered=False, status=503, error="status", retry_in_ms=60_000)
DELIVERED = AttemptRecord(is_delivered=True, status=204)


# Endpoints.


async def test_endpoints_are_listed_oldest_first_and_only_to_their_workspace(hooks: Hooks) -> None:
    mine, other = an_id(), an_id()
    second = an_endpoint(mine, created_at_ms=T0 + 5, event_types=frozenset({LIVE, ENDED}))
    first = an_endpoint(mine)
    for each in (second, first, an_endpoint(other)):
        assert await hooks.store.add_endpoint(each, limit=ENDPOINTS_MAX)
    assert list(await hooks.store.endpoints(mine)) == [first, second]
    assert await hooks.store.endpoint(mine, second.id) == second
    assert await hooks.store.endpoint(other, second.id) is None


async def test_a_workspace_gets_no_endpoint_above_the_limit(hooks: Hooks) -> None:
    mine = an_id()
    assert [await hooks.store.add_endpoint(an_endpoint(mine), limit=2) for _ in range(3)] == [True, True, False]
    assert len(await hooks.store.endpoints(mine)) == 2


async def test_a_change_leaves_other_fields_and_enabling_ends_a_failure(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id(), LIVE)
    change = EndpointChange(url="https://example.org/", is_enabled=False)
    changed = await hooks.store.change_endpoint(made.workspace_id, made.id, change, now_ms=T0 + 1)
    disabled = replace(made, url="https://example.org/", disabled_reason=DisabledReason.OWNER, disabled_at_ms=T0 + 1)
    assert changed == disabled
    enabled = EndpointChange(event_types=frozenset(), is_enabled=True)
    changed = await hooks.store.change_endpoint(made.workspace_id, made.id, enabled, now_ms=T0 + 2)
    assert changed == replace(disabled, disabled_reason=None, disabled_at_ms=None, event_types=frozenset())
    assert await hooks.store.change_endpoint(an_id(), made.id, change, now_ms=T0) is None


async def test_a_rotation_is_done_once_for_the_generation_it_was_asked_from(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    for now_ms in (T0 + 1, T0 + 2):
        rotated = await hooks.store.rotate_endpoint(made.workspace_id, made.id, from_generation=1, now_ms=now_ms)
        assert rotated == replace(made, generation=2, rotations_ms=(T0 + 1,))


async def test_an_endpoint_keeps_the_instants_of_its_last_three_rotations(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    for generation in range(1, 5):
        now_ms = T0 + generation
        await hooks.store.rotate_endpoint(made.workspace_id, made.id, from_generation=generation, now_ms=now_ms)
    found = await hooks.store.endpoint(made.workspace_id, made.id)
    assert found == replace(made, generation=5, rotations_ms=(T0 + 4, T0 + 3, T0 + 2))


async def test_a_call_adds_and_rotates_an_endpoint_once(hooks: Hooks) -> None:
    made = an_endpoint(an_id())

    def call(path: str) -> IdempotencyRecord:
        key = IdempotencyKey(workspace_id=made.workspace_id, method="POST", path=path, key="k", body_hash="h")
        return IdempotencyRecord(key=key, result={}, at_ms=T0)

    assert await hooks.store.add_endpoint(made, limit=9, call=call("/webhooks"))
    with pytest.raises(CallRecordedError):
        await hooks.store.add_endpoint(an_endpoint(made.workspace_id), limit=9, call=call("/webhooks"))
    assert await hooks.store.endpoints(made.workspace_id) == [made]
    rotate = partial(hooks.store.rotate_endpoint, made.workspace_id, made.id, now_ms=T0, call=call("/rotate"))
    rotated = await rotate(from_generation=1)
    with pytest.raises(CallRecordedError):
        await rotate(from_generation=2)
    assert await hooks.store.endpoint(made.workspace_id, made.id) == rotated


async def test_a_removed_endpoint_is_gone_and_nothing_is_sent_to_it(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    await hooks.event(made)
    assert await hooks.store.remove_endpoint(an_id(), made.id) is None
    assert await hooks.store.remove_endpoint(made.workspace_id, made.id) == made
    assert await hooks.store.endpoint(made.workspace_id, made.id) is None
    assert await hooks.claim() == []


# The outbox is written with the event.


async def test_a_session_event_reaches_the_outbox_of_both_parties_with_the_committed_row(hooks: Hooks) -> None:
    operator = an_operator()
    session = a_session()
    consumer_id = session.terms.consumer_workspace_id
    for workspace_id in (consumer_id, operator.workspace_id):
        await hooks.endpoint(workspace_id)
    requested, created = recorded(session, Event(EventKind.CREATED, T0))
    write = SessionWrite(lease=hooks.stored.lease(), session=requested, at_ms=T0 + 7, due_at_ms=None, events=created)
    assert isinstance(await hooks.stored.store.write_session(write), Committed)
    assigned, events = recorded(
        replace(in_phase(requested, SessionState.ASSIGNED, operator), version=1),
        Event(EventKind.ASSIGNED, T0 + 9),
        Event(EventKind.MEDIA_LOST, T0 + 9),
    )
    write = replace(write, session=assigned, at_ms=T0 + 10, events=events)
    assert isinstance(await hooks.stored.store.write_session(write), Committed)
    rows = await hooks.store.outbox(limit=10)
    told = sorted((row.type.value, row.workspace_id, row.sequence, row.at_ms, row.stored_at_ms) for row in rows)
    assert told == sorted(
        [
            ("session.requested", consumer_id, 1, T0, T0 + 7),
            ("session.assigned", consumer_id, 2, T0 + 9, T0 + 10),
            ("session.assigned", operator.workspace_id, 2, T0 + 9, T0 + 10),
        ]
    )
    assert rows[-1].subject == replace(assigned, version=2)


async def test_a_request_that_is_open_again_is_told_as_requested(hooks: Hooks) -> None:
    session, events = recorded(a_session(), Event(EventKind.CREATED, T0), Event(EventKind.REOPENED, T0 + 9))
    await hooks.endpoint(session.terms.consumer_workspace_id)
    write = SessionWrite(lease=hooks.stored.lease(), session=session, at_ms=T0 + 9, due_at_ms=None, events=events)
    assert isinstance(await hooks.stored.store.write_session(write), Committed)
    rows = await hooks.store.outbox(limit=10)
    assert [(row.type.value, row.sequence) for row in rows] == [("session.requested", 1), ("session.requested", 2)]


async def test_an_extension_is_told(hooks: Hooks) -> None:
    session, events = recorded(a_session(), Event(EventKind.CREATED, T0), Event(EventKind.EXTENDED, T0 + 9))
    await hooks.endpoint(session.terms.consumer_workspace_id)
    write = SessionWrite(lease=hooks.stored.lease(), session=session, at_ms=T0 + 9, due_at_ms=None, events=events)
    assert isinstance(await hooks.stored.store.write_session(write), Committed)
    rows = await hooks.store.outbox(limit=10)
    assert [(row.type.value, row.sequence) for row in rows] == [("session.requested", 1), ("session.extended", 2)]


async def test_a_rejected_write_leaves_nothing_in_the_outbox(hooks: Hooks) -> None:
    session, events = recorded(a_session(), Event(EventKind.CREATED, T0))
    await hooks.endpoint(session.terms.consumer_workspace_id)
    stale = replace(session, version=4)
    write = SessionWrite(lease=hooks.stored.lease(), session=stale, at_ms=T0, due_at_ms=None, events=events)
    assert not isinstance(await hooks.stored.store.write_session(write), Committed)
    assert await hooks.store.outbox(limit=10) == []


async def test_a_workspace_without_an_endpoint_fills_no_outbox(hooks: Hooks) -> None:
    await hooks.endpoint(an_id())
    session, events = recorded(a_session(), Event(EventKind.CREATED, T0))
    write = SessionWrite(lease=hooks.stored.lease(), session=session, at_ms=T0, due_at_ms=None, events=events)
    assert isinstance(await hooks.stored.store.write_session(write), Committed)
    assert await hooks.store.outbox(limit=10) == []


async def test_only_a_change_of_availability_is_an_event_of_the_workspace(hooks: Hooks) -> None:
    workspace = a_workspace()
    await hooks.endpoint(workspace.id)
    for availability, name in (("OFFLINE", "a"), ("OFFLINE", "b"), ("ONLINE", "b"), ("BUSY", "b")):
        workspace = replace(workspace, availability=Availability(availability), name=name)
        write = WorkspaceWrite(lease=hooks.stored.lease(), workspace=workspace, at_ms=T0 + workspace.version)
        result = await hooks.stored.store.write_workspace(write)
        assert isinstance(result, Committed)
        workspace = replace(workspace, version=result.version)
    rows = await hooks.store.outbox(limit=10)
    assert [(row.type.value, row.sequence, row.at_ms) for row in rows] == [
        ("workspace.availability", 3, T0 + 2),
        ("workspace.availability", 4, T0 + 3),
    ]
    assert rows[1].subject == workspace


async def test_a_settlement_is_told_when_confirmed_and_again_only_after_another_transaction(hooks: Hooks) -> None:
    session = in_phase(a_session(), SessionState.ENDED)
    payload = a_settlement(session)
    await hooks.endpoint(payload.consumer_workspace_id)
    await hooks.endpoint(payload.operator_workspace_id)
    ledger = hooks.stored.ledger
    await ledger.compose(payload, now_ms=T0)
    inclusion = Inclusion(tx_hash="0xaa", block_number=5, block_hash="0xb5")
    await ledger.mark_mined(session.id, inclusion, now_ms=T0 + 1)
    assert await hooks.store.outbox(limit=10) == []
    for now_ms in (T0 + 2, T0 + 3):
        await ledger.mark_confirmed(session.id, inclusion, now_ms=now_ms)
    rows = await hooks.store.outbox(limit=10)
    assert {row.workspace_id for row in rows} == {payload.consumer_workspace_id, payload.operator_workspace_id}
    assert [(row.type.value, row.at_ms, row.sequence) for row in rows] == [("settlement.confirmed", T0 + 2, T0 + 2)] * 2
    assert rows[0].subject == await ledger.settlement(session.id)
    moved = Inclusion(tx_hash="0xaa", block_number=6, block_hash="0xc6")
    await ledger.mark_confirmed(session.id, moved, now_ms=T0 + 4)
    assert len(await hooks.store.outbox(limit=10)) == 2
    await ledger.mark_unmined(session.id, reason="reorganised", now_ms=T0 + 4)
    again = Inclusion(tx_hash="0xbb", block_number=6, block_hash="0xb6")
    await ledger.mark_confirmed(session.id, again, now_ms=T0 + 5)
    assert [row.subject for row in (await hooks.store.outbox(limit=10))[2:]] == [
        await ledger.settlement(session.id)
    ] * 2


async def test_a_settlement_with_other_amounts_is_told_once_for_each_transaction(hooks: Hooks) -> None:
    session = in_phase(a_session(), SessionState.ENDED)
    payload, ledger = a_settlement(session), hooks.stored.ledger
    await hooks.endpoint(payload.consumer_workspace_id)
    await ledger.compose(payload, now_ms=T0)
    on_chain = replace(payload, to_amount=MicroUsdc(2**70), chargeable_seconds=2**70, rate=MicroUsdc(1))
    for number, tx_hash in enumerate(("0xaa", "0xaa", "0xbb"), start=1):
        inclusion = Inclusion(tx_hash=tx_hash, block_number=5, block_hash="0xb5")
        await ledger.mark_mismatched(session.id, inclusion, on_chain, now_ms=T0 + number)
    rows = await hooks.store.outbox(limit=10)
    assert [row.at_ms for row in rows] == [T0 + 1, T0 + 3]
    assert rows[1].subject == await ledger.settlement(session.id)


async def test_a_deposit_is_told_when_it_is_confirmed(hooks: Hooks) -> None:
    mine, other, ledger = an_id(), an_id(), hooks.stored.ledger
    for workspace_id, address in ((mine, PAYEE), (other, "0x" + "ff" * 20)):
        await hooks.endpoint(workspace_id)
        await ledger.track(workspace_id, address, now_ms=T0)
    blocks = [BlockRef(number=n, block_hash=f"0x{n}", parent_hash=f"0x{n - 1}") for n in (0, 1, 2)]
    events = tuple(
        ChainEvent(
            address=PAYEE.lower(),
            kind=kind,
            tx_hash=f"0xt{kind}",
            log_index=3,
            block_number=1,
            block_hash="0x1",
            from_address="0x" + "0" * 40,
            to_address=PAYEE.lower(),
            amount_micro=2**70,
            session_id_hash=None,
        )
        for kind in (LedgerEventKind.DEPOSIT, LedgerEventKind.APPROVAL)
    )

    async def apply(number: int, confirmed: int, previous: BlockRef | None, *, found: bool = False) -> None:
        application = BlockApplication(
            headers=(blocks[number],), events=events if found else (), readings=(), settled=(), head=blocks[number],
            confirmed_block=confirmed, previous=previous,
        )  # fmt: skip
        await ledger.apply_blocks(application, now_ms=T0 + number)

    await apply(0, -1, None)
    await apply(1, 0, blocks[0], found=True)
    assert await hooks.store.outbox(limit=10) == []
    await apply(2, 1, blocks[1])
    (row,) = await hooks.store.outbox(limit=10)
    assert (row.type.value, row.workspace_id, row.at_ms) == ("wallet.deposit", mine, T0 + 2)
    deposit = (await ledger.ledger(mine, LedgerQuery(limit=1, kinds=(LedgerEventKind.DEPOSIT,))))[0]
    assert row.subject == deposit
    assert (deposit.amount_micro, deposit.confirmations) == (2**70, 2)


# From the outbox to deliveries.


async def test_an_event_is_published_once_and_queued_for_the_endpoints_that_want_it(hooks: Hooks) -> None:
    mine = an_id()
    everything, other = await hooks.endpoint(mine), await hooks.endpoint(mine, LIVE)
    off = await hooks.endpoint(mine)
    await hooks.store.change_endpoint(mine, off.id, EndpointChange(is_enabled=False), now_ms=T0)
    await hooks.event(everything)
    assert await hooks.states(everything) == [DeliveryState.PENDING]
    assert await hooks.states(other) == []
    assert await hooks.states(off) == []


async def test_a_row_that_another_process_published_is_skipped(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    await hooks.event(made)
    assert await hooks.store.publish([(1, (await hooks.claim())[0].message)], now_ms=T0) == 0


async def test_a_postponed_row_leaves_the_way_free_for_others(hooks: Hooks) -> None:
    session, events = recorded(a_session(), Event(EventKind.CREATED, T0))
    await hooks.endpoint(session.terms.consumer_workspace_id)
    write = SessionWrite(lease=hooks.stored.lease(), session=session, at_ms=T0, due_at_ms=None, events=events)
    assert isinstance(await hooks.stored.store.write_session(write), Committed)
    (row,) = await hooks.store.outbox(limit=10)
    await hooks.store.postpone([row.number], for_ms=60_000)
    assert await hooks.store.outbox(limit=10) == []
    await hooks.store.postpone([row.number], for_ms=-1)
    assert await hooks.store.outbox(limit=10) == [row]


async def test_a_claimed_delivery_is_not_claimed_again_and_two_are_in_flight_at_most(hooks: Hooks) -> None:
    made, busy = await hooks.endpoint(an_id()), await hooks.endpoint(an_id())
    for _ in range(3):
        await hooks.store.enqueue(busy.id, a_ping(busy), now_ms=T0)
    await hooks.store.enqueue(made.id, a_ping(made), now_ms=T0)
    first = await hooks.claim()
    assert sorted(job.endpoint.id for job in first) == sorted([busy.id, busy.id, made.id])
    assert await hooks.claim() == []
    done = next(job for job in first if job.endpoint.id == busy.id)
    assert await hooks.store.record_attempt(done, DELIVERED) is None
    (third,) = await hooks.claim()
    assert third.endpoint == busy
    assert third.number not in {job.number for job in first}


async def test_failing_endpoints_get_no_more_than_their_share_of_a_claim(hooks: Hooks) -> None:
    failing = [await hooks.endpoint(an_id()) for _ in range(3)]
    for each in failing:
        await hooks.store.enqueue(each.id, a_ping(each), now_ms=T0)
    for job in await hooks.claim():
        await hooks.store.record_attempt(job, replace(FAILED, retry_in_ms=0))
    works = await hooks.endpoint(an_id())
    await hooks.store.enqueue(works.id, a_ping(works), now_ms=T0)
    claimed = await hooks.store.claim_deliveries(limit=10, failing_max=1)
    assert [job.endpoint.id == works.id for job in claimed].count(True) == 1
    assert len(claimed) == 2


async def test_a_workspace_has_eight_deliveries_in_flight_at_most_and_workspaces_take_turns(hooks: Hooks) -> None:
    crowd = an_id()
    for _ in range(10):
        each = await hooks.endpoint(crowd)
        await hooks.store.enqueue(each.id, a_ping(each), now_ms=T0)
    other = await hooks.endpoint(an_id())
    await hooks.store.enqueue(other.id, a_ping(other), now_ms=T0)
    two = await hooks.store.claim_deliveries(limit=2, failing_max=2)
    assert {job.endpoint.workspace_id for job in two} == {crowd, other.workspace_id}
    rest = await hooks.claim()
    assert [job.endpoint.workspace_id for job in rest] == [crowd] * 7
    assert await hooks.claim() == []
    await hooks.store.record_attempt(rest[0], DELIVERED)
    assert len(await hooks.claim()) == 1


async def test_an_endpoint_that_answers_slowly_shares_places_with_the_failing_ones(hooks: Hooks) -> None:
    slow, works = await hooks.endpoint(an_id()), await hooks.endpoint(an_id())
    await hooks.store.enqueue(slow.id, a_ping(slow), now_ms=T0)
    (job,) = await hooks.claim()
    assert await hooks.store.record_attempt(job, replace(DELIVERED, is_slow=True)) is None
    for each in (slow, works):
        await hooks.store.enqueue(each.id, a_ping(each), now_ms=T0)
    (claimed,) = await hooks.store.claim_deliveries(limit=10, failing_max=0)
    assert claimed.endpoint == works
    (job,) = await hooks.claim()
    assert job.endpoint.is_slow
    await hooks.store.record_attempt(job, DELIVERED)
    found = await hooks.store.endpoint(slow.workspace_id, slow.id)
    assert found is not None
    assert not found.is_slow


async def test_a_failed_attempt_waits_and_the_last_one_fails_the_delivery(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    message = await hooks.event(made)
    (job,) = await hooks.claim()
    assert await hooks.store.record_attempt(job, FAILED) is None
    assert await hooks.claim() == []
    delivery = await hooks.store.delivery(made.id, message.id)
    assert delivery is not None
    assert (delivery.state, delivery.attempts, delivery.last_status) == (DeliveryState.PENDING, 1, 503)
    assert delivery.next_attempt_at_ms is not None
    assert await hooks.store.record_attempt(job, DELIVERED) is None, "the attempt of an expired claim is ignored"
    assert await hooks.states(made) == [DeliveryState.PENDING]
    last = replace(job, attempts=1, step=1)
    await hooks.store.record_attempt(last, replace(FAILED, retry_in_ms=None))
    assert await hooks.states(made) == [DeliveryState.FAILED]


async def test_a_delivered_message_stays_delivered_until_it_is_sent_again(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    message = await hooks.event(made)
    (job,) = await hooks.claim()
    await hooks.store.record_attempt(job, DELIVERED)
    assert await hooks.claim() == []
    assert await hooks.states(made) == [DeliveryState.DELIVERED]
    assert await hooks.store.resend(made.id, an_id()) is None
    again = await hooks.store.resend(made.id, message.id)
    assert again is not None
    assert again.state is DeliveryState.PENDING
    (job,) = await hooks.claim()
    assert (job.message, job.attempts, job.step) == (message, 1, 0)


async def test_410_disables_the_endpoint_and_a_delivery_ends_its_failure(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    await hooks.event(made)
    (job,) = await hooks.claim()
    await hooks.store.record_attempt(job, replace(FAILED, retry_in_ms=0))
    failing = await hooks.store.endpoint(made.workspace_id, made.id)
    assert failing is not None
    assert failing.failing_since_ms is not None
    (job,) = await hooks.claim()
    await hooks.store.record_attempt(job, DELIVERED)
    assert await hooks.store.endpoint(made.workspace_id, made.id) == made
    await hooks.store.enqueue(made.id, a_ping(made), now_ms=T0)
    (job,) = await hooks.claim()
    gone = replace(FAILED, status=410, retry_in_ms=0, is_gone=True)
    assert await hooks.store.record_attempt(job, gone) is DisabledReason.GONE
    assert await hooks.claim() == []


async def test_a_replay_queues_events_since_an_instant_and_not_those_that_wait(hooks: Hooks) -> None:
    mine = await hooks.endpoint(an_id())
    await hooks.event(mine)
    (job,) = await hooks.claim()
    await hooks.store.record_attempt(job, DELIVERED)
    late = await hooks.endpoint(mine.workspace_id)
    since = T0
    assert await hooks.store.replay(late, since_ms=since + 1, limit=10, now_ms=T0) == ReplayedEvents(count=0)
    assert await hooks.store.replay(late, since_ms=since, limit=10, now_ms=T0) == ReplayedEvents(count=1)
    assert await hooks.store.replay(late, since_ms=since, limit=10, now_ms=T0) == ReplayedEvents(count=0)
    again = await hooks.store.replay(mine, since_ms=since, limit=1, now_ms=T0)
    assert again == ReplayedEvents(count=1, next_since_ms=since + 1)
    assert sorted(job.endpoint.id for job in await hooks.claim()) == sorted([mine.id, late.id])


async def test_a_replay_sends_what_waits_for_a_later_attempt_at_once(hooks: Hooks) -> None:
    mine = await hooks.endpoint(an_id())
    await hooks.event(mine)
    (job,) = await hooks.claim()
    await hooks.store.record_attempt(job, replace(FAILED, retry_in_ms=86_400_000))
    assert await hooks.claim() == []
    assert await hooks.store.replay(mine, since_ms=T0, limit=10, now_ms=T0) == ReplayedEvents(count=1)
    (again,) = await hooks.claim()
    assert again.message.id == job.message.id
    assert await hooks.store.replay(mine, since_ms=T0, limit=10, now_ms=T0) == ReplayedEvents(count=0)


async def test_a_replay_sends_the_pings_that_wait_at_once_and_no_others(hooks: Hooks) -> None:
    mine = await hooks.endpoint(an_id(), LIVE)
    other = await hooks.endpoint(mine.workspace_id)
    for each in (mine, mine, other):
        await hooks.store.enqueue(each.id, a_ping(each), now_ms=T0)
    waits, arrived, _ = sorted(await hooks.claim(), key=lambda job: (job.endpoint.id != mine.id, job.number))
    await hooks.store.record_attempt(waits, replace(FAILED, retry_in_ms=86_400_000))
    await hooks.store.record_attempt(arrived, DELIVERED)
    assert await hooks.store.replay(mine, since_ms=T0, limit=10, now_ms=T0) == ReplayedEvents(count=1)
    (again,) = await hooks.claim()
    assert again.message.id == waits.message.id


async def test_deliveries_are_paged_newest_first_and_chosen_by_state(hooks: Hooks) -> None:
    made = await hooks.endpoint(an_id())
    sent = [(await hooks.store.enqueue(made.id, a_ping(made), now_ms=T0)).number for _ in range(3)]
    first = await hooks.store.deliveries(DeliveryQuery(endpoint_id=made.id, limit=2))
    rest = await hooks.store.deliveries(DeliveryQuery(endpoint_id=made.id, limit=2, before_number=first[-1].number))
    assert [each.number for each in (*first, *rest)] == sorted(sent, reverse=True)
    failed = DeliveryQuery(endpoint_id=made.id, limit=2, state=DeliveryState.FAILED)
    assert await hooks.store.deliveries(failed) == []


async def test_the_backlog_counts_what_waits_for_enabled_endpoints(hooks: Hooks) -> None:
    made, off = await hooks.endpoint(an_id()), await hooks.endpoint(an_id())
    for each in (made, off):
        await hooks.store.enqueue(each.id, a_ping(each), now_ms=T0)
    await hooks.store.change_endpoint(off.workspace_id, off.id, EndpointChange(is_enabled=False), now_ms=T0)
    backlog = await hooks.store.backlog()
    assert (backlog.outbox, backlog.pending) == (0, 1)
    assert (backlog.endpoints, backlog.endpoints_failing, backlog.endpoints_disabled) == (2, 0, 1)


def a_ping(endpoint: WebhookEndpoint) -> WebhookMessage:
    return WebhookMessage(
        id=an_id(), workspace_id=endpoint.workspace_id, type=WebhookEventType.PING, at_ms=T0, body="{}"
    )
