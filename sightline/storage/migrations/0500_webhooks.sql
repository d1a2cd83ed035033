-- Webhooks of customers: endpoints, the outbox that the triggers below fill, and what is delivered to each endpoint.

CREATE TABLE webhook_endpoint (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  url text NOT NULL,
  description text NOT NULL,
  -- Empty: every type.
  event_types text[] NOT NULL,
  -- The signing secret is derived from the id and this number (SECURITY.md); a rotation increments it.
  generation integer NOT NULL DEFAULT 1,
  rotated_at_ms bigint,
  -- The first failed attempt since the last delivered one, by this database's clock.
  failing_since_ms bigint,
  disabled_reason text CHECK (disabled_reason IN ('OWNER', 'GONE', 'FAILING')),
  disabled_at_ms bigint,
  created_at_ms bigint NOT NULL,
  CHECK ((disabled_reason IS NULL) = (disabled_at_ms IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX webhook_endpoint_by_workspace ON webhook_endpoint (workspace_id, created_at_ms);

-- Events that are committed and not yet prepared for delivery. Written by triggers, in the transaction of the event.
CREATE TABLE webhook_outbox (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_id uuid NOT NULL,
  type text NOT NULL,
  -- When it happened, and when it was stored: the deadline of a session may have passed before its end is stored.
  at_ms bigint NOT NULL,
  stored_at_ms bigint NOT NULL,
  -- Orders the events of one session, wallet event or workspace.
  sequence bigint NOT NULL,
  -- The row that the event is about, as it was committed.
  subject json NOT NULL,
  retry_at_ms bigint NOT NULL DEFAULT 0
);

-- Events in the form in which they are sent. Kept for replays.
CREATE TABLE webhook_message (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id uuid NOT NULL UNIQUE,
  workspace_id uuid NOT NULL,
  type text NOT NULL,
  at_ms bigint NOT NULL,
  body text NOT NULL,
  created_at_ms bigint NOT NULL
);
CREATE INDEX webhook_message_by_workspace ON webhook_message (workspace_id, at_ms, number);
CREATE INDEX webhook_message_by_age ON webhook_message (created_at_ms);

-- One message for one endpoint. `step` is the number of failed attempts since it was queued or sent again.
CREATE TABLE webhook_delivery (
  endpoint_id uuid NOT NULL,
  number bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('PENDING', 'DELIVERED', 'FAILED')),
  attempts integer NOT NULL DEFAULT 0,
  step integer NOT NULL DEFAULT 0,
  -- Both by this database's clock.
  next_at_ms bigint NOT NULL,
  lease_until_ms bigint,
  last_attempt_at_ms bigint,
  last_status integer,
  last_error text,
  delivered_at_ms bigint,
  created_at_ms bigint NOT NULL,
  PRIMARY KEY (endpoint_id, number)
) WITH (fillfactor = 70);
CREATE INDEX webhook_delivery_due ON webhook_delivery (endpoint_id, next_at_ms) WHERE state = 'PENDING';
CREATE INDEX webhook_delivery_by_message ON webhook_delivery (number);

CREATE FUNCTION database_now_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- The triggers look for an endpoint first: a workspace without one costs one index lookup for each event.

CREATE FUNCTION webhook_session_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT party.id,
    CASE NEW.kind WHEN 'CREATED' THEN 'session.requested' WHEN 'STARTED' THEN 'session.live'
      ELSE 'session.' || lower(NEW.kind) END,
    NEW.at_ms, s.updated_at_ms, NEW.sequence, s.doc
  FROM session s CROSS JOIN LATERAL (SELECT s.consumer_workspace_id UNION SELECT s.operator_workspace_id) AS party(id)
  WHERE s.id = NEW.session_id AND EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = party.id);
  RETURN NULL;
END $$;
CREATE TRIGGER webhook_session_event AFTER INSERT ON session_event FOR EACH ROW
  WHEN (NEW.kind IN ('CREATED', 'ASSIGNED', 'STARTED', 'PAUSED', 'RESUMED', 'ENDED', 'CANCELLED', 'EXPIRED'))
  EXECUTE FUNCTION webhook_session_event();

CREATE FUNCTION webhook_availability() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = NEW.id)
    AND OLD.doc ->> 'availability' IS DISTINCT FROM NEW.doc ->> 'availability'
  THEN
    INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
    VALUES (NEW.id, 'workspace.availability', NEW.updated_at_ms, NEW.updated_at_ms, NEW.version, NEW.doc);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER webhook_availability AFTER UPDATE OF doc ON workspace FOR EACH ROW
  EXECUTE FUNCTION webhook_availability();

CREATE FUNCTION webhook_settlement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT party.id, 'settlement.confirmed', NEW.updated_at_ms, NEW.updated_at_ms, NEW.updated_at_ms,
    json_build_object(
      'session_id', NEW.session_id, 'payload', NEW.payload, 'state', NEW.state, 'tx_hash', NEW.tx_hash,
      'confirmed_at_ms', NEW.confirmed_at_ms,
      'to_amount', NEW.chain_to_amount::text, 'fee_amount', NEW.chain_fee_amount::text)
  FROM (SELECT (NEW.payload ->> 'consumer')::uuid UNION SELECT (NEW.payload ->> 'operator')::uuid) AS party(id)
  WHERE EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = party.id);
  RETURN NULL;
END $$;
-- A settlement that is mined again after a reorganisation, in another transaction, is reported again.
CREATE TRIGGER webhook_settlement AFTER UPDATE OF state ON settlement FOR EACH ROW
  WHEN (NEW.state IN ('CONFIRMED', 'MISMATCHED')
    AND (OLD.state, OLD.tx_hash) IS DISTINCT FROM (NEW.state, NEW.tx_hash))
  EXECUTE FUNCTION webhook_settlement();

CREATE FUNCTION webhook_deposit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT t.workspace_id, 'wallet.deposit', NEW.confirmed_at_ms, NEW.confirmed_at_ms, NEW.sequence,
    json_build_object(
      'workspace_id', t.workspace_id, 'tx_hash', NEW.tx_hash, 'log_index', NEW.log_index,
      'block_number', NEW.block_number, 'block_hash', NEW.block_hash, 'from_address', NEW.from_address,
      'to_address', NEW.to_address, 'amount', NEW.amount::text, 'created_at_ms', NEW.created_at_ms,
      'confirmed_at_ms', NEW.confirmed_at_ms, 'head', (SELECT number FROM chain_cursor))
  FROM tracked_wallet t
  WHERE t.address = NEW.address AND EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = t.workspace_id);
  RETURN NULL;
END $$;
CREATE TRIGGER webhook_deposit AFTER UPDATE OF confirmed_at_ms ON wallet_event FOR EACH ROW
  WHEN (NEW.kind = 'DEPOSIT' AND OLD.confirmed_at_ms IS NULL AND NEW.confirmed_at_ms IS NOT NULL)
  EXECUTE FUNCTION webhook_deposit();

-- Until now `webhooks:write` allowed nothing. Keys that were minted with it gain no power by this migration.
ALTER TABLE api_key ADD COLUMN inert_scopes text[] NOT NULL DEFAULT '{}';
UPDATE api_key SET inert_scopes = '{webhooks:write}' WHERE 'webhooks:write' = ANY(scopes);
