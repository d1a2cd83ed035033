"""The delivery service on virtual time: schedule, limits, dead endpoints, failures of the store, and of the process."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.domain.units import DAY_MS
from sightline.domain.webhooks import RETRY_SECONDS, DeliveryState, DisabledReason, WebhookEventType, retry_in_ms
from sightline.ports.webhooks import (
    LEASE_MS,
    AttemptRecord,
    DeliveryJob,
    DeliveryQuery,
    EndpointChange,
    OutboxRow,
    WebhookEndpoint,
)
from sightline.system.ids import SystemIds
from sightline.webhooks.delivery import DeliveryOptions, WebhookDispatcher
from sightline.webhooks.http_client import SendOutcome
from sightline.webhooks.sends import UnsentWatch
from sightline.webhooks.service import WebhookEndpoints
from sightline.webhooks.signing import WebhookSigner
from simulation.memory.pushes import MemoryPushes, MemorySendQueues
from simulation.memory.webhooks import MemoryWebhooks

IDLE_S = 60.0
OK, BAD = SendOutcome(status=204), SendOutcome(503, "bad_status")


class VirtualClock:
    """Server time of the test's clock."""

    def now_ms(self) -> int:
        return 1_760_000_000_000 + round(trio.current_time() * 1_000)


@dataclass
class ScriptedClient:
    """Stands for the network: answers as a test says, after a time that a test says."""

    answer: Callable[[str], SendOutcome] = lambda _: OK
    takes_s: Callable[[str], float] = lambda _: 0.05
    sent: list[tuple[float, str, str]] = field(default_factory=list)
    in_flight: dict[str, int] = field(default_factory=dict)
    most_in_flight: dict[str, int] = field(default_factory=dict)
    expected: tuple[str, int] | None = None
    """A URL and a number of requests; `delivered` is set when that many were answered."""
    delivered: trio.Event = field(default_factory=trio.Event)

    async def post(self, url: str, headers: dict[str, str], body: str) -> SendOutcome:
        self.sent.append((trio.current_time(), url, headers["webhook-id"]))
        self.in_flight[url] = self.in_flight.get(url, 0) + 1
        self.most_in_flight[url] = max(self.most_in_flight.get(url, 0), self.in_flight[url])
        try:
            await trio.sleep(self.takes_s(url))
        finally:
            self.in_flight[url] -= 1
        if self.expected == (url, len(self.times(url))) and not self.in_flight[url]:
            self.delivered.set()
        return self.answer(url)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    def times(self, url: str) -> list[float]:
        return [at for at, to, _ in self.sent if to == url]


class Desk:
    """A store, the service that customers call, and dispatchers on it."""

    def __init__(self) -> None:
        self.clock, self.ids = VirtualClock(), SystemIds()
        self.store = MemoryWebhooks(self.clock.now_ms)
        self.client = ScriptedClient()
        self.signer = WebhookSigner(b"r" * 32)
        self.service = WebhookEndpoints(self.store, self.signer, self.render, self.clock, self.ids)

    def render(self, row: OutboxRow) -> str:
        return f'{{"type":"{row.type}"}}'

    @asynccontextmanager
    async def dispatching(self, *, idle_s: float = 0.5) -> AsyncIterator[WebhookDispatcher]:
        """A process that delivers; it is killed at the end of the block. Days of virtual time need a long `idle_s`."""
        dispatcher = WebhookDispatcher(
            self.store, self.client, self.signer, self.render,  # type: ignore[arg-type]  # stands for the client
            clock=self.clock, ids=self.ids, rng=random.Random(1),
            options=DeliveryOptions(backlog_every_s=30 * idle_s),
        )  # fmt: skip
        queues = MemorySendQueues(self.store, MemoryPushes({}.get))
        watch = UnsentWatch(queues, webhooks=dispatcher.wake, pushes=lambda: None, every_s=idle_s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatcher.run)
            nursery.start_soon(watch.run)
            yield dispatcher
            nursery.cancel_scope.cancel()

    async def endpoint(self, url: str = "https://example.com/") -> WebhookEndpoint:
        workspace_id = self.ids.uuid()
        made, _ = await self.service.create(workspace_id, url=url, description="", event_types=())
        return made

    async def ping(self, endpoint: WebhookEndpoint, count: int = 1) -> None:
        for _ in range(count):
            await self.service.ping(endpoint.workspace_id, endpoint.id)

    async def states(self, endpoint: WebhookEndpoint) -> list[DeliveryState]:
        rows = await self.store.deliveries(DeliveryQuery(endpoint_id=endpoint.id, limit=1_000))
        return [row.state for row in rows]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_the_schedule_adds_jitter_obeys_retry_after_and_ends() -> None:
    assert retry_in_ms(0, 0.0, None) == 5_000
    assert 5_000 < (retry_in_ms(0, 0.99, None) or 0) < 6_000
    assert retry_in_ms(0, 0.5, 120) == 120_000
    assert retry_in_ms(1, 0.0, 120) == 300_000
    assert retry_in_ms(0, 0.0, 10**9) == DAY_MS
    assert retry_in_ms(len(RETRY_SECONDS), 0.0, 120) is None


