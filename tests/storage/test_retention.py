"""Rows are kept as long as promised and then deleted in batches; a wrong clock deletes nothing."""

import pytest
import structlog.testing
import trio

from sightline.domain.session.model import SessionState
from sightline.domain.units import DAY_MS, HOUR_MS, MicroUsdc
from sightline.domain.value import replace
from sightline.domain.webhooks import WebhookEventType
from sightline.http.pipeline.stream_tickets import LIFETIME_MS, StreamTickets
from sightline.ports.identity import Nonce, Purpose, WalletSession
from sightline.ports.relations import TupleUpdate, operator_edge
from sightline.ports.store import Committed, HoldRequest, SessionWrite, ShardLease
from sightline.ports.webhooks import DeliveryQuery, WebhookMessage
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.identity import PostgresIdentityStore
from sightline.storage.postgres.operations.retention import (
    BATCH_ROWS,
    EXPIRED_KEYS,
    FAUCET_DAYS,
    IDEMPOTENCY,
    NONCES,
    OAUTH_CODES,
    OAUTH_TOKENS,
    OPENING_ATTEMPTS,
    REVOKED_KEYS,
    SESSIONS,
    SETTLEMENT_ATTEMPTS,
    UNUSED_QUOTES,
    USED_QUOTES,
    WALLET_SESSIONS,
    WEBHOOKS,
    Retention,
    RetentionOptions,
)
from sightline.storage.postgres.store import PostgresStore
from sightline.storage.postgres.webhooks.store import PostgresWebhooks
from sightline.system.ids import SystemIds
from tests.contract.builders import (
    PAYER,
    T0,
    a_heartbeat,
    a_quote,
    a_session,
    a_settlement,
    an_answer,
    an_id,
    in_phase,
    record,
    recorded,
)
from tests.shards import take_every_shard


class SettableClock:
    """A clock that a test moves."""

    def __init__(self, now_ms: int) -> None:
        self.value_ms = now_ms

    def now_ms(self) -> int:
        return self.value_ms


async def days_of(database: Database) -> list[str]:
    asked = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'heartbeat'::regclass ORDER BY 1"
    return [row[0] for row in await database.read(lambda c: c.fetch(asked))]


async def now_of(database: Database) -> int:
    return int(await database.read(lambda c: c.fetchval("SELECT (extract(epoch FROM now()) * 1000)::bigint")))


async def count(database: Database, table: str) -> int:
    return int(await database.read(lambda c: c.fetchval(f"SELECT count(*) FROM {table}")))


async def test_days_older_than_promised_are_dropped_and_tomorrow_is_there_today(database: Database) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    workspace_id = an_id()
    await record(store, *(a_heartbeat(workspace_id, day, now_ms - day * DAY_MS) for day in range(5)))
    assert len(await days_of(database)) == 5
    await Retention(database, store, SettableClock(now_ms), RetentionOptions(heartbeat_days=2)).run_once()
    assert len(await days_of(database)) == 4
    assert await count(database, "heartbeat") == 3


async def test_old_answers_and_unused_quotes_go_after_a_day_and_used_quotes_stay(database: Database) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    old_ms = now_ms - DAY_MS - 60_000
    used, unused, young = (
        a_quote(created_at_ms=old_ms),
        a_quote(created_at_ms=old_ms),
        a_quote(created_at_ms=now_ms - 60_000),
    )
    for quote in (used, unused, young):
        await store.insert_quote(quote)
    epochs = await take_every_shard(store, "test", "one")
    session = a_session(created_at_ms=now_ms)
    write = SessionWrite(lease=ShardLease(3, epochs[3]), session=session, at_ms=now_ms, due_at_ms=1)
    assert isinstance(await store.write_session(replace(write, consume_quote=used.id)), Committed)
    await store.record_idempotent(an_answer("old", at_ms=old_ms))
    await store.record_idempotent(an_answer("new", at_ms=now_ms - 60_000))
    await Retention(database, store, SettableClock(now_ms), RetentionOptions()).run_once()
    assert [await store.load_quote(each.id) is None for each in (used, unused, young)] == [False, True, False]
    assert await store.find_idempotent(an_answer("old").key) is None
    assert await store.find_idempotent(an_answer("new").key) is not None


