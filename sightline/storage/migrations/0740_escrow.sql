-- compatible_from: 0590
-- Holds that the escrow contract opens before a session (ADR 0197), in the form of the settlement outbox.
CREATE TABLE hold_opening (
  session_id uuid PRIMARY KEY,
  session_id_hash text NOT NULL UNIQUE,
  payer text NOT NULL,
  payee text NOT NULL,
  max_amount numeric(78) NOT NULL CHECK (max_amount > 0),
  rate numeric(78) NOT NULL CHECK (rate > 0),
  fee_bps integer NOT NULL,
  consent json NOT NULL,
  state text NOT NULL CHECK (state IN (
    'COMPOSED', 'SIGNED', 'SENT', 'MINED', 'CONFIRMED', 'REVERTED', 'STUCK', 'FAILED', 'MISMATCHED', 'WRITTEN_OFF')),
  lane text NOT NULL DEFAULT 'PAYABLE' CHECK (lane IN ('PAYABLE', 'RETRY')),
  reason text,
  tx_hash text,
  block_number bigint,
  block_hash text,
  opened_at_s bigint,
  confirmed_at_ms bigint,
  retry_at_ms bigint NOT NULL DEFAULT 0,
  tries integer NOT NULL DEFAULT 0,
  notified boolean NOT NULL DEFAULT true,
  composed_at_ms bigint NOT NULL,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX hold_opening_due ON hold_opening (lane, retry_at_ms, composed_at_ms, session_id)
  WHERE state IN ('COMPOSED', 'REVERTED', 'FAILED');
CREATE INDEX hold_opening_in_flight ON hold_opening (composed_at_ms, session_id)
  WHERE state IN ('SIGNED', 'SENT', 'STUCK', 'MINED');
CREATE INDEX hold_opening_by_block ON hold_opening (block_number) WHERE block_number IS NOT NULL;
CREATE INDEX hold_opening_by_age ON hold_opening (updated_at_ms);

CREATE TABLE opening_attempt (
  tx_hash text NOT NULL,
  session_id uuid NOT NULL REFERENCES hold_opening,
  relayer text NOT NULL,
  nonce bigint NOT NULL,
  raw bytea NOT NULL,
  max_fee_wei numeric(78) NOT NULL,
  tip_wei numeric(78) NOT NULL,
  signed_at_ms bigint NOT NULL,
  sent_at_ms bigint,
  position bigint GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (tx_hash, session_id)
);
CREATE INDEX opening_attempt_by_nonce ON opening_attempt (relayer, nonce);
CREATE INDEX opening_attempt_by_age ON opening_attempt (signed_at_ms);
CREATE INDEX opening_attempt_by_session ON opening_attempt (session_id, position);

-- The payer's consent to many sessions, under which a workspace creates sessions without a payment of their own.
CREATE TABLE mandate (
  workspace_id uuid PRIMARY KEY,
  mandate json NOT NULL,
  signed_at_ms bigint NOT NULL
);

-- VOID: returns the amount of a session that never was LIVE. It is no settlement that a customer is told of.
ALTER TABLE settlement DROP CONSTRAINT settlement_lane_check;
ALTER TABLE settlement ADD CONSTRAINT settlement_lane_check CHECK (lane IN ('PAYABLE', 'RETRY', 'FREE', 'VOID'));
DROP TRIGGER webhook_settlement ON settlement;
CREATE TRIGGER webhook_settlement AFTER UPDATE OF state ON settlement FOR EACH ROW
  WHEN (NEW.lane <> 'VOID' AND NEW.state IN ('CONFIRMED', 'MISMATCHED')
    AND (OLD.state, OLD.tx_hash) IS DISTINCT FROM (NEW.state, NEW.tx_hash))
  EXECUTE FUNCTION webhook_settlement();

-- The block in which the contract took the amount: from then on the hold reserves nothing of the wallet (RELEASED).
ALTER TABLE hold ADD COLUMN escrowed_block bigint;
CREATE INDEX hold_by_escrowed_block ON hold (escrowed_block) WHERE escrowed_block IS NOT NULL;

-- As before, but a payer that signed an authorization needs no allowance: the token moves the amount by its signature.
CREATE OR REPLACE FUNCTION ledger_take_hold(
  p_session uuid, p_hash text, p_payer text, p_amount numeric, p_enforced boolean, p_stale_ms bigint, p_now_ms bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  spendable numeric;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_payer, 5300043));
  IF EXISTS (SELECT FROM hold WHERE session_id = p_session) THEN
    RETURN true;
  END IF;
  IF p_enforced THEN
    SELECT CASE WHEN EXISTS (
        SELECT FROM session s WHERE s.id = p_session AND s.doc #>> '{terms,consent,kind}' = 'authorization')
      THEN w.balance ELSE wallet_spendable(w, p_now_ms) END
        - coalesce((SELECT sum(h.amount) FROM hold h WHERE h.payer = p_payer AND h.state <> 'RELEASED'), 0)
      INTO spendable
      FROM wallet_state w, chain_cursor c
      WHERE w.address = p_payer AND NOT w.needs_reading AND c.checked_at_ms >= p_now_ms - p_stale_ms
        AND (w.session_limit IS NULL OR w.session_limit >= p_amount);
    IF NOT FOUND OR spendable < p_amount THEN
      RETURN false;
    END IF;
  END IF;
  INSERT INTO hold (session_id, session_id_hash, payer, amount, state, updated_at_ms)
  VALUES (p_session, p_hash, p_payer, p_amount, 'OPEN', p_now_ms);
  RETURN true;
END $$;
