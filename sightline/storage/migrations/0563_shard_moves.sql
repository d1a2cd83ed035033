-- Several servers, each the owner of some shards. A server that owns all shards joins by `join_server` instead.
ALTER TABLE server_lease ADD COLUMN held_since timestamptz NOT NULL DEFAULT clock_timestamp();
-- The server that a released shard is meant for. No other one takes it while that server's lease is valid.
ALTER TABLE shard ADD COLUMN handing_to text;

-- End a server: its connections, its lease and its ownership. Only for a server that has ended or whose lease has.
CREATE FUNCTION end_server(p_incarnation text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- A server that was suspended within a batch still holds the locks of its shards.
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'sightline ' || p_incarnation;
  UPDATE shard SET owner = NULL, incarnation = NULL, handing_to = NULL WHERE incarnation = p_incarnation;
  DELETE FROM server_lease WHERE incarnation = p_incarnation;
END $$;

-- Get a lease without shards. Earlier servers of the same place have ended, because their lock is held by this one.
CREATE FUNCTION enter_server(p_incarnation text, p_host text, p_place text, p_ttl interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(5300045);
  INSERT INTO shard SELECT generate_series(256, 259) ON CONFLICT DO NOTHING;
  PERFORM end_server(incarnation) FROM server_lease WHERE place = p_place AND incarnation <> p_incarnation;
  INSERT INTO server_lease (incarnation, host, place, expires_at)
    VALUES (p_incarnation, p_host, p_place, clock_timestamp() + p_ttl)
    ON CONFLICT (incarnation) DO UPDATE SET expires_at = excluded.expires_at;
END $$;

-- Extend a lease; returns what the server owns. `is_held` is false if the server was ended. A lease that had run out, or
-- that was made before the clock was set back, counts from now.
CREATE FUNCTION renew_server(p_incarnation text, p_ttl interval, OUT is_held boolean, OUT ids integer[], OUT epochs bigint[])
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE server_lease SET expires_at = clock_timestamp() + p_ttl,
    held_since = CASE WHEN expires_at > clock_timestamp() AND expires_at <= clock_timestamp() + 2 * p_ttl
      THEN held_since ELSE clock_timestamp() END
    WHERE incarnation = p_incarnation;
  is_held := FOUND;
  SELECT coalesce(array_agg(s.id::integer ORDER BY s.id), '{}'), coalesce(array_agg(s.epoch ORDER BY s.id), '{}')
    INTO ids, epochs FROM shard s WHERE s.incarnation = p_incarnation;
END $$;

-- Take those of the shards that nobody owns, and those of servers whose lease has ended. The second needs an own lease that was held
-- without a break for one term: after an outage of the database, or a suspension, the others get time to renew theirs.
CREATE FUNCTION take_free_shards(p_incarnation text, p_ids integer[], p_ttl interval)
RETURNS TABLE (id smallint, epoch bigint) LANGUAGE plpgsql AS $$
DECLARE
  own server_lease%ROWTYPE;
BEGIN
  PERFORM pg_advisory_xact_lock(5300045);
  SELECT * INTO own FROM server_lease l WHERE l.incarnation = p_incarnation FOR UPDATE;
  IF NOT FOUND OR own.expires_at <= clock_timestamp() THEN
    RETURN;
  END IF;
  IF own.held_since <= clock_timestamp() - p_ttl THEN
    PERFORM end_server(dead.incarnation) FROM (
      SELECT l.incarnation FROM server_lease l WHERE l.incarnation <> p_incarnation
        AND (l.expires_at <= clock_timestamp() OR l.expires_at > clock_timestamp() + 2 * p_ttl) FOR UPDATE) AS dead;
  END IF;
  PERFORM pg_advisory_xact_lock(5300043, free.id) FROM (
    SELECT s.id::integer FROM shard s WHERE s.id = ANY(p_ids)
      AND NOT EXISTS (SELECT FROM server_lease l WHERE l.incarnation = coalesce(s.incarnation, s.handing_to)
        AND l.incarnation <> p_incarnation)
      AND s.incarnation IS DISTINCT FROM p_incarnation
    ORDER BY s.id) AS free;
  RETURN QUERY UPDATE shard s SET owner = own.host, incarnation = p_incarnation, handing_to = NULL, epoch = s.epoch + 1
    WHERE s.id = ANY(p_ids)
      AND NOT EXISTS (SELECT FROM server_lease l WHERE l.incarnation = coalesce(s.incarnation, s.handing_to)
        AND l.incarnation <> p_incarnation)
      AND s.incarnation IS DISTINCT FROM p_incarnation
    RETURNING s.id, s.epoch;
END $$;