async def closed_session(database: Database, store: PostgresStore, epoch: int, *, at_ms: int, settled: bool) -> str:
    """A session that ended at an instant, with event, hold, relation and settlement."""
    session = a_session(created_at_ms=at_ms)
    chained, events = recorded(session)
    write = SessionWrite(
        lease=ShardLease(3, epoch),
        session=chained,
        at_ms=at_ms,
        due_at_ms=1,
        events=events,
        take_hold=HoldRequest(payer_address=PAYER, amount=MicroUsdc(10), is_enforced=False),
        tuples=(TupleUpdate(operator_edge(session.id, an_id())),),
    )
    assert isinstance(await store.write_session(write), Committed)
    ended = in_phase(replace(chained, version=1), SessionState.ENDED)
    closing = SessionWrite(
        lease=ShardLease(3, epoch),
        session=ended,
        at_ms=at_ms,
        due_at_ms=None,
        charge_hold=MicroUsdc(4),
        settle=a_settlement(ended),
    )
    assert isinstance(await store.write_session(closing), Committed)
    if settled:
        await database.run(
            lambda c: c.execute(
                """UPDATE settlement SET state = 'CONFIRMED', notified = true, confirmed_at_ms = $2
                WHERE session_id = $1""",
                session.id,
                at_ms,
            )
        )
        await database.run(
            lambda c: c.execute(
                "UPDATE hold SET state = 'RELEASED', released_block = 7 WHERE session_id = $1", session.id
            )
        )
    return session.id


async def test_a_closed_session_is_deleted_with_its_parts_only_when_its_money_is_closed(database: Database) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    epoch = (await take_every_shard(store, "test", "one"))[3]
    long_ago_ms = now_ms - 401 * DAY_MS
    settled = await closed_session(database, store, epoch, at_ms=long_ago_ms, settled=True)
    unsettled = await closed_session(database, store, epoch, at_ms=long_ago_ms, settled=False)
    young = await closed_session(database, store, epoch, at_ms=now_ms, settled=True)
    await Retention(database, store, SettableClock(now_ms), RetentionOptions()).run_once()
    assert await store.load_session(settled) is None
    assert await store.load_session(unsettled) is not None
    assert await store.load_session(young) is not None
    assert await store.session_events(settled) == []
    assert await count(database, "session_event") == 2
    assert await count(database, "relation_tuple") == 2
    # The books are kept.
    assert await count(database, "settlement") == 3
    assert await count(database, "hold") == 3


async def test_a_clock_ahead_of_postgres_deletes_nothing(database: Database) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    await store.record_idempotent(an_answer(at_ms=now_ms))
    await record(store, a_heartbeat(an_id(), 1, now_ms))
    await Retention(database, store, SettableClock(now_ms + 40 * DAY_MS), RetentionOptions()).run_once()
    assert await store.find_idempotent(an_answer().key) is not None
    assert await count(database, "heartbeat") == 1


async def test_without_a_row_of_the_last_day_nothing_is_deleted(database: Database) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    # As after a start with the clock of the machine, and so of its Postgres, 40 days ahead.
    await store.record_idempotent(an_answer(at_ms=now_ms - 40 * DAY_MS))
    await record(store, a_heartbeat(an_id(), 1, now_ms - 40 * DAY_MS))
    await Retention(database, store, SettableClock(now_ms), RetentionOptions()).run_once()
    assert await store.find_idempotent(an_answer().key) is not None
    assert await count(database, "heartbeat") == 1


async def test_the_first_start_on_an_empty_database_has_nothing_to_warn_of(database: Database) -> None:
    clock = SettableClock(await now_of(database))
    retention = Retention(database, PostgresStore(database), clock, RetentionOptions())
    with structlog.testing.capture_logs() as first:
        await retention.run_once()
    with structlog.testing.capture_logs() as second:
        await retention.run_once()
    assert [[entry["event"] for entry in said] for said in (first, second)] == [[], ["retention_skipped"]]


