-- More time for a LIVE session (ADR 0229). Servers that do not know extensions cannot read the rows of extended sessions: they must
-- be stopped first.

-- Add to a hold under the rules of a new one of the whole amount, or reject. Nothing is checked of an amount that the
-- escrow contract has taken.
CREATE FUNCTION ledger_grow_hold(
  p_session uuid, p_payer text, p_extra numeric, p_taken boolean, p_enforced boolean, p_unfunded_max integer,
  p_stale_ms bigint, p_now_ms bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  total numeric;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_payer, 5300043));
  UPDATE hold SET amount = amount + p_extra, updated_at_ms = p_now_ms WHERE session_id = p_session
    RETURNING amount INTO total;
  IF p_taken THEN
    RETURN;
  END IF;
  PERFORM admit_payer(p_session, p_payer, total, p_unfunded_max, p_now_ms);
  IF p_enforced AND NOT EXISTS (
    SELECT FROM wallet_state w, chain_cursor c
    WHERE w.address = p_payer AND NOT w.needs_reading AND c.checked_at_ms >= p_now_ms - p_stale_ms
      AND (w.session_limit IS NULL OR w.session_limit >= total)
      AND wallet_spendable(w, p_now_ms) >= (
        SELECT sum(h.amount) FROM hold h WHERE h.payer = p_payer AND h.state <> 'RELEASED')
  ) THEN
    PERFORM reject('FUNDS');
  END IF;
END $$;

-- As before, and the holds that the escrow contract has count too.
CREATE OR REPLACE FUNCTION ledger_count_for_key(
  p_session uuid, p_key uuid, p_session_limit numeric, p_day_limit numeric, p_now_ms bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  asked numeric;
  spent numeric;
  today integer := p_now_ms / 86400000;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_key::text, 5300045));
  UPDATE hold SET key_id = p_key, key_day = today WHERE session_id = p_session RETURNING amount INTO asked;
  SELECT coalesce(sum(amount), 0) INTO spent FROM hold
    WHERE key_id = p_key AND key_day = today AND session_id <> p_session
      AND (state <> 'RELEASED' OR released_block IS NOT NULL OR escrowed_block IS NOT NULL);
  IF asked > p_session_limit OR spent + asked > p_day_limit THEN
    PERFORM reject('KEY_LIMIT ' || greatest(0, least(p_session_limit, p_day_limit - spent)));
  END IF;
END $$;

-- What the escrow contract adds to holds, in the form of the settlement outbox. `session_id` is the id of the extension: by it the
-- relayer knows the row. `of_session` is the session.
CREATE TABLE hold_extension (
  session_id uuid PRIMARY KEY,
  of_session uuid NOT NULL REFERENCES hold_opening,
  session_id_hash text NOT NULL,
  amount numeric(78) NOT NULL CHECK (amount > 0),
  consent json NOT NULL,
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
CREATE INDEX hold_extension_of_session ON hold_extension (of_session);
CREATE INDEX hold_extension_due ON hold_extension (lane, retry_at_ms, composed_at_ms, session_id)
  WHERE state IN ('COMPOSED', 'REVERTED', 'FAILED');
CREATE INDEX hold_extension_in_flight ON hold_extension (composed_at_ms, session_id)
  WHERE state IN ('SIGNED', 'SENT', 'STUCK', 'MINED');
CREATE INDEX hold_extension_by_block ON hold_extension (block_number) WHERE block_number IS NOT NULL;

CREATE TABLE extension_attempt (
  tx_hash text NOT NULL,
  session_id uuid NOT NULL REFERENCES hold_extension,
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
CREATE INDEX extension_attempt_by_nonce ON extension_attempt (relayer, nonce);
CREATE INDEX extension_attempt_by_age ON extension_attempt (signed_at_ms);
CREATE INDEX extension_attempt_by_session ON extension_attempt (session_id, position);

-- What the contract has added to the hold of a session, in blocks.
CREATE FUNCTION extended_amount(p_session uuid) RETURNS numeric LANGUAGE sql STABLE
RETURN (SELECT coalesce(sum(amount), 0) FROM hold_extension
  WHERE of_session = p_session AND state IN ('MINED', 'CONFIRMED'));

-- An extended session is told to its parties' endpoints.
DROP TRIGGER webhook_session_event ON session_event;
CREATE TRIGGER webhook_session_event AFTER INSERT ON session_event FOR EACH ROW
  WHEN (NEW.kind IN (
    'CREATED', 'ASSIGNED', 'REOPENED', 'STARTED', 'PAUSED', 'RESUMED', 'EXTENDED', 'ENDED', 'CANCELLED', 'EXPIRED'))
  EXECUTE FUNCTION webhook_session_event();