async def test_a_dead_endpoint_is_tried_ten_times_on_the_schedule_and_then_given_up(
    desk: Desk, autojump_clock: MockClock
) -> None:
    desk.client.answer = lambda _: BAD
    made = await desk.endpoint()
    await desk.ping(made)
    async with desk.dispatching(idle_s=IDLE_S) as dispatcher:
        await trio.sleep(sum(RETRY_SECONDS) * 1.2 + 600)
    times = desk.client.times(made.url)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert len(waits) == len(RETRY_SECONDS)
    for wait, promised in zip(waits, RETRY_SECONDS, strict=True):
        assert promised <= wait <= promised * 1.2 + IDLE_S + 1
    assert await desk.states(made) == [DeliveryState.FAILED]
    assert dispatcher.statistics.given_up == 1
    assert len({webhook_id for _, _, webhook_id in desk.client.sent}) == 1


async def test_retry_after_of_the_endpoint_is_kept(desk: Desk, autojump_clock: MockClock) -> None:
    answers = [SendOutcome(503, "bad_status", 3_600), OK]
    desk.client.answer = lambda _: answers.pop(0)
    made = await desk.endpoint()
    await desk.ping(made)
    async with desk.dispatching():
        await trio.sleep(4_000)
    first, second = desk.client.times(made.url)
    assert 3_600 <= second - first < 3_602
    assert await desk.states(made) == [DeliveryState.DELIVERED]


async def test_five_days_of_failure_disable_the_endpoint_and_enabling_it_sends_what_waits(
    desk: Desk, autojump_clock: MockClock
) -> None:
    desk.client.answer = lambda _: BAD
    made = await desk.endpoint()
    async with desk.dispatching(idle_s=IDLE_S) as dispatcher:
        for _ in range(6):
            await desk.ping(made)
            await trio.sleep(86_400)
        found = await desk.store.endpoint(made.workspace_id, made.id)
        assert found is not None
        assert found.disabled_reason is DisabledReason.FAILING
        assert dispatcher.statistics.disabled == 1
        sent = len(desk.client.sent)
        await trio.sleep(7 * 86_400)
        assert len(desk.client.sent) == sent, "nothing is sent to a disabled endpoint"
        desk.client.answer = lambda _: OK
        await desk.service.change(made.workspace_id, made.id, EndpointChange(is_enabled=True))
        await trio.sleep(2 * IDLE_S)
    assert DeliveryState.PENDING not in await desk.states(made)


async def test_eighty_slow_endpoints_of_four_workspaces_delay_nobody_else(
    desk: Desk, autojump_clock: MockClock
) -> None:
    slow = "https://slow.example/"
    desk.client.takes_s = lambda url: 14.0 if url.startswith(slow) else 0.05
    for workspace_id in [desk.ids.uuid() for _ in range(4)]:
        for number in range(20):
            made, _ = await desk.service.create(workspace_id, url=f"{slow}{number}", description="", event_types=())
            await desk.ping(made, 6)
    other = await desk.endpoint()
    async with desk.dispatching():
        for _ in range(10):
            sent_at = trio.current_time()
            desk.client.expected, desk.client.delivered = (
                (other.url, len(desk.client.times(other.url)) + 1),
                trio.Event(),
            )
            await desk.ping(other)
            await desk.client.delivered.wait()
            assert trio.current_time() - sent_at < 2
            await trio.sleep(5)


async def test_410_disables_at_once(desk: Desk, autojump_clock: MockClock) -> None:
    desk.client.answer = lambda _: SendOutcome(410, "bad_status")
    made = await desk.endpoint()
    await desk.ping(made, 2)
    async with desk.dispatching():
        await trio.sleep(60)
    found = await desk.store.endpoint(made.workspace_id, made.id)
    assert found is not None
    assert found.disabled_reason is DisabledReason.GONE