async def test_a_jump_of_the_clock_with_traffic_deletes_at_most_one_more_day_a_run(database: Database) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    # Retention last ran 40 days ago by its own clock; heartbeats of each of those days are there.
    await database.run(lambda c: c.execute("INSERT INTO retention (now_ms) VALUES ($1)", now_ms - 40 * DAY_MS))
    days = range(71)
    await record(store, *(a_heartbeat(an_id(), 1, now_ms - day * DAY_MS) for day in days))
    retention = Retention(database, store, SettableClock(now_ms), RetentionOptions(heartbeat_days=30))
    for expected in (70, 69, 68):
        await retention.run_once()
        assert await count(database, "heartbeat") == expected


FILL_OLD = {
    "idempotency": """
        INSERT INTO idempotency (scope, method, path, key, body_hash, result, at_ms)
        SELECT 'w', 'POST', '/x', n::text, 'h', '{}', $1::bigint - 2 * 86400000 + n % 2
        FROM generate_series(1, $2::integer) n
    """,
    "auth_nonce": """
        INSERT INTO auth_nonce (value, address, purpose, message, chain_id, expires_at_ms)
        SELECT n::text, '0x1', 'LOGIN', 'm', 1, $1::bigint - 3600001 - n % 2 FROM generate_series(1, $2::integer) n
    """,
    "wallet_session": """
        INSERT INTO wallet_session
          (session_id, wallet_address, signed_in_at_ms, last_used_at_ms, client_ip, user_agent)
        SELECT gen_random_uuid(), '0x1', $1::bigint - 12 * 3600000 - 1 - n % 2, 0, '::1', ''
        FROM generate_series(1, $2::integer) n
    """,
    "faucet_day": """
        INSERT INTO faucet_day (address, day, amount)
        SELECT n::text, $1::bigint / 86400000 - 2 - n % 2, 1 FROM generate_series(1, $2::integer) n
    """,
}
"""A statement for each table that adds $2 rows that are too old at $1, with two different ages."""


@pytest.mark.parametrize("table", FILL_OLD)
async def test_rows_that_are_too_old_are_deleted_in_batches_until_none_is_left(database: Database, table: str) -> None:
    store, now_ms = PostgresStore(database), await now_of(database)
    fill = FILL_OLD[table]
    await database.run(lambda c: c.execute(fill, now_ms, 2 * BATCH_ROWS + 1))
    await store.record_idempotent(an_answer("new", at_ms=now_ms))
    await Retention(database, store, SettableClock(now_ms), RetentionOptions()).run_once()
    assert await count(database, table) == (1 if table == "idempotency" else 0)


async def test_challenges_and_sign_ins_are_deleted_when_they_have_expired(database: Database) -> None:
    store, now_ms = PostgresIdentityStore(database), await now_of(database)
    for value, expired_ms in (("young", HOUR_MS), ("old", HOUR_MS + 1)):
        await store.add_nonce(
            Nonce(
                value=value,
                address="0x1",
                purpose=Purpose.LOGIN,
                message="m",
                chain_id=1,
                expires_at_ms=now_ms - expired_ms,
            )
        )
    valid, expired = an_id(), an_id()
    for session_id, age_ms in ((valid, 12 * HOUR_MS), (expired, 12 * HOUR_MS + 1)):
        await store.add_wallet_session(
            WalletSession(
                session_id=session_id,
                wallet_address="0x1",
                signed_in_at_ms=now_ms - age_ms,
                last_used_at_ms=now_ms,
                client_ip="::1",
                user_agent="",
            )
        )
    # Sign-ins without any other traffic: the recent challenge is enough for retention to run.
    await Retention(database, PostgresStore(database), SettableClock(now_ms), RetentionOptions()).run_once()
    assert await database.read(lambda c: c.fetchval("SELECT string_agg(value, ' ') FROM auth_nonce")) == "young"
    assert await store.wallet_session(valid) is not None
    assert await store.wallet_session(expired) is None


