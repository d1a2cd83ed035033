-- Limits on what an API key may spend, and which key took a hold. NULL: no limit, or no limited key.
ALTER TABLE api_key ADD COLUMN session_limit numeric(78), ADD COLUMN day_limit numeric(78);
ALTER TABLE hold ADD COLUMN key_id uuid, ADD COLUMN key_day integer;
CREATE INDEX hold_by_key ON hold (key_id, key_day) WHERE key_id IS NOT NULL;

-- Count a session's hold against the limits of the key that created it, in the transaction that took the hold.
-- Holds of one key take turns. Counted for a UTC day: open holds, and charges instead of holds once the session has ended. A hold
-- that was released without a charge counts nothing. Undoes the transaction with KEY_LIMIT and what is left when a limit is passed.
CREATE FUNCTION ledger_count_for_key(
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
      AND (state <> 'RELEASED' OR released_block IS NOT NULL);
  IF asked > p_session_limit OR spent + asked > p_day_limit THEN
    PERFORM reject('KEY_LIMIT ' || greatest(0, least(p_session_limit, p_day_limit - spent)));
  END IF;
END $$;
