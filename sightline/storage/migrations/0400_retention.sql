-- Heartbeats become unique by (workspace, sequence) within a day, and every table that grows gets what retention needs.

-- A heartbeat recorded twice: keep the first. Until now the key held at_ms too, so a commit that was thought lost and came late
-- could stand beside its repetition.
DELETE FROM heartbeat h
USING (SELECT workspace_id, sequence, min(at_ms) AS first_ms FROM heartbeat GROUP BY 1, 2 HAVING count(*) > 1) d
WHERE h.workspace_id = d.workspace_id AND h.sequence = d.sequence AND h.at_ms > d.first_ms;

-- A key of a partitioned table must hold the partition key, so each partition has a key of its own.
ALTER TABLE heartbeat DROP CONSTRAINT heartbeat_pkey;
DO $$
DECLARE
  part regclass;
BEGIN
  FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'heartbeat'::regclass LOOP
    EXECUTE format('ALTER TABLE %s ADD PRIMARY KEY (workspace_id, sequence)', part);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION make_heartbeat_day(day integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  name text := 'heartbeat_' || to_char(to_timestamp(day * 86400.0) AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
  PERFORM pg_advisory_xact_lock(5300042);
  IF to_regclass(name) IS NULL THEN
    EXECUTE format('CREATE TABLE %I (LIKE heartbeat INCLUDING ALL, PRIMARY KEY (workspace_id, sequence))', name);
    EXECUTE format('ALTER TABLE heartbeat ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
      name, day * 86400000::bigint, (day + 1) * 86400000::bigint);
  END IF;
END $$;

-- Up to where retention has deleted, so that a clock that jumps ahead cannot delete more than a day's worth at once.
CREATE TABLE retention (
  id smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
  now_ms bigint NOT NULL
);

CREATE INDEX session_closed ON session (updated_at_ms) WHERE state IN ('ENDED', 'CANCELLED', 'EXPIRED');
CREATE INDEX quote_used ON quote (created_at_ms) WHERE consumed_by IS NOT NULL;
CREATE INDEX api_key_revoked ON api_key (revoked_at_ms) WHERE revoked_at_ms IS NOT NULL;
CREATE INDEX settlement_attempt_by_age ON settlement_attempt (signed_at_ms);
