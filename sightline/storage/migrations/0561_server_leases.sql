-- The server that owns the shards, and until when, by the clock of this database.
CREATE TABLE server_lease (
  incarnation text PRIMARY KEY,
  host text NOT NULL,
  -- The locked data directory of the server. Whoever holds the lock of the same place knows that this server has ended.
  place text NOT NULL,
  expires_at timestamptz NOT NULL
);

-- Take every shard, unless another server holds a valid lease: then one row with its host and no shard.
-- A lease that ends later than twice its duration from now was made before the clock was set back: it counts as expired.
CREATE FUNCTION join_server(p_incarnation text, p_host text, p_place text, p_ttl interval)
RETURNS TABLE (holder text, id smallint, epoch bigint) LANGUAGE plpgsql AS $$
BEGIN
  -- One server joins at a time, and no lease is renewed meanwhile.
  PERFORM pg_advisory_xact_lock(5300045);
  PERFORM FROM server_lease FOR UPDATE;
  SELECT l.host INTO holder FROM server_lease l
    WHERE l.incarnation <> p_incarnation AND l.place <> p_place
      AND l.expires_at > clock_timestamp() AND l.expires_at < clock_timestamp() + 2 * p_ttl
    LIMIT 1;
  IF FOUND THEN
    RETURN NEXT;
    RETURN;
  END IF;
  -- A server that was suspended within a batch still holds the locks of its shards.
  PERFORM pg_terminate_backend(a.pid) FROM pg_stat_activity a
    JOIN server_lease l ON a.application_name = 'sightline ' || l.incarnation
    WHERE a.datname = current_database() AND l.incarnation <> p_incarnation;
  RETURN QUERY SELECT NULL::text, t.id, t.epoch FROM take_shards(p_host, p_incarnation) t;
  DELETE FROM server_lease;
  INSERT INTO server_lease VALUES (p_incarnation, p_host, p_place, clock_timestamp() + p_ttl);
END $$;
