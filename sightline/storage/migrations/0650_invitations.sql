-- compatible_from: 0590
-- Wallets that were invited to a workspace (ADR 0182). Members that existed before stay members. A row that has ended
-- stays until its expiry: it counts for the limits of its inviter, and keeps a wallet that declined from being asked again.
CREATE TABLE invitation (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  wallet_address text NOT NULL,
  role text NOT NULL CHECK (role IN ('OWNER', 'ADMIN', 'VIEWER')),
  invited_by text NOT NULL,
  created_at_ms bigint NOT NULL,
  expires_at_ms bigint NOT NULL,
  ended_at_ms bigint,
  ended_as text CHECK (ended_as IN ('ACCEPTED', 'DECLINED', 'WITHDRAWN')),
  CHECK ((ended_at_ms IS NULL) = (ended_as IS NULL))
);
CREATE INDEX invitation_by_workspace ON invitation (workspace_id, lower(wallet_address));
CREATE INDEX invitation_by_wallet ON invitation (lower(wallet_address), created_at_ms);
CREATE INDEX invitation_by_inviter ON invitation (lower(invited_by), created_at_ms);
CREATE INDEX invitation_by_expiry ON invitation (expires_at_ms);
