-- Roles are shards with one loop or actor each: 256 dispatcher, 257 relayer, 258 watcher, 259 housekeeping. Their rows are inserted by
-- the next take-over and not here: a server of the version before may still run, and expects to own 256 rows.
ALTER TABLE shard DROP CONSTRAINT shard_id_check, ADD CONSTRAINT shard_id_check CHECK (id BETWEEN 0 AND 259);

-- Take every shard and every role: writes under way at the old epochs finish first, later ones are refused.
CREATE OR REPLACE FUNCTION take_shards(p_owner text, p_incarnation text) RETURNS TABLE (id smallint, epoch bigint)
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO shard SELECT generate_series(256, 259) ON CONFLICT DO NOTHING;
  PERFORM pg_advisory_xact_lock(5300043, n) FROM generate_series(0, 259) AS n;
  RETURN QUERY UPDATE shard SET owner = p_owner, incarnation = p_incarnation, epoch = shard.epoch + 1
    RETURNING shard.id, shard.epoch;
END $$;
