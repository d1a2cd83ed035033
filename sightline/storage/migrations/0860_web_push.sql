-- compatible_from: 0800
-- Web Push (ADR 0249): browsers that operators allowed to be told of jobs, and what waits to be sent to them. Earlier servers send
-- nothing.
CREATE TABLE push_subscription (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  -- A URL of a push service. Who knows it, and the key of the server, can write to the browser.
  endpoint text NOT NULL,
  p256dh bytea NOT NULL CHECK (octet_length(p256dh) = 65),
  auth bytea NOT NULL CHECK (octet_length(auth) = 16),
  -- Whose it is: that of an API key, or of a member's wallet. Nothing is sent once the key or the member may not start sessions.
  key_id uuid,
  wallet text,
  renewed_at_ms bigint NOT NULL,
  UNIQUE (workspace_id, endpoint),
  CHECK ((key_id IS NULL) <> (wallet IS NULL))
);
CREATE INDEX push_subscription_by_age ON push_subscription (renewed_at_ms);

-- Without a foreign key: a subscription that is deleted at the same time must not make an assignment fail.
CREATE TABLE push_message (
  subscription_id uuid NOT NULL,
  session_id uuid NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- All by this database's clock.
  created_at_ms bigint NOT NULL,
  next_at_ms bigint NOT NULL,
  lease_until_ms bigint,
  PRIMARY KEY (subscription_id, session_id)
);

CREATE FUNCTION push_assignment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO push_message (subscription_id, session_id, created_at_ms, next_at_ms)
  SELECT p.id, s.id, now_ms, now_ms
  FROM session s JOIN push_subscription p ON p.workspace_id = s.operator_workspace_id
    CROSS JOIN (SELECT database_now_ms() AS now_ms) AS clock
  WHERE s.id = NEW.session_id
  ON CONFLICT (subscription_id, session_id) DO UPDATE
    SET attempts = 0, created_at_ms = EXCLUDED.created_at_ms, next_at_ms = EXCLUDED.next_at_ms, lease_until_ms = NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER push_assignment AFTER INSERT ON session_event FOR EACH ROW WHEN (NEW.kind = 'ASSIGNED')
  EXECUTE FUNCTION push_assignment();
