"""Deletes rows that are no longer needed, in short transactions. docs/ops/database.md: what bounds each table.

Kept for ever, because they are the books: settlements, the journal, wallet events, and holds that were charged. A
session is deleted only when its money is closed: no open hold, and its settlement confirmed and reported.

A wrong clock must not delete anything. Retention runs only while this machine and Postgres agree to within a day and
rows of the last day exist. Its own time advances by at most one day a run, so that a wrong clock that stays, with
traffic, deletes one day's worth a run instead of everything.
"""

from typing import Any, Final, final

import structlog
import trio

from sightline.domain.units import DAY_MS, HOUR_MS
from sightline.domain.value import Value
from sightline.ports.clock import Clock
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.store import PostgresStore

log = structlog.get_logger("sightline.retention")

BATCH_ROWS: Final = 2_000
"""Rows of one DELETE: some 20 ms, so that no other transaction waits long for a lock or for the disk."""
PAUSE_S: Final = 0.01
"""Between two batches."""

CLOCKS: Final = """
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS database_ms,
  (SELECT now_ms FROM retention) AS retention_ms,
  EXISTS (SELECT FROM heartbeat WHERE at_ms >= $1) OR EXISTS (SELECT FROM idempotency WHERE at_ms >= $1)
    OR EXISTS (SELECT FROM auth_nonce WHERE expires_at_ms >= $1)
    OR EXISTS (SELECT FROM session WHERE state = 'REQUESTED' AND created_at_ms >= $1)
    OR EXISTS (SELECT FROM session WHERE state IN ('ENDED', 'CANCELLED', 'EXPIRED') AND updated_at_ms >= $1)
    AS has_recent_rows
"""
ADVANCE: Final = """
INSERT INTO retention (now_ms) VALUES ($1) ON CONFLICT (id) DO UPDATE SET now_ms = greatest(retention.now_ms, $1)
"""


def _oldest(table: str, age: str, condition: str = "true") -> str:
    """Delete a batch of a table's oldest rows by a column: from $1, before $2, at most $3.

    Returns how many were deleted, and the newest of them. The next batch starts there: an index holds the entries of
    deleted rows until vacuum removes them, and a scan from the beginning would read them again for each batch.
    """
    return f"""
    WITH gone AS (
      DELETE FROM {table} WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM {table} WHERE {age} >= $1 AND {age} < $2 AND {condition} ORDER BY {age} LIMIT $3))
      RETURNING {age} AS age)
    SELECT count(*) AS deleted, max(age) AS newest FROM gone
    """  # noqa: S608  constants only


IDEMPOTENCY: Final = _oldest("idempotency", "at_ms")
NONCES: Final = _oldest("auth_nonce", "expires_at_ms")
WALLET_SESSIONS: Final = _oldest("wallet_session", "signed_in_at_ms")
UNUSED_QUOTES: Final = _oldest("quote", "created_at_ms", "consumed_by IS NULL")
USED_QUOTES: Final = _oldest("quote", "created_at_ms", "consumed_by IS NOT NULL")
AUDIT_ENTRIES: Final = _oldest("audit_entry", "at_ms")
SESSION_NOTES: Final = _oldest("session_note", "at_ms")
WITHDRAWN_SIGN_INS: Final = _oldest("withdrawal", "at_ms", "kind = 'sign_in'")
INVITATIONS: Final = _oldest("invitation", "expires_at_ms")
REVOKED_KEYS: Final = _oldest("api_key", "revoked_at_ms")
EXPIRED_KEYS: Final = _oldest("api_key", "expires_at_ms")
OAUTH_CODES: Final = _oldest("oauth_code", "ends_at_ms")
OAUTH_TOKENS: Final = _oldest("oauth_token", "ends_at_ms")
MEDIA_PROOFS: Final = """
WITH gone AS (
  DELETE FROM media_proof WHERE ctid = ANY(ARRAY(
    SELECT m.ctid FROM media_proof m LEFT JOIN session s ON s.id = m.session_id
    WHERE m.proved_at_ms >= $1 AND m.proved_at_ms < $2
      AND coalesce(s.state NOT IN ('REQUESTED', 'ASSIGNED', 'LIVE'), true)
    ORDER BY m.proved_at_ms LIMIT $3))
  RETURNING proved_at_ms)
SELECT count(*) AS deleted, max(proved_at_ms) AS newest FROM gone
"""
FAUCET_DAYS: Final = _oldest("faucet_day", "(day * 86400000::bigint)")


