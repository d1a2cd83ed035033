-- compatible_from: 0590
-- The lease of the watcher under which it was last in step with the chain. A server that starts holds new sessions until it
-- is the present one: a restored database may lack payments that nobody has read yet. 0: a watcher of an earlier version.
ALTER TABLE chain_cursor ADD COLUMN read_in_epoch bigint NOT NULL DEFAULT 0;
