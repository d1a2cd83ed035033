"""The outbox and the deliveries of webhooks on Postgres. Migration 0500 has the triggers that fill the outbox."""

from collections.abc import Sequence
from typing import Any, Final, final

import structlog

from sightline.domain.operator.codec import from_doc as workspace_of_doc
from sightline.domain.session.codec import from_doc as session_of_doc
from sightline.domain.webhooks import (
    FAILING_MS_MAX,
    SENT_AT_ONCE_MAX,
    WORKSPACE_AT_ONCE_MAX,
    DeliveryState,
    DisabledReason,
    WebhookEventType,
)
from sightline.ports.webhooks import (
    LEASE_MS,
    AttemptRecord,
    DeliveryJob,
    DeliveryQuery,
    OutboxRow,
    ReplayedEvents,
    WebhookBacklog,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookMessage,
    WebhookSubject,
)
from sightline.storage.database.pool import Connection
from sightline.storage.json import dump, load
from sightline.storage.postgres.money.ledger import ledger_row_of
from sightline.storage.postgres.money.settlements import settlement_of
from sightline.storage.postgres.webhooks.endpoints import COLUMNS, WebhookEndpointTable, endpoint_of

log = structlog.get_logger("sightline.webhooks")

CLAIM_LOCK_KEY: Final = 5_300_046
"""Key of the advisory lock on claims. Any constant number works."""

