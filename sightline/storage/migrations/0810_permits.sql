-- compatible_from: 0800
-- Permits (EIP-2612) that the relayer sends for payers without native coin (ADR 0240), in the form of the settlement outbox.
-- `session_id` is the id of the permit, by which the relayer knows the row; `session_id_hash` is the owner as an event has it.
CREATE TABLE allowance_permit (
  session_id uuid PRIMARY KEY,
  session_id_hash text NOT NULL,
  owner text NOT NULL,
  spender text NOT NULL,
  amount numeric(78) NOT NULL CHECK (amount >= 0),
  nonce numeric(78) NOT NULL,
  deadline_s bigint NOT NULL,
  signature text NOT NULL,
  state text NOT NULL CHECK (state IN (
    'COMPOSED', 'SIGNED', 'SENT', 'MINED', 'CONFIRMED', 'REVERTED', 'STUCK', 'FAILED', 'MISMATCHED', 'WRITTEN_OFF')),
  lane text NOT NULL DEFAULT 'PAYABLE' CHECK (lane IN ('PAYABLE', 'RETRY')),
  reason text,
  tx_hash text,
  block_number bigint,
  block_hash text,
  log_index integer,
  confirmed_at_ms bigint,
  retry_at_ms bigint NOT NULL DEFAULT 0,
  tries integer NOT NULL DEFAULT 0,
  notified boolean NOT NULL DEFAULT true,
  composed_at_ms bigint NOT NULL,
  updated_at_ms bigint NOT NULL
) WITH (fillfactor = 70);
-- The token takes one permit for each nonce of an owner.
CREATE UNIQUE INDEX allowance_permit_by_nonce ON allowance_permit (owner, nonce) WHERE state <> 'WRITTEN_OFF';
CREATE INDEX allowance_permit_by_owner ON allowance_permit (owner, composed_at_ms);
CREATE INDEX allowance_permit_due ON allowance_permit (lane, retry_at_ms, composed_at_ms, session_id)
  WHERE state IN ('COMPOSED', 'REVERTED', 'FAILED');
CREATE INDEX allowance_permit_in_flight ON allowance_permit (composed_at_ms, session_id)
  WHERE state IN ('SIGNED', 'SENT', 'STUCK', 'MINED');
CREATE INDEX allowance_permit_by_block ON allowance_permit (block_number) WHERE block_number IS NOT NULL;
CREATE INDEX allowance_permit_by_age ON allowance_permit (updated_at_ms);

CREATE TABLE permit_attempt (
  tx_hash text NOT NULL,
  session_id uuid NOT NULL REFERENCES allowance_permit ON DELETE CASCADE,
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
CREATE INDEX permit_attempt_by_nonce ON permit_attempt (relayer, nonce);
CREATE INDEX permit_attempt_by_session ON permit_attempt (session_id, position);
