-- One row that the readiness check writes: a database that only answers reads, or whose disk is full, refuses it.
CREATE TABLE readiness_probe (
  id boolean PRIMARY KEY DEFAULT true CHECK (id),
  written_at timestamptz NOT NULL
);