def _attempts(table: str) -> str:
    """Delete signed transactions of sessions whose settlement is confirmed."""
    return f"""
    WITH gone AS (
      DELETE FROM {table} WHERE ctid = ANY(ARRAY(
        SELECT a.ctid FROM {table} a JOIN settlement s USING (session_id)
        WHERE a.signed_at_ms >= $1 AND a.signed_at_ms < $2 AND s.state = 'CONFIRMED' AND s.confirmed_at_ms < $2
        ORDER BY a.signed_at_ms LIMIT $3))
      RETURNING signed_at_ms)
    SELECT count(*) AS deleted, max(signed_at_ms) AS newest FROM gone
    """  # noqa: S608  constants only


SETTLEMENT_ATTEMPTS: Final = _attempts("settlement_attempt")
OPENING_ATTEMPTS: Final = _attempts("opening_attempt")
EXTENSION_ATTEMPTS: Final = """
WITH gone AS (
  DELETE FROM extension_attempt WHERE ctid = ANY(ARRAY(
    SELECT a.ctid FROM extension_attempt a JOIN hold_extension e USING (session_id)
    JOIN settlement s ON s.session_id = e.of_session
    WHERE a.signed_at_ms >= $1 AND a.signed_at_ms < $2 AND s.state = 'CONFIRMED' AND s.confirmed_at_ms < $2
    ORDER BY a.signed_at_ms LIMIT $3))
  RETURNING signed_at_ms)
SELECT count(*) AS deleted, max(signed_at_ms) AS newest FROM gone
"""
PERMITS: Final = """
WITH gone AS (
  DELETE FROM allowance_permit WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM allowance_permit
    WHERE updated_at_ms >= $1 AND updated_at_ms < $2 AND state IN ('CONFIRMED', 'WRITTEN_OFF')
    ORDER BY updated_at_ms LIMIT $3))
  RETURNING updated_at_ms)
SELECT count(*) AS deleted, max(updated_at_ms) AS newest FROM gone
"""
SESSIONS: Final = """
WITH gone AS (
  DELETE FROM session WHERE ctid = ANY(ARRAY(
    SELECT s.ctid FROM session s
    WHERE s.state IN ('ENDED', 'CANCELLED', 'EXPIRED') AND s.updated_at_ms >= $1 AND s.updated_at_ms < $2
      AND NOT EXISTS (
        SELECT FROM settlement t WHERE t.session_id = s.id AND NOT (t.state = 'CONFIRMED' AND t.notified))
      AND NOT EXISTS (SELECT FROM hold h WHERE h.session_id = s.id AND h.state <> 'RELEASED')
    ORDER BY s.updated_at_ms LIMIT $3))
  RETURNING id, updated_at_ms
), events AS (DELETE FROM session_event e USING gone WHERE e.session_id = gone.id
), proofs AS (DELETE FROM media_proof m USING gone WHERE m.session_id = gone.id
), holds AS (DELETE FROM hold h USING gone
  WHERE h.session_id = gone.id AND h.released_block IS NULL AND h.escrowed_block IS NULL
), edges AS (
  DELETE FROM relation_tuple r USING gone WHERE r.resource_type = 'session' AND r.resource_id = gone.id::text)
SELECT count(*) AS deleted, max(updated_at_ms) AS newest FROM gone
"""
PUSH_SUBSCRIPTIONS: Final = _oldest("push_subscription", "renewed_at_ms")
PUSH_DAYS: Final = 90
"""A browser renews its subscription each time the console is opened in it."""
WEBHOOK_OUTBOX: Final = _oldest("webhook_outbox", "stored_at_ms")
WEBHOOKS: Final = """
WITH gone AS (
  DELETE FROM webhook_message WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM webhook_message WHERE created_at_ms >= $1 AND created_at_ms < $2
    ORDER BY created_at_ms LIMIT $3))
  RETURNING number, created_at_ms
), deliveries AS (DELETE FROM webhook_delivery d USING gone WHERE d.number = gone.number)
SELECT count(*) AS deleted, max(created_at_ms) AS newest FROM gone
"""


@final
class RetentionOptions(Value, kw_only=True):
    """How long to keep rows."""

    heartbeat_days: int = 30
    """Full days of heartbeats before today. Recovery of a LIVE session needs one."""
    history_days: int = 400
    """Days that closed sessions, their events and relations, used quotes, revoked and expired keys and the signed
    transactions of confirmed settlements are kept."""
    webhook_days: int = 30
    """Days that webhook events and their deliveries are kept."""
    audit_days: int = 400
    """Days that entries of the audit log are kept, at least 30."""
    sign_in_ms: int = 12 * HOUR_MS
    """Lifetime of a sign-in; its row is deleted when its cookie has expired."""
    nonce_ms: int = HOUR_MS
    """How long an expired sign-in challenge is kept."""


