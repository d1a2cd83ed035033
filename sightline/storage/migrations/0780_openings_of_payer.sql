-- compatible_from: 0590
-- A payer's holds of the last day, by which its budget of sponsored gas is counted (ADR 0224).
CREATE INDEX hold_opening_by_payer ON hold_opening (payer, composed_at_ms);