async def test_a_dead_endpoint_delays_no_other_and_each_gets_two_at_a_time(
    desk: Desk, autojump_clock: MockClock
) -> None:
    dead = [await desk.endpoint(f"https://dead{number}.example.com/") for number in range(80)]
    alive = await desk.endpoint("https://alive.example.com/")
    desk.client.takes_s = lambda url: 0.05 if url == alive.url else 15
    desk.client.answer = lambda url: OK if url == alive.url else SendOutcome(error="timeout")
    for each in dead:
        await desk.ping(each, 20)
    async with desk.dispatching():
        # The dead endpoints are known to fail by now, and occupy every place that failing endpoints may have.
        await trio.sleep(40)
        began, desk.client.expected = trio.current_time(), (alive.url, 100)
        await desk.ping(alive, 100)
        with trio.fail_after(60):
            await desk.client.delivered.wait()
        took_s = trio.current_time() - began
    assert took_s < 10
    assert max(desk.client.most_in_flight.values()) == 2


async def test_two_processes_never_send_one_message_at_the_same_time(desk: Desk, autojump_clock: MockClock) -> None:
    made = [await desk.endpoint(f"https://{number}.example.com/") for number in range(10)]
    for each in made:
        await desk.ping(each, 20)
    async with desk.dispatching(), desk.dispatching():
        await trio.sleep(120)
    assert len(desk.client.sent) == 200
    assert len({webhook_id for _, _, webhook_id in desk.client.sent}) == 200
    assert max(desk.client.most_in_flight.values()) == 2


async def test_a_message_in_flight_at_a_kill_is_sent_again_when_its_lease_ends(
    desk: Desk, autojump_clock: MockClock
) -> None:
    made = await desk.endpoint()
    desk.client.takes_s = lambda _: 10
    await desk.ping(made)
    async with desk.dispatching():
        await trio.sleep(5)
    desk.client.takes_s = lambda _: 0.05
    async with desk.dispatching():
        await trio.sleep(LEASE_MS / 1_000 + 2)
    first, second = desk.client.times(made.url)
    assert second - first >= LEASE_MS / 1_000
    assert await desk.states(made) == [DeliveryState.DELIVERED]


class ForgetfulStore:
    """A store whose first answers to `record_attempt` are lost, before or after the record was written."""

    def __init__(self, store: MemoryWebhooks, errors: list[Exception]) -> None:
        self._store = store
        self._errors = errors

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def record_attempt(self, job: DeliveryJob, attempt: AttemptRecord) -> DisabledReason | None:
        error = self._errors.pop(0) if self._errors else None
        if isinstance(error, StoreUnavailableError):
            raise error
        result = await self._store.record_attempt(job, attempt)
        if error is not None:
            raise error
        return result


@pytest.mark.parametrize(("error", "sent"), [(StoreUnavailableError("down"), 2), (OutcomeUnknownError("lost"), 1)])
async def test_an_attempt_that_cannot_be_recorded_is_repeated_and_one_that_was_is_not(
    desk: Desk, autojump_clock: MockClock, error: Exception, sent: int
) -> None:
    made = await desk.endpoint()
    await desk.ping(made)
    kept = desk.store
    desk.store = ForgetfulStore(kept, [error])  # type: ignore[assignment]  # forwards all but one method
    async with desk.dispatching():
        await trio.sleep(60)
    desk.store = kept
    assert len(desk.client.sent) == sent
    assert await desk.states(made) == [DeliveryState.DELIVERED]


async def test_an_event_that_cannot_be_rendered_does_not_hold_up_others(desk: Desk, autojump_clock: MockClock) -> None:
    made = await desk.endpoint()
    broken = [WebhookEventType.SESSION_PAUSED]

    def render(row: OutboxRow) -> str:
        if row.type in broken:
            raise ValueError("a defect")
        return "{}"

    desk.render = render  # type: ignore[method-assign]  # a defect that is repaired later
    for kind in (WebhookEventType.SESSION_PAUSED, WebhookEventType.SESSION_LIVE):
        desk.store.note(made.workspace_id, kind, 0, 0, 1, made)
    async with desk.dispatching():
        await trio.sleep(60)
        assert await desk.states(made) == [DeliveryState.DELIVERED]
        broken.clear()
        await trio.sleep(300)
        assert await desk.states(made) == [DeliveryState.DELIVERED] * 2


async def test_the_backlog_is_read_for_the_metrics(desk: Desk, autojump_clock: MockClock) -> None:
    made = await desk.endpoint()
    desk.client.answer = lambda _: BAD
    await desk.ping(made, 3)
    async with desk.dispatching() as dispatcher:
        await trio.sleep(16)
        backlog = dispatcher.statistics.backlog
    assert backlog is not None
    assert (backlog.pending, backlog.endpoints, backlog.endpoints_failing) == (3, 1, 1)
    assert dispatcher.statistics.failed >= 3
