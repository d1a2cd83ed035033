-- Sign-ins of wallets. The session cookie names its row; an ended row makes the cookie invalid.
CREATE TABLE wallet_session (
  session_id uuid PRIMARY KEY,
  wallet_address text NOT NULL,
  signed_in_at_ms bigint NOT NULL,
  last_used_at_ms bigint NOT NULL,
  client_ip text NOT NULL,
  user_agent text NOT NULL CHECK (char_length(user_agent) <= 200),
  ended_at_ms bigint
) WITH (fillfactor = 80);
CREATE INDEX wallet_session_by_wallet ON wallet_session (lower(wallet_address), signed_in_at_ms DESC);
CREATE INDEX wallet_session_by_sign_in ON wallet_session (signed_in_at_ms);
