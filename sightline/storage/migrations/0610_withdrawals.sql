-- compatible_from: 0590
-- The time of the newest change of each right that was taken away. What the file of withdrawals has newer is applied at
-- the start: the database was restored from before.
CREATE TABLE withdrawal (
  kind text NOT NULL,
  workspace_id text NOT NULL,
  subject text NOT NULL,
  at_ms bigint NOT NULL,
  PRIMARY KEY (kind, workspace_id, subject)
);
CREATE INDEX withdrawal_sign_in ON withdrawal (at_ms) WHERE kind = 'sign_in';