async def test_expired_stream_tickets_do_not_pile_up_and_show_no_key(database: Database) -> None:
    clock = SettableClock(await now_of(database))
    tickets = StreamTickets(PostgresIdentityStore(database), clock, SystemIds())
    for _ in range(20):
        await tickets.issue("/api/v1/x", "Bearer sl_secret")
        clock.value_ms += LIFETIME_MS
    assert await count(database, "stream_ticket") == 1
    sealed = await database.read(lambda c: c.fetchval("SELECT string_agg(sealed, '') FROM stream_ticket"))
    assert b"secret" not in sealed


async def test_a_webhook_event_is_deleted_with_its_deliveries_after_thirty_days(database: Database) -> None:
    store, webhooks, now_ms = PostgresStore(database), PostgresWebhooks(database), await now_of(database)
    endpoint_id, workspace_id = an_id(), an_id()
    for age_ms in (30 * DAY_MS + 1, 30 * DAY_MS - 60_000):
        message = WebhookMessage(id=an_id(), workspace_id=workspace_id, type=WebhookEventType.PING, at_ms=T0, body="{}")
        await webhooks.enqueue(endpoint_id, message, now_ms=now_ms - age_ms)
    await store.record_idempotent(an_answer("new", at_ms=now_ms))
    await Retention(database, store, SettableClock(now_ms), RetentionOptions()).run_once()
    assert await count(database, "webhook_message") == 1
    assert await count(database, "webhook_delivery") == 1
    (kept,) = await webhooks.deliveries(DeliveryQuery(endpoint_id=endpoint_id, limit=10))
    assert kept.created_at_ms == now_ms - 30 * DAY_MS + 60_000


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (IDEMPOTENCY, "idempotency_by_age"),
        (NONCES, "auth_nonce_by_expiry"),
        (WALLET_SESSIONS, "wallet_session_by_sign_in"),
        (UNUSED_QUOTES, "quote_unused"),
        (USED_QUOTES, "quote_used"),
        (REVOKED_KEYS, "api_key_revoked"),
        (EXPIRED_KEYS, "api_key_by_expiry"),
        (OAUTH_CODES, "oauth_code_by_end"),
        (OAUTH_TOKENS, "oauth_token_by_end"),
        (SESSIONS, "session_closed"),
        (SETTLEMENT_ATTEMPTS, "settlement_attempt_by_age"),
        (OPENING_ATTEMPTS, "opening_attempt_by_age"),
        (FAUCET_DAYS, "faucet_day_by_age"),
        (WEBHOOKS, "webhook_message_by_age"),
    ],
)
async def test_each_delete_reads_the_oldest_rows_by_an_index(database: Database, statement: str, index: str) -> None:
    async def plan(connection: Connection) -> str:
        # As for a large table, which an empty one does not show.
        for way in ("seqscan", "bitmapscan", "sort"):
            await connection.execute(f"SET LOCAL enable_{way} = off")
        rows = await connection.fetch(f"EXPLAIN {statement}", 0, 1, BATCH_ROWS)
        return "\n".join(row[0] for row in rows)

    assert f"using {index}" in await database.transact(plan)


async def test_a_heartbeat_of_a_day_that_was_dropped_is_still_recorded(database: Database) -> None:
    store, late = PostgresStore(database), a_heartbeat(an_id(), 1, T0 - 9 * DAY_MS)
    await record(store, a_heartbeat(late.workspace_id, 0, T0 - 9 * DAY_MS))
    await PostgresStore(database).drop_heartbeat_days(T0, 2)
    await record(store, late)
    assert await store.latest_heartbeat(late.workspace_id) == late


async def test_making_the_same_day_from_many_sides_makes_it_once(database: Database) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(record, PostgresStore(database), a_heartbeat(an_id(), 1, T0))
    assert len(await days_of(database)) == 1
