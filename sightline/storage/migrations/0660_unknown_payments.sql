-- compatible_from: 0590
-- Settled events of our relayers for which there was no settlement when the watcher read them: the database is older than
-- the chain. A row is deleted when its block is rolled back, or when a person adopts the payment into the journal.
CREATE TABLE unknown_payment (
  session_id_hash text PRIMARY KEY,
  payer text NOT NULL,
  payee text NOT NULL,
  to_amount numeric(78) NOT NULL,
  fee_amount numeric(78) NOT NULL,
  rate numeric(78) NOT NULL,
  seconds numeric(78) NOT NULL,
  fee_bps numeric(78) NOT NULL,
  tx_hash text NOT NULL,
  log_index integer NOT NULL,
  block_number bigint NOT NULL,
  block_hash text NOT NULL,
  -- Whether the block is as deep as CHAIN_CONFIRMATIONS asks for.
  is_final boolean NOT NULL DEFAULT false
);
CREATE INDEX unknown_payment_not_final ON unknown_payment (block_number) WHERE NOT is_final;

-- Payments that a person has adopted: part of the books beside the settlements. Rows are only added.
CREATE TABLE adopted_payment (
  session_id_hash text PRIMARY KEY,
  payer text NOT NULL,
  payee text NOT NULL,
  to_amount numeric(78) NOT NULL,
  fee_amount numeric(78) NOT NULL,
  rate numeric(78) NOT NULL,
  seconds numeric(78) NOT NULL,
  fee_bps numeric(78) NOT NULL,
  tx_hash text NOT NULL,
  log_index integer NOT NULL,
  block_number bigint NOT NULL,
  block_hash text NOT NULL,
  adopted_at_ms bigint NOT NULL,
  adopted_by text NOT NULL,
  reason text NOT NULL
);
CREATE FUNCTION refuse_adopted_payment_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the journal of adopted payments is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER adopted_payment_is_kept BEFORE UPDATE OR DELETE ON adopted_payment
  FOR EACH ROW EXECUTE FUNCTION refuse_adopted_payment_change();
CREATE TRIGGER adopted_payment_is_not_truncated BEFORE TRUNCATE ON adopted_payment
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_adopted_payment_change();
