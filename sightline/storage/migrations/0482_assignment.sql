-- An operator's claim and its session's assignment in one transaction: both rows or neither (ADR 0072).

-- The parameters of `write_session`, each with the prefix s_, then those of `write_workspace` that a claim needs. `p_locks` are
-- the shards of both rows, ascending; of a batch, the first call has the shards of the whole batch, so that a batch never waits
-- for a shard below one that it holds.
--
-- A refusal of the workspace is returned. A refusal of the session undoes the claim, so it is raised as `reject` does.
CREATE FUNCTION write_assignment(
  p_locks integer[],
  s_shard smallint, s_epoch bigint,
  s_scope text, s_method text, s_path text, s_key text, s_body_hash text, s_result json, s_answered_at_ms bigint,
  s_id uuid, s_version bigint, s_state text, s_consumer uuid, s_operator uuid, s_lat float8, s_lng float8,
  s_created_at_ms bigint, s_wait_deadline_ms bigint, s_due_at_ms bigint, s_video_ref text, s_doc json, s_at_ms bigint,
  s_quote uuid,
  s_sequences integer[], s_kinds text[], s_event_at_ms bigint[], s_facts json[], s_hashes text[],
  s_hold_hash text, s_hold_payer text, s_hold_amount numeric, s_hold_enforced boolean, s_hold_stale_ms bigint,
  s_put text[], s_gone text[],
  w_shard smallint, w_epoch bigint, w_id uuid, w_version bigint, w_slug text, w_is_dispatchable boolean, w_doc json,
  w_at_ms bigint,
  OUT why text, OUT revision bigint
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(5300043, n) FROM unnest(p_locks) AS n;
  SELECT w.why INTO why FROM write_workspace(
    w_shard, w_epoch, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    w_id, w_version, w_slug, w_is_dispatchable, w_doc, w_at_ms, '{}', '{}') AS w;
  IF why IS NOT NULL THEN
    RETURN;
  END IF;
  SELECT s.why, s.revision INTO why, revision FROM write_session(
    s_shard, s_epoch, s_scope, s_method, s_path, s_key, s_body_hash, s_result, s_answered_at_ms,
    s_id, s_version, s_state, s_consumer, s_operator, s_lat, s_lng,
    s_created_at_ms, s_wait_deadline_ms, s_due_at_ms, s_video_ref, s_doc, s_at_ms, s_quote,
    s_sequences, s_kinds, s_event_at_ms, s_facts, s_hashes,
    s_hold_hash, s_hold_payer, s_hold_amount, s_hold_enforced, s_hold_stale_ms, s_put, s_gone) AS s;
  IF why IS NOT NULL THEN
    PERFORM reject(why);
  END IF;
END $$;
