-- Which of these leases (shard id and epoch) are held, as ordinal numbers from 1. Their shards stay locked until the transaction
-- ends. Holders share the lock; a server that takes a shard waits for them. The epochs are read by a statement of their own, after
-- the lock, so that it sees what was committed while this transaction waited. `ids` must ascend, as a take-over locks them.
-- hold_shards, which this replaces, stays for servers of the release before that still run.
CREATE FUNCTION held_leases(ids integer[], epochs bigint[]) RETURNS integer[] LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(5300043, id) FROM unnest(ids) AS id;
  RETURN ARRAY(
    SELECT lease.number::integer FROM unnest(ids, epochs) WITH ORDINALITY AS lease(id, epoch, number)
    JOIN shard USING (id, epoch));
END $$;
