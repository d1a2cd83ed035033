-- The place of a settlement's Settled event in its block, for receipts. NULL for settlements of earlier versions.
ALTER TABLE settlement ADD COLUMN log_index integer;
