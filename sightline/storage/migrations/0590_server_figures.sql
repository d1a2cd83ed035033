-- What a server says about itself, for `sightline nodes`; it writes this every 5 s.
ALTER TABLE server_lease ADD COLUMN name text NOT NULL DEFAULT '';
-- URL of its internal listener, as other servers reach it.
ALTER TABLE server_lease ADD COLUMN url text NOT NULL DEFAULT '';
ALTER TABLE server_lease ADD COLUMN version text NOT NULL DEFAULT '';
-- The longest time that its event loop was late, of the last 10 seconds.
ALTER TABLE server_lease ADD COLUMN loop_delay_ms bigint NOT NULL DEFAULT 0;
ALTER TABLE server_lease ADD COLUMN reported_at timestamptz;
