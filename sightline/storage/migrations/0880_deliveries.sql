-- When pictures reached the consumer of a LIVE session (ADR 0263): the first, the last and the longest gap, beside the proof
-- of its media. Earlier servers cannot read a session that has them from another server: they must be stopped first.

ALTER TABLE media_proof
  ADD COLUMN delivered_first_ms bigint, ADD COLUMN delivered_last_ms bigint, ADD COLUMN delivered_gap_ms bigint;
