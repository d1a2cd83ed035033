"""Hot queries use the index that was made for them: asked of Postgres itself, on tables large enough to matter."""

import json
from typing import Any

import pytest

from sightline.ports.ledger import UsageSide
from sightline.ports.store import SessionQuery, SessionView
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres import heartbeats, identity_sql, session_lists, sessions, workspaces
from sightline.storage.postgres.commits import id_bounds
from sightline.storage.postgres.money.ledger import USAGE
from sightline.storage.postgres.money.settlements import PostgresOutbox

WORKSPACE = "00000000-0000-4000-8000-000000000001"
NOW_MS = 1_760_000_000_000

FILL = f"""
INSERT INTO session (id, shard, version, state, consumer_workspace_id, operator_workspace_id, lat, lng, created_at_ms,
  wait_deadline_ms, due_at_ms, doc, updated_at_ms)
SELECT gen_random_uuid(), 0, 1, CASE WHEN n % 50 = 0 THEN 'REQUESTED' WHEN n % 50 = 1 THEN 'LIVE' ELSE 'ENDED' END,
  ('00000000-0000-4000-8000-' || lpad((n % 400)::text, 12, '0'))::uuid,
  ('00000000-0000-4000-9000-' || lpad((n % 400)::text, 12, '0'))::uuid,
  (n % 180) - 90 + 0.5, (n % 360) - 180 + 0.5, {NOW_MS} - n * 1000::bigint, {NOW_MS} + 60000, NULL, '{{}}', {NOW_MS}
FROM generate_series(1, 10000) n;
INSERT INTO workspace (id, shard, version, slug, is_dispatchable, doc, updated_at_ms)
SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 0, 1, 'slug-' || n, n % 20 = 0, '{{}}', {NOW_MS}
FROM generate_series(1, 3000) n;
SELECT make_heartbeat_day(({NOW_MS} / 86400000 - back)::integer) FROM generate_series(0, 2) back;
INSERT INTO heartbeat (workspace_id, sequence, at_ms, taken_at_ms, lat, lng, accuracy_m, is_proof, is_fresh)
SELECT ('00000000-0000-4000-8000-' || lpad((n % 200)::text, 12, '0'))::uuid, n,
  {NOW_MS} - (12000 - n) * 12500::bigint, 0, 0, 0, 5, true, true
FROM generate_series(1, 12000) n;
INSERT INTO quote SELECT gen_random_uuid(), '{WORKSPACE}', 0, 0, 600, 1000, 1, 1, 1, 0, {NOW_MS} - n, 0, NULL
FROM generate_series(1, 3000) n;
INSERT INTO relation_tuple
SELECT 'workspace', (n % 3000)::text, 'owner', 'wallet', CASE WHEN n < 3000 THEN 'landlord' ELSE n::text END
FROM generate_series(1, 9000) n;
ANALYZE;
"""


def a_query(view: SessionView, **changes: Any) -> tuple[object, ...]:
    usual: dict[str, Any] = {"workspace_id": WORKSPACE, "view": view, "now_ms": NOW_MS, "limit": 20}
    return session_lists.arguments(SessionQuery(**{**usual, **changes}))


@pytest.fixture
async def filled(database: Database) -> Database:
    await database.run(lambda c: c.execute(FILL), deadline_ms=30_000)
    return database


def indexes_of(plan: dict[str, Any]) -> set[str]:
    found = {plan["Index Name"]} if "Index Name" in plan else set()
    return found.union(*(indexes_of(inner) for inner in plan.get("Plans", [])))


def conditions_of(plan: dict[str, Any], index: str) -> set[str]:
    found = {plan["Index Cond"]} if plan.get("Index Name") == index else set()
    return found.union(*(conditions_of(inner, index) for inner in plan.get("Plans", [])))


def scanned_whole(plan: dict[str, Any]) -> set[str]:
    found = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set()
    return found.union(*(scanned_whole(inner) for inner in plan.get("Plans", [])))


async def explain(database: Database, statement: str, *values: object) -> dict[str, Any]:
    text = await database.read(lambda c: c.fetchval(f"EXPLAIN (FORMAT JSON) {statement}", *values))
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


LISTS = [
    (SessionView.CONSUMER, {"session_by_consumer"}),
    (SessionView.OPERATOR, {"session_by_operator"}),
    (SessionView.PARTY, {"session_by_consumer", "session_by_operator"}),
]


@pytest.mark.parametrize(("view", "indexes"), LISTS)
async def test_a_page_of_sessions_is_a_range_of_its_index(
    filled: Database, view: SessionView, indexes: set[str]
) -> None:
    plan = await explain(filled, session_lists.STATEMENTS[view], *a_query(view))
    assert indexes_of(plan) == indexes
    assert scanned_whole(plan) == set()
    # The index is in the order of the page: nothing is sorted but the merge of two pages.
    assert view is SessionView.PARTY or "Sort" not in json.dumps(plan)


async def test_open_requests_are_found_by_a_partial_index(filled: Database) -> None:
    plan = await explain(
        filled, session_lists.STATEMENTS[SessionView.OPEN], *a_query(SessionView.OPEN, coverage=(10.0, 10.0, 5_000.0))
    )
    assert indexes_of(plan) <= {"session_open", "session_awaited"}
    assert scanned_whole(plan) == set()


