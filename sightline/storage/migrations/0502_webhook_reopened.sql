-- A request that is open again, because its operator did not start, is reported like a new one.

CREATE OR REPLACE FUNCTION webhook_session_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT party.id,
    CASE NEW.kind WHEN 'CREATED' THEN 'session.requested' WHEN 'REOPENED' THEN 'session.requested'
      WHEN 'STARTED' THEN 'session.live' ELSE 'session.' || lower(NEW.kind) END,
    NEW.at_ms, s.updated_at_ms, NEW.sequence, s.doc
  FROM session s CROSS JOIN LATERAL (SELECT s.consumer_workspace_id UNION SELECT s.operator_workspace_id) AS party(id)
  WHERE s.id = NEW.session_id AND EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = party.id);
  RETURN NULL;
END $$;
DROP TRIGGER webhook_session_event ON session_event;
CREATE TRIGGER webhook_session_event AFTER INSERT ON session_event FOR EACH ROW
  WHEN (NEW.kind IN ('CREATED', 'ASSIGNED', 'REOPENED', 'STARTED', 'PAUSED', 'RESUMED', 'ENDED', 'CANCELLED', 'EXPIRED'))
  EXECUTE FUNCTION webhook_session_event();
