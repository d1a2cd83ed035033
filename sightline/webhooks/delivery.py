"""Delivers webhooks: prepares the events of the outbox, and sends what is due.

At least once: a message is marked as delivered after the endpoint has answered, so a crash between the two sends it
again. Not in order: endpoints order events by `sequence`.
"""

import random  # noqa: TID251  only the type: the generator is passed in
from collections.abc import Callable
from typing import Final, TypeAlias, final

import structlog
import trio
from msgspec import Struct

from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.units import MINUTE_MS, SECOND_MS
from sightline.domain.value import Value
from sightline.domain.webhooks import RETRY_SECONDS, SLOW_MS, retry_in_ms
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.webhooks import (
    AttemptRecord,
    DeliveryJob,
    OutboxRow,
    WebhookBacklog,
    WebhookMessage,
    WebhookStore,
)
from sightline.system.loops import run_forever
from sightline.webhooks.http_client import SendOutcome, WebhookClient
from sightline.webhooks.sends import Sends
from sightline.webhooks.signing import WebhookSigner

log = structlog.get_logger("sightline.webhooks")

PUBLISH_MAX: Final = 100
"""Events that are prepared in one transaction."""
IN_FLIGHT_MAX: Final = 128
FAILING_IN_FLIGHT_MAX: Final = 64
"""Of these to endpoints that fail or are slow. The others stay free for endpoints that work."""
POSTPONE_MS: Final = 5 * MINUTE_MS
"""An event that cannot be prepared (a defect) is tried again after this."""
UNSENT: Final = SendOutcome(error="internal_error")

Render: TypeAlias = Callable[[OutboxRow], str]
"""Makes the body of a message."""


@final
class DeliveryStatistics(Struct):
    """Counts since the start of the server, and the backlog as last read; None while another server delivers."""

    delivered: int = 0
    failed: int = 0
    """Attempts that failed."""
    given_up: int = 0
    """Deliveries whose last attempt failed."""
    disabled: int = 0
    """Endpoints disabled because of their answers."""
    backlog: WebhookBacklog | None = None


@final
class DeliveryOptions(Value, kw_only=True):
    """Settings of the delivery."""

    retry_seconds: tuple[int, ...] = RETRY_SECONDS
    due_every_s: float = 1.0
    """How often a delivery is looked for while some wait, and no event comes: most of them are retries, due later."""
    backlog_every_s: float = 15.0


@final
class WebhookDispatcher:
    """The delivery service. Two on one database share the work: each delivery is claimed before it is sent."""

    def __init__(
        self,
        store: WebhookStore,
        client: WebhookClient,
        signer: WebhookSigner,
        render: Render,
        *,
        clock: Clock,
        ids: Ids,
        rng: random.Random,
        options: DeliveryOptions | None = None,
    ) -> None:
        """Prepare the service. `rng` gives the jitter of retries."""
        self._store = store
        self._client = client
        self._signer = signer
        self._render = render
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._options = options or DeliveryOptions()
        self._sends = Sends(self._send, client, most=IN_FLIGHT_MAX)
        self._failing_in_flight = 0
        self._look_for_due_s = 0.0
        self.statistics = DeliveryStatistics()
        self.wake = self._sends.wake
        """Called by `UnsentWatch` when an event or a delivery is waiting."""

    async def run(self) -> None:
        """Deliver until cancelled; may be called again afterwards. See `Sends.run`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run_backlog)
                await self._sends.run("webhooks", self._round)
        finally:
            self.statistics.backlog = None

    async def _run_backlog(self) -> None:
        await run_forever("webhook_backlog", self._read_backlog, every_s=self._options.backlog_every_s)

    async def _read_backlog(self) -> None:
        self.statistics.backlog = await self._store.backlog()

    async def _round(self) -> bool:
        """Prepare events and start what is due."""
        published, now_s = await self._publish(), trio.current_time()
        if not published and now_s < self._look_for_due_s:
            return False
        free = self._sends.free
        jobs = await self._store.claim_deliveries(
            limit=free, failing_max=max(0, min(free, FAILING_IN_FLIGHT_MAX - self._failing_in_flight))
        )
        self._failing_in_flight += sum(job.endpoint.is_troubled for job in jobs)
        self._sends.start(jobs)
        if not jobs:
            self._look_for_due_s = now_s + self._options.due_every_s
        return bool(published or jobs)

    async def _publish(self) -> int:
        rows = await self._store.outbox(limit=PUBLISH_MAX)
        prepared: list[tuple[int, WebhookMessage]] = []
        broken: list[int] = []
        for row in rows:
            try:
                prepared.append((row.number, self._message(row)))
            except Exception:
                log.exception("webhook_not_prepared", number=row.number, type=row.type)
                broken.append(row.number)
        if broken:
            await self._store.postpone(broken, for_ms=POSTPONE_MS)
        if prepared:
            await self._store.publish(prepared, now_ms=self._clock.now_ms())
        return len(rows)

    def _message(self, row: OutboxRow) -> WebhookMessage:
        return WebhookMessage(
            id=self._ids.uuid(),
            workspace_id=row.workspace_id,
            type=row.type,
            at_ms=row.at_ms,
            body=self._render(row),
        )

    async def _send(self, job: DeliveryJob) -> None:
        try:
            await self._attempt(job)
        except (UnavailableError, OutcomeUnknownError) as error:
            # Its claim expires, and it is sent again.
            log.warning("webhook_not_recorded", webhook_id=job.message.id, error=str(error))
        finally:
            self._failing_in_flight -= job.endpoint.is_troubled
            self._look_for_due_s = 0.0  # a workspace may have more that waited for this one

    async def _attempt(self, job: DeliveryJob) -> None:
        headers, began = self._signer.headers(job.endpoint, job.message, self._clock.now_ms()), trio.current_time()
        try:
            outcome = await self._client.post(job.endpoint.url, headers, job.message.body)
        except Exception:
            log.exception("webhook_send_crashed", webhook_id=job.message.id, endpoint_id=job.endpoint.id)
            outcome = UNSENT
        is_slow = (trio.current_time() - began) * SECOND_MS > SLOW_MS
        attempt = self._record_of(job, outcome, is_slow=is_slow)
        reason = await self._store.record_attempt(job, attempt)
        self._count(attempt)
        if reason is not None:
            self.statistics.disabled += 1
            log.warning(
                "webhook_endpoint_disabled",
                endpoint_id=job.endpoint.id,
                workspace_id=job.endpoint.workspace_id,
                reason=reason,
            )

    def _record_of(self, job: DeliveryJob, outcome: SendOutcome, *, is_slow: bool) -> AttemptRecord:
        if outcome.is_delivered:
            return AttemptRecord(is_delivered=True, status=outcome.status, is_slow=is_slow)
        wait_ms = retry_in_ms(job.step, self._rng.random(), outcome.retry_after_s, self._options.retry_seconds)
        return AttemptRecord(
            is_delivered=False,
            status=outcome.status,
            error=outcome.error,
            retry_in_ms=wait_ms,
            is_gone=outcome.status == 410,
        )

    def _count(self, attempt: AttemptRecord) -> None:
        self.statistics.delivered += attempt.is_delivered
        self.statistics.failed += not attempt.is_delivered
        self.statistics.given_up += not attempt.is_delivered and attempt.retry_in_ms is None
