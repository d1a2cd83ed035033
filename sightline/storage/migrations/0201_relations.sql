-- The authorization graph: `resource#relation@subject`. Written in the transaction of the row it is about.
CREATE TABLE relation_tuple (
  resource_type text NOT NULL,
  resource_id text NOT NULL,
  relation text NOT NULL,
  subject_type text NOT NULL,
  subject_id text NOT NULL,
  PRIMARY KEY (resource_type, resource_id, relation, subject_type, subject_id)
);
CREATE INDEX relation_tuple_by_subject ON relation_tuple (subject_type, subject_id, resource_type);

-- One number per write of the graph; consistency tokens carry it.
CREATE SEQUENCE relation_revision;

-- The name of this graph: tokens of another one are foreign.
CREATE TABLE relation_store (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  store_id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO relation_store DEFAULT VALUES;
