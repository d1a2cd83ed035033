-- Challenges waiting to be signed. `message` is the exact text; a row is used at most once.
CREATE TABLE auth_nonce (
  value text PRIMARY KEY,
  address text NOT NULL,
  purpose text NOT NULL CHECK (purpose IN ('LOGIN', 'CREATE_WORKSPACE')),
  message text NOT NULL,
  chain_id bigint NOT NULL,
  expires_at_ms bigint NOT NULL,
  used_at_ms bigint
);
CREATE INDEX auth_nonce_by_expiry ON auth_nonce (expires_at_ms);

-- API keys. Of the key itself only a peppered digest is kept.
CREATE TABLE api_key (
  key_id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  label text NOT NULL,
  prefix text NOT NULL,
  environment text NOT NULL CHECK (environment IN ('TEST', 'LIVE')),
  scopes text[] NOT NULL CHECK (cardinality(scopes) > 0),
  created_at_ms bigint NOT NULL,
  created_by_wallet text NOT NULL,
  last_used_at_ms bigint,
  revoked_at_ms bigint,
  grace_ends_at_ms bigint,
  CHECK ((revoked_at_ms IS NULL) = (grace_ends_at_ms IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX api_key_by_workspace ON api_key (workspace_id, created_at_ms DESC, key_id DESC);