_OUTBOX = """
SELECT number, workspace_id::text, type, at_ms, stored_at_ms, sequence, subject FROM webhook_outbox
WHERE retry_at_ms <= database_now_ms() ORDER BY number LIMIT $1
"""
# Deleting the row is the decision of who publishes it: a second process finds nothing to delete.
_PUBLISH = """
WITH taken AS (DELETE FROM webhook_outbox WHERE number = ANY($1::bigint[]) RETURNING number),
message AS (
  INSERT INTO webhook_message (id, workspace_id, type, at_ms, body, created_at_ms)
  SELECT m.id, m.workspace_id, m.type, m.at_ms, m.body, $7
  FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::text[])
    AS m(number, id, workspace_id, type, at_ms, body) JOIN taken USING (number)
  ORDER BY m.number RETURNING number, workspace_id, type
), queued AS (
  INSERT INTO webhook_delivery (endpoint_id, number, state, next_at_ms, created_at_ms)
  SELECT e.id, m.number, 'PENDING', database_now_ms(), $7 FROM message m JOIN webhook_endpoint e USING (workspace_id)
  WHERE e.disabled_reason IS NULL AND (e.event_types = '{}' OR m.type = ANY(e.event_types))
)
SELECT count(*) FROM message
"""
_POSTPONE = "UPDATE webhook_outbox SET retry_at_ms = database_now_ms() + $2 WHERE number = ANY($1::bigint[])"
_ENQUEUE = """
WITH message AS (
  INSERT INTO webhook_message (id, workspace_id, type, at_ms, body, created_at_ms) VALUES ($2, $3, $4, $5, $6, $7)
  RETURNING number
)
INSERT INTO webhook_delivery (endpoint_id, number, state, next_at_ms, created_at_ms)
SELECT $1, number, 'PENDING', database_now_ms(), $7 FROM message
"""
_WAITS = "SELECT EXISTS (SELECT FROM webhook_delivery WHERE state = 'PENDING')"
# A lease that ends later than a new one could was taken before the database's clock was set back: it has expired.
_CLAIM = f"""
WITH clock AS MATERIALIZED (SELECT database_now_ms() AS now_ms),
endpoint AS MATERIALIZED (
  SELECT e.id, e.workspace_id, e.failing_since_ms IS NOT NULL OR e.is_slow AS is_troubled, (
    SELECT count(*) FROM webhook_delivery f WHERE f.endpoint_id = e.id AND f.state = 'PENDING'
      AND f.lease_until_ms > now_ms AND f.lease_until_ms <= now_ms + {LEASE_MS}) AS flying
  FROM webhook_endpoint e CROSS JOIN clock WHERE e.disabled_reason IS NULL
), busy AS (
  SELECT workspace_id, sum(flying) AS flying FROM endpoint GROUP BY workspace_id
), due AS (
  SELECT e.workspace_id, e.is_troubled, d.endpoint_id, d.number, d.next_at_ms, row_number() OVER (
    PARTITION BY e.workspace_id ORDER BY e.is_troubled, d.next_at_ms, d.number) AS turn
  FROM endpoint e CROSS JOIN clock CROSS JOIN LATERAL (
    SELECT * FROM webhook_delivery p
    WHERE p.endpoint_id = e.id AND p.state = 'PENDING' AND p.next_at_ms <= now_ms
      AND (p.lease_until_ms IS NULL OR p.lease_until_ms <= now_ms OR p.lease_until_ms > now_ms + {LEASE_MS})
    ORDER BY p.next_at_ms, p.number LIMIT greatest(0, {SENT_AT_ONCE_MAX} - e.flying)
  ) AS d
), chosen AS (
  SELECT endpoint_id, number FROM (
    SELECT due.*, row_number() OVER (PARTITION BY is_troubled ORDER BY turn, next_at_ms, number) AS place
    FROM due JOIN busy USING (workspace_id) WHERE turn <= {WORKSPACE_AT_ONCE_MAX} - flying) AS ranked
  WHERE NOT is_troubled OR place <= $2 ORDER BY is_troubled, turn, next_at_ms, number LIMIT $1
), claimed AS (
  UPDATE webhook_delivery d SET lease_until_ms = now_ms + {LEASE_MS} FROM chosen c CROSS JOIN clock
  WHERE d.endpoint_id = c.endpoint_id AND d.number = c.number
  RETURNING d.endpoint_id, d.number, d.attempts, d.step
)
SELECT {COLUMNS}, c.number, c.attempts, c.step, m.id::text AS message_id, m.type, m.at_ms, m.body
FROM claimed c JOIN webhook_endpoint e ON e.id = c.endpoint_id JOIN webhook_message m ON m.number = c.number
ORDER BY c.number
"""  # noqa: S608  constants only
_RECORD = """
UPDATE webhook_delivery SET attempts = attempts + 1, step = step + 1, lease_until_ms = NULL,
  state = CASE WHEN $4 THEN 'DELIVERED' WHEN $7::bigint IS NULL THEN 'FAILED' ELSE 'PENDING' END,
  last_status = $5, last_error = $6, last_attempt_at_ms = database_now_ms(),
  delivered_at_ms = CASE WHEN $4 THEN database_now_ms() ELSE delivered_at_ms END,
  next_at_ms = database_now_ms() + coalesce($7::bigint, 0)
WHERE endpoint_id = $1 AND number = $2 AND attempts = $3 AND state = 'PENDING' RETURNING true
"""
_WORKS = """
UPDATE webhook_endpoint SET failing_since_ms = NULL, is_slow = $2
WHERE id = $1 AND (failing_since_ms IS NOT NULL OR is_slow <> $2)
"""
_FAILS = f"""
UPDATE webhook_endpoint SET failing_since_ms = coalesce(failing_since_ms, now_ms),
  disabled_reason = why, disabled_at_ms = CASE WHEN why IS NULL THEN NULL ELSE now_ms END
FROM (
  SELECT id AS failed, now_ms, CASE WHEN $2 THEN 'GONE'
    WHEN now_ms - failing_since_ms >= {FAILING_MS_MAX} THEN 'FAILING' END AS why
  FROM webhook_endpoint CROSS JOIN (SELECT database_now_ms() AS now_ms) AS clock WHERE id = $1) AS verdict
WHERE id = failed AND disabled_reason IS NULL AND (why IS NOT NULL OR failing_since_ms IS NULL)
RETURNING why
"""  # noqa: S608  constants only
_DELIVERIES = """
SELECT d.number, d.endpoint_id::text, d.state, d.attempts, d.created_at_ms, d.next_at_ms, d.last_attempt_at_ms,
  d.last_status, d.last_error, d.delivered_at_ms, m.id::text AS message_id, m.workspace_id::text, m.type, m.at_ms,
  m.body
FROM webhook_delivery d JOIN webhook_message m USING (number)
"""
_PAGE = _DELIVERIES + (
    "WHERE d.endpoint_id = $1 AND ($2::text IS NULL OR d.state = $2) AND ($3::bigint IS NULL OR d.number < $3) "
    "ORDER BY d.number DESC LIMIT $4"
)
_DELIVERY = _DELIVERIES + "WHERE d.endpoint_id = $1 AND m.id = $2"
_RESEND = """
UPDATE webhook_delivery SET state = 'PENDING', step = 0, next_at_ms = database_now_ms()
WHERE endpoint_id = $1 AND number = (SELECT number FROM webhook_message WHERE id = $2)
"""
_REPLAY = """
WITH event AS (
  SELECT number, at_ms FROM webhook_message m
  WHERE workspace_id = $2 AND at_ms >= $3 AND CASE WHEN type = 'webhook.ping'
    THEN EXISTS (
      SELECT FROM webhook_delivery p WHERE p.endpoint_id = $1 AND p.number = m.number AND p.state = 'PENDING')
    ELSE cardinality($4::text[]) = 0 OR type = ANY($4) END
  ORDER BY at_ms, number LIMIT $5
), queued AS (
  INSERT INTO webhook_delivery AS d (endpoint_id, number, state, next_at_ms, created_at_ms)
  SELECT $1, number, 'PENDING', database_now_ms(), $6 FROM event
  ON CONFLICT (endpoint_id, number) DO UPDATE SET state = 'PENDING', step = 0, next_at_ms = database_now_ms()
    WHERE d.state <> 'PENDING' OR d.next_at_ms > database_now_ms()
  RETURNING true
)
SELECT (SELECT count(*) FROM queued) AS queued, (SELECT count(*) FROM event) AS found,
  (SELECT max(at_ms) FROM event) AS last_ms
"""
_BACKLOG = """
SELECT (SELECT count(*) FROM webhook_outbox) AS outbox, waiting.count AS pending,
  database_now_ms() - least(waiting.oldest_ms, (SELECT min(stored_at_ms) FROM webhook_outbox)) AS age_ms,
  (SELECT count(*) FROM webhook_endpoint) AS endpoints,
  (SELECT count(*) FROM webhook_endpoint WHERE failing_since_ms IS NOT NULL AND disabled_reason IS NULL) AS failing,
  (SELECT count(*) FROM webhook_endpoint WHERE disabled_reason IS NOT NULL) AS disabled
FROM (
  SELECT count(*) AS count, min(d.created_at_ms) FILTER (WHERE d.step = 0) AS oldest_ms
  FROM webhook_delivery d JOIN webhook_endpoint e ON e.id = d.endpoint_id
  WHERE d.state = 'PENDING' AND e.disabled_reason IS NULL) AS waiting
"""


