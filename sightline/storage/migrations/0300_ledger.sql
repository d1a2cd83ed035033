-- The money: the relayer's outbox, holds, and what the watcher saw of wallets. Addresses and hashes are lower-case text.

-- What is to be settled, one row per ended session, and where it stands on the chain.
CREATE TABLE settlement (
  session_id uuid PRIMARY KEY,
  session_id_hash text NOT NULL UNIQUE,
  payload json NOT NULL,
  state text NOT NULL CHECK (
    state IN ('COMPOSED', 'SIGNED', 'SENT', 'MINED', 'CONFIRMED', 'REVERTED', 'STUCK', 'FAILED')),
  reason text,
  tx_hash text,
  block_number bigint,
  block_hash text,
  confirmed_at_ms bigint,
  retry_at_ms bigint NOT NULL DEFAULT 0,
  tries integer NOT NULL DEFAULT 0,
  notified boolean NOT NULL DEFAULT false,
  composed_at_ms bigint NOT NULL,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX settlement_unsettled ON settlement (composed_at_ms, session_id) WHERE state <> 'CONFIRMED';
CREATE INDEX settlement_untold ON settlement (composed_at_ms) WHERE state = 'CONFIRMED' AND NOT notified;
CREATE INDEX settlement_by_block ON settlement (block_number) WHERE block_number IS NOT NULL;

CREATE FUNCTION settlement_payload_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the payload of a settlement never changes';
END $$;
CREATE TRIGGER settlement_payload_is_immutable BEFORE UPDATE OF session_id, session_id_hash, payload ON settlement
  FOR EACH ROW EXECUTE FUNCTION settlement_payload_is_immutable();

-- Every transaction ever signed for a settlement, stored before anybody else sees it.
CREATE TABLE settlement_attempt (
  tx_hash text PRIMARY KEY,
  session_id uuid NOT NULL REFERENCES settlement,
  relayer text NOT NULL,
  nonce bigint NOT NULL,
  raw bytea NOT NULL,
  max_fee_wei numeric(78) NOT NULL,
  tip_wei numeric(78) NOT NULL,
  signed_at_ms bigint NOT NULL,
  sent_at_ms bigint,
  position bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX settlement_attempt_by_nonce ON settlement_attempt (relayer, nonce);
CREATE INDEX settlement_attempt_by_session ON settlement_attempt (session_id, position);

-- One row per key that signs: its next nonce, and who may sign now.
CREATE TABLE relayer_key (
  relayer text PRIMARY KEY,
  next_nonce bigint NOT NULL DEFAULT 0,
  holder text,
  lease_until_ms bigint NOT NULL DEFAULT 0
);

CREATE TABLE hold (
  session_id uuid PRIMARY KEY,
  session_id_hash text NOT NULL UNIQUE,
  payer text NOT NULL,
  amount numeric(78) NOT NULL CHECK (amount >= 0),
  state text NOT NULL CHECK (state IN ('OPEN', 'CHARGE', 'RELEASED')),
  released_block bigint,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX hold_by_payer ON hold (payer) WHERE state <> 'RELEASED';
CREATE INDEX hold_by_released_block ON hold (released_block) WHERE released_block IS NOT NULL;

CREATE TABLE tracked_wallet (
  workspace_id uuid PRIMARY KEY,
  address text NOT NULL,
  tracked_at_ms bigint NOT NULL
);
CREATE INDEX tracked_wallet_by_address ON tracked_wallet (address);

CREATE TABLE wallet_state (
  address text PRIMARY KEY,
  balance numeric(78) NOT NULL,
  allowance numeric(78) NOT NULL,
  block_number bigint NOT NULL,
  needs_reading boolean NOT NULL,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);

-- Logs that touched a tracked address. A row of a void block stays, as removed.
CREATE TABLE wallet_event (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  address text NOT NULL,
  kind text NOT NULL CHECK (
    kind IN ('DEPOSIT', 'WITHDRAWAL', 'APPROVAL', 'SETTLEMENT', 'TRANSFER_IN', 'TRANSFER_OUT')),
  tx_hash text NOT NULL,
  log_index integer NOT NULL,
  block_number bigint NOT NULL,
  block_hash text NOT NULL,
  from_address text NOT NULL,
  to_address text NOT NULL,
  amount numeric(78) NOT NULL,
  session_id_hash text,
  confirmed_at_ms bigint,
  removed boolean NOT NULL DEFAULT false,
  created_at_ms bigint NOT NULL,
  UNIQUE (tx_hash, log_index, address)
);
CREATE INDEX wallet_event_by_address ON wallet_event (address, sequence DESC);
CREATE INDEX wallet_event_by_block ON wallet_event (block_number);
CREATE INDEX wallet_event_unconfirmed ON wallet_event (block_number) WHERE confirmed_at_ms IS NULL AND NOT removed;

-- One row each: how far the watcher is, and which chain all this is about.
CREATE TABLE chain_cursor (
  id smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
  number bigint NOT NULL,
  block_hash text NOT NULL,
  parent_hash text NOT NULL,
  checked_at_ms bigint NOT NULL
);
CREATE TABLE chain_identity (
  id smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),
  chain_id bigint NOT NULL,
  genesis_hash text NOT NULL,
  usdc_address text NOT NULL,
  settlement_address text NOT NULL
);
-- The last blocks applied, to find the common ancestor after a reorganisation.
CREATE TABLE chain_header (
  number bigint PRIMARY KEY,
  block_hash text NOT NULL,
  parent_hash text NOT NULL
);

-- Reserve for a session; false, with nothing reserved, when it is enforced and not covered.
-- Takes turns per payer. What is spendable is computed by one statement: one snapshot in which a settlement either
-- lowered the balance or is still held, never neither.
CREATE FUNCTION ledger_take_hold(
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
    SELECT least(w.balance, w.allowance)
        - coalesce((SELECT sum(h.amount) FROM hold h WHERE h.payer = p_payer AND h.state <> 'RELEASED'), 0)
      INTO spendable
      FROM wallet_state w, chain_cursor c
      WHERE w.address = p_payer AND NOT w.needs_reading AND c.checked_at_ms >= p_now_ms - p_stale_ms;
    IF NOT FOUND OR spendable < p_amount THEN
      RETURN false;
    END IF;
  END IF;
  INSERT INTO hold (session_id, session_id_hash, payer, amount, state, updated_at_ms)
  VALUES (p_session, p_hash, p_payer, p_amount, 'OPEN', p_now_ms);
  RETURN true;
END $$;
