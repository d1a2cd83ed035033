-- compatible_from: 0590
-- All of what the contract's event says, where that differs from the payload: the amounts alone do not add up with our seconds.
ALTER TABLE settlement
  ADD COLUMN chain_from text,
  ADD COLUMN chain_to text,
  ADD COLUMN chain_rate numeric(78),
  ADD COLUMN chain_seconds numeric(78),
  ADD COLUMN chain_fee_bps numeric(78);
-- The contract requires that the amounts are rate times seconds, and the rate of a session never changes.
UPDATE settlement SET
  chain_from = payload ->> 'from', chain_to = payload ->> 'to', chain_rate = (payload ->> 'rate')::numeric,
  chain_seconds = div(chain_to_amount + chain_fee_amount, greatest((payload ->> 'rate')::numeric, 1)),
  chain_fee_bps = (payload ->> 'feeBps')::numeric
  WHERE state = 'MISMATCHED' AND chain_to_amount IS NOT NULL;

CREATE OR REPLACE FUNCTION webhook_settlement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO webhook_outbox (workspace_id, type, at_ms, stored_at_ms, sequence, subject)
  SELECT party.id, 'settlement.confirmed', NEW.updated_at_ms, NEW.updated_at_ms, NEW.updated_at_ms,
    (to_jsonb(NEW) || jsonb_build_object(
      'chain_to_amount', NEW.chain_to_amount::text, 'chain_fee_amount', NEW.chain_fee_amount::text,
      'chain_rate', NEW.chain_rate::text, 'chain_seconds', NEW.chain_seconds::text,
      'chain_fee_bps', NEW.chain_fee_bps::text))::json
  FROM (SELECT (NEW.payload ->> 'consumer')::uuid UNION SELECT (NEW.payload ->> 'operator')::uuid) AS party(id)
  WHERE EXISTS (SELECT FROM webhook_endpoint e WHERE e.workspace_id = party.id);
  RETURN NULL;
END $$;
