-- compatible_from: 0800
-- Share links (ADR 0243) are keys of one session with ids of their own. An earlier server in the same service lets such a key read
-- more of its session, and takes it for up to 30 seconds after it was revoked.
CREATE INDEX api_key_by_session ON api_key (session_id, created_at_ms DESC) WHERE session_id IS NOT NULL;
