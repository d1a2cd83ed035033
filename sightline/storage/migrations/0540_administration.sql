-- The audit log: who did what, why, when, and with which outcome. Rows are only added. Retention may delete rows that
-- are older than 30 days; nothing may change a row.
CREATE TABLE audit_entry (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at_ms bigint NOT NULL,
  act_id uuid NOT NULL,
  actor text NOT NULL,
  action text NOT NULL,
  target text NOT NULL,
  reason text NOT NULL,
  outcome text NOT NULL
);
CREATE INDEX audit_entry_by_time ON audit_entry (at_ms);
CREATE INDEX audit_entry_by_target ON audit_entry (target, id);

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.at_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 30 * 86400000::bigint THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_entry_is_kept BEFORE UPDATE OR DELETE ON audit_entry
  FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE FUNCTION refuse_audit_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_entry_is_not_truncated BEFORE TRUNCATE ON audit_entry
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_truncate();

-- Suspended workspaces: their calls are refused.
CREATE TABLE workspace_suspension (
  workspace_id uuid PRIMARY KEY,
  at_ms bigint NOT NULL,
  actor text NOT NULL,
  reason text NOT NULL
);

-- Notes of administrators on a session, for example about a dispute.
CREATE TABLE session_note (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session_id uuid NOT NULL,
  at_ms bigint NOT NULL,
  actor text NOT NULL,
  text text NOT NULL
);
CREATE INDEX session_note_by_session ON session_note (session_id, id);
CREATE INDEX session_note_by_time ON session_note (at_ms);

-- Refunds: transfers on the chain to the payer of a session. The signed transaction is stored before it is sent.
CREATE TABLE refund (
  session_id uuid NOT NULL,
  refund_key text NOT NULL,
  at_ms bigint NOT NULL,
  actor text NOT NULL,
  reason text NOT NULL,
  to_address text NOT NULL,
  amount_micro bigint NOT NULL CHECK (amount_micro > 0),
  nonce bigint NOT NULL UNIQUE,
  tx_hash text NOT NULL,
  raw bytea NOT NULL,
  state text NOT NULL CHECK (state IN ('SENT', 'CONFIRMED', 'FAILED')),
  PRIMARY KEY (session_id, refund_key)
);
CREATE INDEX session_by_creation ON session (created_at_ms DESC, id DESC);
