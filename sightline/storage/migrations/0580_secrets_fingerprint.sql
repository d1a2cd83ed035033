-- The fingerprint of the secrets that the servers of this database use: one row. The first server writes it.
CREATE TABLE secrets_fingerprint (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  fingerprint text NOT NULL
);
