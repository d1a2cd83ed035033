-- compatible_from: 0590
-- What the dispatcher knows of the owners of operators: no-shows and the last session that was filmed (ADR 0180).
CREATE TABLE operator_conduct (
  wallet text PRIMARY KEY,
  no_shows_ms bigint[] NOT NULL,
  proved_at_ms bigint,
  updated_at_ms bigint NOT NULL
);
CREATE INDEX operator_conduct_by_age ON operator_conduct (updated_at_ms) WHERE proved_at_ms IS NULL;
