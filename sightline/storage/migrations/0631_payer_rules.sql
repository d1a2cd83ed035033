-- compatible_from: 0590
-- What a payer must meet to open a session, besides an enforced hold (ADR 0180). Rejects, or returns true. The lock is
-- that of `ledger_take_hold`, so that creations of one payer at once count each other.
CREATE FUNCTION admit_payer(
  p_session uuid, p_payer text, p_amount numeric, p_unfunded_max integer, p_now_ms bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_payer, 5300043));
  IF EXISTS (SELECT FROM settlement WHERE payer = p_payer AND lane = 'RETRY' AND amount > 0
    AND state IN ('REVERTED', 'FAILED')) THEN
    PERFORM reject('UNPAID');
  END IF;
  IF p_unfunded_max > 0 AND (
    SELECT count(*) FROM hold WHERE payer = p_payer AND state = 'OPEN' AND session_id <> p_session
  ) >= p_unfunded_max AND NOT EXISTS (
    SELECT FROM wallet_state w WHERE w.address = p_payer AND NOT w.needs_reading
      AND (w.session_limit IS NULL OR w.session_limit >= p_amount)
      AND wallet_spendable(w, p_now_ms) >= p_amount + (SELECT coalesce(sum(amount), 0) FROM hold
        WHERE payer = p_payer AND state <> 'RELEASED' AND session_id <> p_session)
  ) THEN
    PERFORM reject('UNFUNDED');
  END IF;
  RETURN true;
END $$;

-- For the demand that prices count: the earlier requests of a payer, and what it paid.
CREATE INDEX hold_of_payer ON hold (payer, updated_at_ms);
CREATE INDEX settlement_paid ON settlement (payer, confirmed_at_ms) WHERE state = 'CONFIRMED' AND amount > 0;