@final
class Retention:
    """Deletes what is too old. Call `run_once` periodically; any server of a database may."""

    def __init__(self, database: Database, store: PostgresStore, clock: Clock, options: RetentionOptions) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._options = options

    async def run_once(self) -> None:
        """Make the heartbeat partitions of today and tomorrow, then delete what is too old.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: What was deleted so far stays deleted; call again later.

        Cancellation: obeyed between batches.
        """
        now_ms = self._clock.now_ms()
        await self._store.make_heartbeat_days(now_ms)
        retention_ms = await self._retention_time(now_ms)
        if retention_ms is None:
            return
        history_ms = retention_ms - self._options.history_days * DAY_MS
        webhooks_ms = retention_ms - self._options.webhook_days * DAY_MS
        deleted = {"heartbeat_days": await self._store.drop_heartbeat_days(retention_ms, self._options.heartbeat_days)}
        for name, statement, before_ms in (
            ("idempotency", IDEMPOTENCY, retention_ms - DAY_MS),
            ("nonces", NONCES, retention_ms - self._options.nonce_ms),
            ("wallet_sessions", WALLET_SESSIONS, retention_ms - self._options.sign_in_ms),
            ("withdrawn_sign_ins", WITHDRAWN_SIGN_INS, retention_ms - self._options.sign_in_ms),
            ("invitations", INVITATIONS, retention_ms),
            ("oauth_codes", OAUTH_CODES, retention_ms - DAY_MS),
            ("oauth_tokens", OAUTH_TOKENS, retention_ms),
            ("unused_quotes", UNUSED_QUOTES, retention_ms - DAY_MS),
            ("media_proofs", MEDIA_PROOFS, retention_ms - DAY_MS),
            ("faucet_days", FAUCET_DAYS, retention_ms - DAY_MS),
            ("sessions", SESSIONS, history_ms),
            ("used_quotes", USED_QUOTES, history_ms),
            ("settlement_attempts", SETTLEMENT_ATTEMPTS, history_ms),
            ("opening_attempts", OPENING_ATTEMPTS, history_ms),
            ("extension_attempts", EXTENSION_ATTEMPTS, history_ms),
            ("permits", PERMITS, history_ms),
            ("revoked_keys", REVOKED_KEYS, history_ms),
            ("expired_keys", EXPIRED_KEYS, history_ms),
            ("session_notes", SESSION_NOTES, history_ms),
            ("audit_entries", AUDIT_ENTRIES, retention_ms - self._options.audit_days * DAY_MS),
            ("push_subscriptions", PUSH_SUBSCRIPTIONS, retention_ms - PUSH_DAYS * DAY_MS),
            ("webhook_outbox", WEBHOOK_OUTBOX, webhooks_ms),
            ("webhooks", WEBHOOKS, webhooks_ms),
        ):
            deleted[name] = await self._delete(statement, before_ms)
        await self._database.run(lambda connection: connection.execute(ADVANCE, retention_ms))
        if any(deleted.values()):
            log.info("rows_deleted", **deleted)

    async def _retention_time(self, now_ms: int) -> int | None:
        """The instant that ages are counted from; None while the clock is not to be trusted."""
        yesterday_ms = (now_ms // DAY_MS - 1) * DAY_MS
        row = await self._database.read(lambda connection: connection.fetchrow(CLOCKS, yesterday_ms))
        ahead_ms = now_ms - row["database_ms"]
        if abs(ahead_ms) > DAY_MS:
            log.error("retention_refused", reason="this clock and that of Postgres differ", ahead_ms=ahead_ms)
            return None
        if not row["has_recent_rows"]:
            if row["retention_ms"] is None:
                # The first start: from here on a wrong clock moves retention by a day a run at most.
                await self._database.run(lambda connection: connection.execute(ADVANCE, now_ms))
            else:
                log.info("retention_skipped", reason="no rows of the last day: nothing grows, or the clock is ahead")
            return None
        stored_ms: int | None = row["retention_ms"]
        return now_ms if stored_ms is None else min(now_ms, stored_ms + DAY_MS)

    async def _delete(self, statement: str, before_ms: int) -> int:
        total, deleted, from_ms = 0, BATCH_ROWS, 0
        while deleted == BATCH_ROWS:
            batch = await self._delete_batch(statement, from_ms, before_ms)
            deleted, from_ms = batch["deleted"], batch["newest"]
            total += deleted
            await trio.sleep(PAUSE_S)
        return total

    async def _delete_batch(self, statement: str, from_ms: int, before_ms: int) -> Any:
        return await self._database.run(
            lambda connection: connection.fetchrow(statement, from_ms, before_ms, BATCH_ROWS)
        )
