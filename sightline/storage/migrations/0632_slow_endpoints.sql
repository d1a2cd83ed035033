-- compatible_from: 0590
-- Whether the last answer of an endpoint took longer than 2 s: it shares places with the failing ones.
ALTER TABLE webhook_endpoint ADD COLUMN is_slow boolean NOT NULL DEFAULT false;