async def test_demand_is_counted_from_the_requests_of_one_box(filled: Database) -> None:
    wanted = session_lists.demand_columns(
        lat=10.0, lng=10.0, within_m=5_000.0, since_ms=NOW_MS - 300_000, now_ms=NOW_MS, not_of=WORKSPACE
    )
    plan = await explain(filled, session_lists.DEMAND, *wanted)
    # Of each session that waits there, a few rows of its payer are looked up.
    lookups = {"session_pkey", "hold_pkey", "hold_of_payer", "settlement_paid", "wallet_state_pkey", "hold_by_payer"}
    assert {"session_awaited"} <= indexes_of(plan) <= {"session_awaited"} | lookups
    assert "session" not in scanned_whole(plan)
    (condition,) = conditions_of(plan, "session_awaited")
    assert "lat >=" in condition
    assert "lng >=" in condition


async def test_the_dispatches_of_a_consumer_are_two_ranges_of_partial_indexes(filled: Database) -> None:
    plan = await explain(filled, sessions.DISPATCHES, [WORKSPACE], 3)
    assert indexes_of(plan) == {"session_unstarted", "session_abandoned"}
    assert scanned_whole(plan) == set()


async def test_recovery_reads_only_what_is_unfinished(filled: Database) -> None:
    for shard in (None, 7):
        plan = await explain(filled, sessions.UNFINISHED, *id_bounds(shard))
        assert indexes_of(plan) == {"session_unfinished"}


async def test_the_newest_heartbeat_is_one_step_into_each_days_index(filled: Database) -> None:
    plan = await explain(filled, heartbeats.LATEST, WORKSPACE)
    assert scanned_whole(plan) == set()
    assert len(indexes_of(plan)) >= 2
    assert "Merge Append" in json.dumps(plan)


async def test_heartbeats_of_a_live_session_are_read_from_its_days_alone(filled: Database) -> None:
    plan = await explain(filled, heartbeats.SINCE, WORKSPACE, NOW_MS - 60_000, 100)
    assert scanned_whole(plan) == set()
    assert len(indexes_of(plan)) == 1


async def test_workspaces_are_read_by_key_and_suppliers_by_their_partial_index(filled: Database) -> None:
    by_ids = await explain(filled, workspaces.BY_IDS, [WORKSPACE])
    assert "workspace_pkey" in indexes_of(by_ids)
    assert "workspace" not in scanned_whole(by_ids)
    assert "workspace_dispatchable" in indexes_of(await explain(filled, workspaces.DISPATCHABLE, *id_bounds(None)))


async def test_what_is_forgotten_is_found_by_age(filled: Database) -> None:
    plan = await explain(filled, "DELETE FROM quote WHERE created_at_ms < $1 AND consumed_by IS NULL", NOW_MS - 4_990)
    assert indexes_of(plan) == {"quote_unused"}


EDGES = [
    (identity_sql.READ_OF_RESOURCE, ("workspace", "7"), "relation_tuple_pkey"),
    (identity_sql.READ_OF_SUBJECT, ("workspace", "wallet", "8000"), "relation_tuple_by_subject"),
    (identity_sql.READ_OF_BOTH, ("workspace", "7", "wallet", "landlord"), "relation_tuple_pkey"),
]


@pytest.mark.parametrize(("statement", "values", "index"), EDGES)
async def test_edges_are_found_by_index_also_by_a_plan_made_once_for_all_values(
    filled: Database, statement: str, values: tuple[str, ...], index: str
) -> None:
    async def generic(connection: Connection) -> str:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        try:
            return str(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {statement}", *values))
        finally:
            await connection.execute("RESET plan_cache_mode")

    plan = json.loads(await filled.read(generic))[0]["Plan"]
    assert indexes_of(plan) == {index}


FILL_SETTLEMENTS = f"""
INSERT INTO settlement (session_id, session_id_hash, payload, state, composed_at_ms, updated_at_ms)
SELECT gen_random_uuid(), 'hash ' || n, json_build_object(
  'from', '0xaa', 'toAmount', '85', 'feeAmount', '15', 'seconds', 10,
  'consumer', '00000000-0000-4000-8000-' || lpad((n % 400)::text, 12, '0'),
  'operator', '00000000-0000-4000-8000-' || lpad((n % 300)::text, 12, '0')), 'CONFIRMED', {NOW_MS} - n * 10000, {NOW_MS}
FROM generate_series(1, 10000) n;
ANALYZE settlement;
"""


@pytest.mark.parametrize("side", UsageSide)
async def test_usage_reads_the_range_of_one_workspace(database: Database, side: UsageSide) -> None:
    await database.run(lambda c: c.execute(FILL_SETTLEMENTS), deadline_ms=30_000)
    plan = await explain(database, USAGE[side], WORKSPACE, NOW_MS - 50_000_000, NOW_MS)
    assert indexes_of(plan) == {f"settlement_by_{side}"}
    assert scanned_whole(plan) == set()


async def test_an_idle_relayer_looks_at_no_settlement_that_is_done(database: Database) -> None:
    await database.run(lambda c: c.execute(FILL_SETTLEMENTS), deadline_ms=30_000)
    plan = await explain(database, PostgresOutbox.SQL.has_work, NOW_MS)
    # Each is an index of what is in flight or waits, and has no row of those that are done.
    assert indexes_of(plan) <= {"settlement_in_flight", "settlement_due", "settlement_by_payer"}
    assert scanned_whole(plan) == set()
