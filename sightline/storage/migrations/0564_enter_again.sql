-- As before, and a server that enters again after its lease has run out holds it from now, not from the first time.
CREATE OR REPLACE FUNCTION enter_server(p_incarnation text, p_host text, p_place text, p_ttl interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(5300045);
  INSERT INTO shard SELECT generate_series(256, 259) ON CONFLICT DO NOTHING;
  PERFORM end_server(incarnation) FROM server_lease WHERE place = p_place AND incarnation <> p_incarnation;
  PERFORM renew_server(p_incarnation, p_ttl);
  INSERT INTO server_lease (incarnation, host, place, expires_at)
    VALUES (p_incarnation, p_host, p_place, clock_timestamp() + p_ttl) ON CONFLICT DO NOTHING;
END $$;
