-- Settlements that cannot be paid wait apart from those that can; wallets are read when they change.

ALTER TABLE settlement DROP CONSTRAINT settlement_state_check;
ALTER TABLE settlement ADD CONSTRAINT settlement_state_check CHECK (state IN (
  'COMPOSED', 'SIGNED', 'SENT', 'MINED', 'CONFIRMED', 'REVERTED', 'STUCK', 'FAILED', 'MISMATCHED', 'WRITTEN_OFF'));
ALTER TABLE settlement
  ADD COLUMN payer text NOT NULL GENERATED ALWAYS AS (lower(payload ->> 'from')) STORED,
  ADD COLUMN amount numeric(78) NOT NULL
    GENERATED ALWAYS AS ((payload ->> 'toAmount')::numeric + (payload ->> 'feeAmount')::numeric) STORED,
  ADD COLUMN lane text NOT NULL DEFAULT 'PAYABLE' CHECK (lane IN ('PAYABLE', 'RETRY', 'FREE')),
  -- What the contract's event says, where that differs from the payload.
  ADD COLUMN chain_to_amount numeric(78),
  ADD COLUMN chain_fee_amount numeric(78);
UPDATE settlement SET lane = CASE WHEN amount = 0 THEN 'FREE' ELSE 'RETRY' END
  WHERE state IN ('REVERTED', 'FAILED') OR amount = 0;

-- The queue of each lane; what is on its way; and what waits for one payer's money.
CREATE INDEX settlement_due ON settlement (lane, retry_at_ms, composed_at_ms, session_id)
  WHERE state IN ('COMPOSED', 'REVERTED', 'FAILED');
CREATE INDEX settlement_in_flight ON settlement (composed_at_ms, session_id)
  WHERE state IN ('SIGNED', 'SENT', 'STUCK', 'MINED');
CREATE INDEX settlement_by_payer ON settlement (payer, lane, amount)
  WHERE state IN ('COMPOSED', 'REVERTED', 'FAILED');

-- A transaction may settle many sessions.
ALTER TABLE settlement_attempt DROP CONSTRAINT settlement_attempt_pkey;
ALTER TABLE settlement_attempt ADD PRIMARY KEY (tx_hash, session_id);
ALTER TABLE relayer_key ADD COLUMN free_batch_at_ms bigint NOT NULL DEFAULT 0;

-- The payer's own limits on the settlement contract; NULL is none. `spent` counts for the UTC day `spent_day`.
ALTER TABLE wallet_state
  ADD COLUMN session_limit numeric(78),
  ADD COLUMN day_limit numeric(78),
  ADD COLUMN spent numeric(78) NOT NULL DEFAULT 0,
  ADD COLUMN spent_day bigint NOT NULL DEFAULT 0;
CREATE INDEX wallet_state_by_age ON wallet_state (updated_at_ms);

-- Wallets whose numbers must be read: new ones with their history, and those that a reorganisation made outdated.
CREATE TABLE wallet_to_read (
  address text PRIMARY KEY,
  is_new boolean NOT NULL
);
INSERT INTO wallet_to_read
  SELECT DISTINCT t.address, w.address IS NULL FROM tracked_wallet t LEFT JOIN wallet_state w USING (address)
  WHERE w.address IS NULL OR w.needs_reading;
CREATE FUNCTION read_new_wallet() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO wallet_to_read
    SELECT NEW.address, true WHERE NOT EXISTS (SELECT FROM wallet_state w WHERE w.address = NEW.address)
    ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER read_new_wallet AFTER INSERT ON tracked_wallet FOR EACH ROW EXECUTE FUNCTION read_new_wallet();

-- The most that could be taken of a wallet now, as last read: balance, allowance and what is left of the payer's day.
CREATE FUNCTION wallet_spendable(w wallet_state, p_now_ms bigint) RETURNS numeric LANGUAGE sql IMMUTABLE
RETURN least(w.balance, w.allowance,
  w.day_limit - CASE WHEN w.spent_day = p_now_ms / 86400000 THEN w.spent ELSE 0 END);

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
    SELECT wallet_spendable(w, p_now_ms)
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