@final
class PostgresWebhooks(WebhookEndpointTable):
    """Implements `WebhookStore`."""

    async def outbox(self, *, limit: int) -> Sequence[OutboxRow]:
        """Events that are not prepared yet, oldest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_OUTBOX, limit))
        return [
            OutboxRow(
                number=row["number"],
                workspace_id=row["workspace_id"],
                type=WebhookEventType(row["type"]),
                at_ms=row["at_ms"],
                stored_at_ms=row["stored_at_ms"],
                sequence=row["sequence"],
                subject=_read_subject(row),
            )
            for row in rows
        ]

    async def publish(self, prepared: Sequence[tuple[int, WebhookMessage]], *, now_ms: int) -> int:
        """Turn rows of the outbox into messages and deliveries."""
        messages = [message for _, message in prepared]
        columns = (
            [number for number, _ in prepared],
            [message.id for message in messages],
            [message.workspace_id for message in messages],
            [message.type.value for message in messages],
            [message.at_ms for message in messages],
            [message.body for message in messages],
        )
        published: int = await self._database.run(lambda connection: connection.fetchval(_PUBLISH, *columns, now_ms))
        return published

    async def postpone(self, numbers: Sequence[int], *, for_ms: int) -> None:
        """Leave rows of the outbox aside."""
        await self._database.run(lambda connection: connection.execute(_POSTPONE, list(numbers), for_ms))

    async def enqueue(self, endpoint_id: str, message: WebhookMessage, *, now_ms: int) -> WebhookDelivery:
        """Store a message for one endpoint only."""

        async def unit(connection: Connection) -> Any:
            await connection.execute(
                _ENQUEUE, endpoint_id, message.id, message.workspace_id, message.type.value, message.at_ms,
                message.body, now_ms,
            )  # fmt: skip
            return await connection.fetchrow(_DELIVERY, endpoint_id, message.id)

        return _delivery_of(await self._database.transact(unit))

    async def claim_deliveries(self, *, limit: int, failing_max: int) -> Sequence[DeliveryJob]:
        """Claim due deliveries. Claims run one at a time, so that no endpoint gets more than its share."""
        if not await self._database.read(lambda connection: connection.fetchval(_WAITS)):
            return []

        async def unit(connection: Connection) -> list[Any]:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", CLAIM_LOCK_KEY)
            rows: list[Any] = await connection.fetch(_CLAIM, limit, failing_max)
            return rows

        return [_job_of(row) for row in await self._database.transact(unit)]

    async def record_attempt(self, job: DeliveryJob, attempt: AttemptRecord) -> DisabledReason | None:
        """Record an attempt and give the claim up."""

        async def unit(connection: Connection) -> str | None:
            recorded = await connection.fetchval(
                _RECORD, job.endpoint.id, job.number, job.attempts, attempt.is_delivered, attempt.status,
                attempt.error, attempt.retry_in_ms,
            )  # fmt: skip
            if recorded is None:
                return None
            if attempt.is_delivered:
                await connection.execute(_WORKS, job.endpoint.id, attempt.is_slow)
                return None
            why: str | None = await connection.fetchval(_FAILS, job.endpoint.id, attempt.is_gone)
            return why

        why = await self._database.transact(unit)
        return None if why is None else DisabledReason(why)

    async def deliveries(self, query: DeliveryQuery) -> Sequence[WebhookDelivery]:
        """Read one page, newest first."""
        state = None if query.state is None else query.state.value
        rows = await self._database.read(
            lambda connection: connection.fetch(_PAGE, query.endpoint_id, state, query.before_number, query.limit)
        )
        return [_delivery_of(row) for row in rows]

    async def delivery(self, endpoint_id: str, message_id: str) -> WebhookDelivery | None:
        """Read one delivery by the id of its message."""
        row = await self._database.read(lambda connection: connection.fetchrow(_DELIVERY, endpoint_id, message_id))
        return None if row is None else _delivery_of(row)

    async def resend(self, endpoint_id: str, message_id: str) -> WebhookDelivery | None:
        """Make a delivery due now."""

        async def unit(connection: Connection) -> Any:
            await connection.execute(_RESEND, endpoint_id, message_id)
            return await connection.fetchrow(_DELIVERY, endpoint_id, message_id)

        row = await self._database.transact(unit)
        return None if row is None else _delivery_of(row)

    async def replay(self, endpoint: WebhookEndpoint, *, since_ms: int, limit: int, now_ms: int) -> ReplayedEvents:
        """Queue events since an instant again."""
        columns = (endpoint.id, endpoint.workspace_id, since_ms, sorted(endpoint.event_types), limit, now_ms)
        row = await self._database.run(lambda connection: connection.fetchrow(_REPLAY, *columns))
        next_since_ms = max(row["last_ms"], since_ms + 1) if row["found"] == limit else None
        return ReplayedEvents(count=row["queued"], next_since_ms=next_since_ms)

    async def backlog(self) -> WebhookBacklog:
        """Count what waits."""
        row = await self._database.read(lambda connection: connection.fetchrow(_BACKLOG))
        return WebhookBacklog(
            outbox=row["outbox"],
            pending=row["pending"],
            oldest_age_ms=max(0, row["age_ms"] or 0),
            endpoints=row["endpoints"],
            endpoints_failing=row["failing"],
            endpoints_disabled=row["disabled"],
        )


def _read_subject(row: Any) -> WebhookSubject | None:
    """What the event is about; None, with a log entry, if the row cannot be read: it must not hold up other rows."""
    try:
        return _subject_of(WebhookEventType(row["type"]), load(row["subject"]), row["sequence"], row["workspace_id"])
    except Exception:
        log.exception("webhook_row_unreadable", number=row["number"], type=row["type"])
        return None


def _subject_of(kind: WebhookEventType, doc: Any, sequence: int, workspace_id: str) -> WebhookSubject:
    match kind:
        case WebhookEventType.SETTLEMENT_CONFIRMED:
            return settlement_of({**doc, "payload": dump(doc["payload"])}, ())
        case WebhookEventType.WALLET_DEPOSIT:
            return ledger_row_of(workspace_id, doc)
        case WebhookEventType.WORKSPACE_AVAILABILITY:
            return workspace_of_doc(doc, sequence)
        case _:
            return session_of_doc(doc, sequence)


def _message_of(row: Any) -> WebhookMessage:
    return WebhookMessage(
        id=row["message_id"],
        workspace_id=row["workspace_id"],
        type=WebhookEventType(row["type"]),
        at_ms=row["at_ms"],
        body=row["body"],
    )


def _job_of(row: Any) -> DeliveryJob:
    return DeliveryJob(
        endpoint=endpoint_of(row),
        number=row["number"],
        message=_message_of(row),
        attempts=row["attempts"],
        step=row["step"],
    )


def _delivery_of(row: Any) -> WebhookDelivery:
    state = DeliveryState(row["state"])
    return WebhookDelivery(
        number=row["number"],
        endpoint_id=row["endpoint_id"],
        message=_message_of(row),
        state=state,
        attempts=row["attempts"],
        created_at_ms=row["created_at_ms"],
        next_attempt_at_ms=row["next_at_ms"] if state is DeliveryState.PENDING else None,
        last_attempt_at_ms=row["last_attempt_at_ms"],
        last_status=row["last_status"],
        last_error=row["last_error"],
        delivered_at_ms=row["delivered_at_ms"],
    )
