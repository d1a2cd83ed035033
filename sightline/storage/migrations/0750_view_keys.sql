-- compatible_from: 0590
-- Keys of views that were paid by x402 (ADR 0211). Earlier servers would take one for a key of its workspace; they have no escrow, so
-- they are never in one service with a server that makes such keys.
ALTER TABLE api_key ADD COLUMN session_id uuid;
