-- Ownership of shards. Every write of an actor's state compares the epoch of its shard; taking a shard over raises it.
CREATE TABLE shard (
  id smallint PRIMARY KEY CHECK (id BETWEEN 0 AND 255),
  owner text,
  incarnation text,
  epoch bigint NOT NULL DEFAULT 0
);
INSERT INTO shard (id) SELECT generate_series(0, 255);

-- Hold shards at these epochs until the transaction ends; false if one of them is not at its epoch. Holders share; whoever takes a
-- shard waits for them, and is seen by all who come later: the look at the epoch is a statement of its own, after the lock, so that
-- it sees what was committed while waiting. Advisory locks, because FOR SHARE writes to the row and makes a multixact for every
-- pair of holders. `ids` must ascend.
CREATE FUNCTION hold_shards(ids integer[], epochs bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(5300043, id) FROM unnest(ids) AS id;
  RETURN cardinality(ids) = (
    SELECT count(*) FROM shard JOIN unnest(ids, epochs) AS lease(id, epoch) USING (id, epoch));
END $$;

-- The same for one shard, at a third of the cost.
CREATE FUNCTION hold_shard(p_id integer, p_epoch bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  -- As a condition it is evaluated directly, without a query around it.
  IF pg_advisory_xact_lock_shared(5300043, p_id) IS NULL THEN
    RETURN false;
  END IF;
  PERFORM FROM shard WHERE id = p_id AND epoch = p_epoch;
  RETURN FOUND;
END $$;

-- Take every shard: writes under way at the old epochs finish first, later ones are refused.
CREATE FUNCTION take_shards(p_owner text, p_incarnation text) RETURNS TABLE (id smallint, epoch bigint)
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(5300043, n) FROM generate_series(0, 255) AS n;
  RETURN QUERY UPDATE shard SET owner = p_owner, incarnation = p_incarnation, epoch = shard.epoch + 1
    RETURNING shard.id, shard.epoch;
END $$;

-- Great-circle distance in metres, as the domain computes it.
CREATE FUNCTION distance_m(lat_a float8, lng_a float8, lat_b float8, lng_b float8) RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 2 * 6371008.8 * asin(sqrt(least(1.0,
  sin((radians(lat_b) - radians(lat_a)) / 2) ^ 2
  + cos(radians(lat_a)) * cos(radians(lat_b)) * sin(radians(lng_b - lng_a) / 2) ^ 2)));

-- Workspaces. `doc` is the whole of it; the columns are what is searched by.
CREATE TABLE workspace (
  id uuid PRIMARY KEY,
  shard smallint NOT NULL,
  version bigint NOT NULL,
  slug text NOT NULL UNIQUE,
  is_dispatchable boolean NOT NULL,
  doc json NOT NULL,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);
-- Suppliers that are ONLINE or BUSY or hold a claim.
CREATE INDEX workspace_dispatchable ON workspace (id) WHERE is_dispatchable;

CREATE TABLE session (
  id uuid PRIMARY KEY,
  shard smallint NOT NULL,
  version bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('REQUESTED', 'ASSIGNED', 'LIVE', 'ENDED', 'CANCELLED', 'EXPIRED')),
  consumer_workspace_id uuid NOT NULL,
  operator_workspace_id uuid,
  lat float8 NOT NULL,
  lng float8 NOT NULL,
  created_at_ms bigint NOT NULL,
  wait_deadline_ms bigint NOT NULL,
  due_at_ms bigint,
  video_ref text,
  doc json NOT NULL,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX session_by_consumer ON session (consumer_workspace_id, created_at_ms DESC, id DESC);
CREATE INDEX session_by_operator ON session (operator_workspace_id, created_at_ms DESC, id DESC)
  WHERE operator_workspace_id IS NOT NULL;
CREATE INDEX session_open ON session (created_at_ms DESC, id DESC) WHERE state = 'REQUESTED';
CREATE INDEX session_unfinished ON session (id) WHERE state IN ('REQUESTED', 'ASSIGNED', 'LIVE');
CREATE INDEX session_awaited ON session (lat, created_at_ms) WHERE state IN ('REQUESTED', 'ASSIGNED');

CREATE TABLE session_event (
  session_id uuid NOT NULL,
  sequence integer NOT NULL,
  kind text NOT NULL,
  at_ms bigint NOT NULL,
  facts json NOT NULL,
  hash text NOT NULL,
  PRIMARY KEY (session_id, sequence)
);

-- The newest instant at which a session's media was proved; moves forward only.
CREATE TABLE media_proof (
  session_id uuid PRIMARY KEY,
  proved_at_ms bigint NOT NULL
) WITH (fillfactor = 50);

-- Heartbeats, append-only, one partition per UTC day of receipt. The key makes recording one twice harmless.
CREATE TABLE heartbeat (
  workspace_id uuid NOT NULL,
  sequence bigint NOT NULL,
  at_ms bigint NOT NULL,
  taken_at_ms bigint NOT NULL,
  lat float8 NOT NULL,
  lng float8 NOT NULL,
  accuracy_m float8 NOT NULL,
  is_proof boolean NOT NULL,
  is_fresh boolean NOT NULL,
  is_mock boolean,
  session_id uuid,
  heading_degrees float8,
  speed_mps float8,
  altitude_m float8,
  battery_percent float8,
  source text,
  PRIMARY KEY (workspace_id, sequence, at_ms)
) PARTITION BY RANGE (at_ms);

-- Make the partition of a day (its number since the epoch) if there is none. Attached, not created in place: that way writers of
-- other days are not held up.
CREATE FUNCTION make_heartbeat_day(day integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  name text := 'heartbeat_' || to_char(to_timestamp(day * 86400.0) AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
  PERFORM pg_advisory_xact_lock(5300042);
  IF to_regclass(name) IS NULL THEN
    EXECUTE format('CREATE TABLE %I (LIKE heartbeat INCLUDING ALL)', name);
    EXECUTE format('ALTER TABLE heartbeat ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
      name, day * 86400000::bigint, (day + 1) * 86400000::bigint);
  END IF;
END $$;

-- Drop the partitions of days before this one; returns how many.
CREATE FUNCTION drop_heartbeat_days_before(day integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  limit_name text := 'heartbeat_' || to_char(to_timestamp(day * 86400.0) AT TIME ZONE 'UTC', 'YYYYMMDD');
  old record;
  dropped integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(5300042);
  FOR old IN
    SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'heartbeat'::regclass AND c.relname < limit_name
  LOOP
    EXECUTE format('DROP TABLE %I', old.name);
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END $$;

CREATE TABLE quote (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  lat float8 NOT NULL,
  lng float8 NOT NULL,
  duration_s integer NOT NULL,
  base_rate bigint NOT NULL,
  supply_bps integer NOT NULL,
  demand_bps integer NOT NULL,
  corridor_bps integer NOT NULL,
  available_operators integer NOT NULL,
  created_at_ms bigint NOT NULL,
  expires_at_ms bigint NOT NULL,
  consumed_by uuid
);
CREATE INDEX quote_unused ON quote (created_at_ms) WHERE consumed_by IS NULL;

-- Answers given to calls that carried an Idempotency-Key. `scope` is a workspace id.
CREATE TABLE idempotency (
  scope text NOT NULL,
  method text NOT NULL,
  path text NOT NULL,
  key text NOT NULL,
  body_hash text NOT NULL,
  result json NOT NULL,
  at_ms bigint NOT NULL,
  revision bigint,
  PRIMARY KEY (scope, key, method, path)
);
CREATE INDEX idempotency_by_age ON idempotency (at_ms);

-- Why a write is refused when something of it was written already: undoes it. Caught by the store.
CREATE FUNCTION reject(why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'SL001', MESSAGE = why;
END $$;

-- Write edges of the authorization graph and return its revision. Each edge is five texts in a row: type and id of the resource,
-- relation, type and id of the subject. Sorted by the caller, so that concurrent writers lock rows in one order.
CREATE FUNCTION write_edges(p_put text[], p_gone text[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(p_gone) > 0 THEN
    DELETE FROM relation_tuple t
    USING (SELECT p_gone[n] AS a, p_gone[n + 1] AS b, p_gone[n + 2] AS c, p_gone[n + 3] AS d, p_gone[n + 4] AS e
           FROM generate_series(1, cardinality(p_gone), 5) AS n) AS g
    WHERE t.resource_type = g.a AND t.resource_id = g.b AND t.relation = g.c AND t.subject_type = g.d AND t.subject_id = g.e;
  END IF;
  IF cardinality(p_put) > 0 THEN
    INSERT INTO relation_tuple (resource_type, resource_id, relation, subject_type, subject_id)
    SELECT p_put[n], p_put[n + 1], p_put[n + 2], p_put[n + 3], p_put[n + 4]
    FROM generate_series(1, cardinality(p_put), 5) AS n
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN nextval('relation_revision');
END $$;

-- The checks that every write starts with: the shard is held at this epoch, and the call was not answered before.
-- Returns NULL, or why the write is refused; then nothing is written.
CREATE FUNCTION admit_write(
  p_shard smallint, p_epoch bigint,
  p_scope text, p_method text, p_path text, p_key text, p_body_hash text, p_result json, p_at_ms bigint
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF NOT hold_shard(p_shard, p_epoch) THEN
    RETURN 'FENCED';
  END IF;
  IF p_key IS NOT NULL THEN
    INSERT INTO idempotency (scope, method, path, key, body_hash, result, at_ms)
    VALUES (p_scope, p_method, p_path, p_key, p_body_hash, p_result, p_at_ms)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN 'IDEMPOTENT';
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- The end of a write that changes relations: they are written, and the revision goes into the answer as well.
CREATE FUNCTION conclude_write(p_scope text, p_method text, p_path text, p_key text, p_put text[], p_gone text[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  new_revision bigint;
BEGIN
  IF cardinality(p_put) + cardinality(p_gone) = 0 THEN
    RETURN NULL;
  END IF;
  new_revision := write_edges(p_put, p_gone);
  IF p_key IS NOT NULL THEN
    UPDATE idempotency SET revision = new_revision
    WHERE scope = p_scope AND key = p_key AND method = p_method AND path = p_path;
  END IF;
  RETURN new_revision;
END $$;

-- One step of a session. `why` is NULL, or why it is refused; then nothing is written.
CREATE FUNCTION write_session(
  p_shard smallint, p_epoch bigint,
  p_scope text, p_method text, p_path text, p_key text, p_body_hash text, p_result json, p_answered_at_ms bigint,
  p_id uuid, p_version bigint, p_state text, p_consumer uuid, p_operator uuid, p_lat float8, p_lng float8,
  p_created_at_ms bigint, p_wait_deadline_ms bigint, p_due_at_ms bigint, p_video_ref text, p_doc json, p_at_ms bigint,
  p_quote uuid,
  p_sequences integer[], p_kinds text[], p_event_at_ms bigint[], p_facts json[], p_hashes text[],
  p_hold_hash text, p_hold_payer text, p_hold_amount numeric, p_hold_enforced boolean, p_hold_stale_ms bigint,
  p_put text[], p_gone text[],
  OUT why text, OUT revision bigint
) LANGUAGE plpgsql AS $$
BEGIN
  why := admit_write(p_shard, p_epoch, p_scope, p_method, p_path, p_key, p_body_hash, p_result, p_answered_at_ms);
  IF why IS NOT NULL THEN
    RETURN;
  END IF;
  IF p_version = 0 THEN
    INSERT INTO session (id, shard, version, state, consumer_workspace_id, operator_workspace_id, lat, lng,
      created_at_ms, wait_deadline_ms, due_at_ms, video_ref, doc, updated_at_ms)
    VALUES (p_id, p_shard, 1, p_state, p_consumer, p_operator, p_lat, p_lng,
      p_created_at_ms, p_wait_deadline_ms, p_due_at_ms, p_video_ref, p_doc, p_at_ms)
    ON CONFLICT DO NOTHING;
  ELSE
    UPDATE session SET version = version + 1, state = p_state, operator_workspace_id = p_operator,
      due_at_ms = p_due_at_ms, video_ref = p_video_ref, doc = p_doc, updated_at_ms = p_at_ms
    WHERE id = p_id AND version = p_version;
  END IF;
  IF NOT FOUND THEN
    IF p_key IS NOT NULL THEN
      PERFORM reject('VERSION');
    END IF;
    why := 'VERSION';
    RETURN;
  END IF;
  IF p_quote IS NOT NULL THEN
    UPDATE quote SET consumed_by = p_id WHERE id = p_quote AND consumed_by IS NULL;
    IF NOT FOUND THEN
      PERFORM reject('QUOTE_CONSUMED');
    END IF;
  END IF;
  IF p_hold_amount IS NOT NULL AND NOT ledger_take_hold(
    p_id, p_hold_hash, p_hold_payer, p_hold_amount, p_hold_enforced, p_hold_stale_ms, p_at_ms
  ) THEN
    PERFORM reject('FUNDS');
  END IF;
  IF cardinality(p_sequences) > 0 THEN
    INSERT INTO session_event (session_id, sequence, kind, at_ms, facts, hash)
    SELECT p_id, * FROM unnest(p_sequences, p_kinds, p_event_at_ms, p_facts, p_hashes);
  END IF;
  revision := conclude_write(p_scope, p_method, p_path, p_key, p_put, p_gone);
END $$;

-- One step of a workspace. `why` is NULL, or why it is refused; then nothing is written.
CREATE FUNCTION write_workspace(
  p_shard smallint, p_epoch bigint,
  p_scope text, p_method text, p_path text, p_key text, p_body_hash text, p_result json, p_answered_at_ms bigint,
  p_id uuid, p_version bigint, p_slug text, p_is_dispatchable boolean, p_doc json, p_at_ms bigint,
  p_put text[], p_gone text[],
  OUT why text, OUT revision bigint
) LANGUAGE plpgsql AS $$
BEGIN
  why := admit_write(p_shard, p_epoch, p_scope, p_method, p_path, p_key, p_body_hash, p_result, p_answered_at_ms);
  IF why IS NOT NULL THEN
    RETURN;
  END IF;
  IF p_version = 0 THEN
    INSERT INTO workspace (id, shard, version, slug, is_dispatchable, doc, updated_at_ms)
    VALUES (p_id, p_shard, 1, p_slug, p_is_dispatchable, p_doc, p_at_ms)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      why := CASE WHEN EXISTS (SELECT FROM workspace WHERE id = p_id) THEN 'VERSION' ELSE 'SLUG_TAKEN' END;
    END IF;
  ELSE
    UPDATE workspace SET version = version + 1, is_dispatchable = p_is_dispatchable, doc = p_doc,
      updated_at_ms = p_at_ms
    WHERE id = p_id AND version = p_version;
    IF NOT FOUND THEN
      why := 'VERSION';
    END IF;
  END IF;
  IF why IS NOT NULL THEN
    IF p_key IS NOT NULL THEN
      PERFORM reject(why);
    END IF;
    RETURN;
  END IF;
  revision := conclude_write(p_scope, p_method, p_path, p_key, p_put, p_gone);
END $$;
