-- compatible_from: 0590
-- The newest final block, up to which the journal is written (ADR 0228). -1: none that this version has seen. A server of an
-- earlier version writes the journal up to the depth and leaves the number.
ALTER TABLE chain_cursor ADD COLUMN final_number bigint NOT NULL DEFAULT -1;
