-- The outbox keeps whole rows of settlements and wallet events, which are read by the same code as the tables. Amounts are text,
-- because readers of JSON do not keep large numbers exact.

CREATE OR REPLACE FUNCTION webhook_settlement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT party.id, 'settlement.confirmed', NEW.updated_at_ms, NEW.updated_at_ms, NEW.updated_at_ms,
    (to_jsonb(NEW) || jsonb_build_object(
      'chain_to_amount', NEW.chain_to_amount::text, 'chain_fee_amount', NEW.chain_fee_amount::text))::json
  FROM (SELECT (NEW.payload ->> 'consumer')::uuid UNION SELECT (NEW.payload ->> 'operator')::uuid) AS party(id)
  WHERE EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = party.id);
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION webhook_deposit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT t.workspace_id, 'wallet.deposit', NEW.confirmed_at_ms, NEW.confirmed_at_ms, NEW.sequence,
    (to_jsonb(NEW) || jsonb_build_object(
      'amount', NEW.amount::text, 'session_id', NULL, 'head', (SELECT number FROM chain_cursor)))::json
  FROM tracked_wallet t
  WHERE t.address = NEW.address AND EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = t.workspace_id);
  RETURN NULL;
END $$;
