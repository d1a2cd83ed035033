-- compatible_from: 0590
-- The journal of the books: double entry, append-only. One entry for each final event of the chain that moves money.

CREATE FUNCTION journal_balances(currencies text[], amounts numeric[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT NOT EXISTS (
    SELECT FROM unnest(currencies, amounts) AS l(currency, amount)
    GROUP BY l.currency HAVING sum(l.amount) <> 0 OR bool_or(l.amount IS NULL OR l.currency IS NULL))
$$;

CREATE TABLE journal_entry (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL,
  -- A write-off has no transaction: 'write-off:' and the session's id.
  tx_hash text NOT NULL,
  -- -1: gas of the transaction.
  log_index integer NOT NULL,
  -- How many entries of this event were reversed before, because their blocks left the chain.
  turn integer NOT NULL DEFAULT 0,
  -- The entry that this one takes back.
  reverses bigint UNIQUE REFERENCES journal_entry,
  block_number bigint NOT NULL,
  block_hash text NOT NULL,
  block_at_ms bigint NOT NULL,
  session_id uuid,
  session_id_hash text,
  -- The lines. A debit is positive.
  accounts text[] NOT NULL,
  currencies text[] NOT NULL,
  amounts numeric[] NOT NULL,
  recorded_at_ms bigint NOT NULL,
  CONSTRAINT journal_entry_has_whole_lines CHECK (
    cardinality(accounts) = cardinality(amounts) AND cardinality(currencies) = cardinality(amounts)
    AND array_position(accounts, NULL) IS NULL),
  CONSTRAINT journal_entry_balances CHECK (journal_balances(currencies, amounts))
);
CREATE UNIQUE INDEX journal_entry_once ON journal_entry (tx_hash, log_index, turn) WHERE reverses IS NULL;
CREATE INDEX journal_entry_by_block ON journal_entry (block_number);
CREATE INDEX journal_entry_by_session ON journal_entry (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX journal_entry_by_time ON journal_entry (block_at_ms);

CREATE FUNCTION refuse_journal_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the journal is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER journal_entry_is_kept BEFORE UPDATE OR DELETE ON journal_entry
  FOR EACH ROW EXECUTE FUNCTION refuse_journal_change();
CREATE TRIGGER journal_entry_is_not_truncated BEFORE TRUNCATE ON journal_entry
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_journal_change();

CREATE VIEW journal_line AS
SELECT e.id, e.kind, e.session_id, e.block_number, e.block_at_ms, l.account, l.currency, l.amount
FROM journal_entry e CROSS JOIN LATERAL unnest(e.accounts, e.currencies, e.amounts) AS l(account, currency, amount);

-- Events that are read and not final yet. A roll back deletes those of its blocks.
CREATE TABLE journal_pending (
  tx_hash text NOT NULL,
  log_index integer NOT NULL,
  kind text NOT NULL,
  block_number bigint NOT NULL,
  block_hash text NOT NULL,
  block_at_ms bigint NOT NULL,
  session_id uuid,
  session_id_hash text,
  accounts text[] NOT NULL,
  currencies text[] NOT NULL,
  amounts numeric[] NOT NULL,
  PRIMARY KEY (tx_hash, log_index)
);
CREATE INDEX journal_pending_by_block ON journal_pending (block_number);

-- The last block of which every event is in the journal or pending. It is behind the watcher's cursor after an upgrade,
-- and while a server of an earlier version has run the watcher; the blocks between are then read once more.
CREATE TABLE journal_cursor (
  id boolean PRIMARY KEY DEFAULT true CHECK (id),
  read_through bigint NOT NULL
);

-- The last comparison of the books with the chain.
CREATE TABLE books_check (
  id boolean PRIMARY KEY DEFAULT true CHECK (id),
  at_ms bigint NOT NULL,
  through_block bigint NOT NULL,
  entries bigint NOT NULL,
  differences bigint NOT NULL
);

-- What was given up before.
INSERT INTO journal_entry (kind, tx_hash, log_index, block_number, block_hash, block_at_ms, session_id, session_id_hash,
  accounts, currencies, amounts, recorded_at_ms)
SELECT 'WRITE_OFF', 'write-off:' || s.session_id, 0, coalesce(c.number, 0), coalesce(c.block_hash, ''), s.updated_at_ms,
  s.session_id, s.session_id_hash, ARRAY['write-offs', 'receivable:' || s.payer], ARRAY['micro-USDC', 'micro-USDC'],
  ARRAY[s.amount, -s.amount], s.updated_at_ms
FROM settlement s LEFT JOIN chain_cursor c ON true WHERE s.state = 'WRITTEN_OFF' AND s.amount > 0;

CREATE INDEX refund_by_transaction ON refund (tx_hash);
