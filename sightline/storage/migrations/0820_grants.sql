-- compatible_from: 0800
-- Access that a member grants to a client by OAuth (ADR 0241). A grant is an API key with an end that no plaintext opens: its access
-- tokens do. Earlier servers do not know the tokens and refuse them.
ALTER TABLE api_key ADD COLUMN expires_at_ms bigint;
CREATE INDEX api_key_by_expiry ON api_key (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- Used codes stay until they are deleted with the expired ones, so that a second use is recognised.
CREATE TABLE oauth_code (
  digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
  key_id uuid NOT NULL,
  workspace_id uuid NOT NULL,
  client bytea NOT NULL CHECK (octet_length(client) = 32),
  redirect_uri text NOT NULL,
  challenge text NOT NULL,
  resource text NOT NULL,
  grant_ends_at_ms bigint NOT NULL,
  ends_at_ms bigint NOT NULL,
  used_at_ms bigint
);
CREATE INDEX oauth_code_by_end ON oauth_code (ends_at_ms);

CREATE TABLE oauth_token (
  digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
  key_id uuid NOT NULL,
  client bytea NOT NULL CHECK (octet_length(client) = 32),
  kind text NOT NULL CHECK (kind IN ('ACCESS', 'REFRESH')),
  ends_at_ms bigint NOT NULL,
  used_at_ms bigint
);
CREATE INDEX oauth_token_by_end ON oauth_token (ends_at_ms);
