-- compatible_from: 0590
-- A server without a bus is alone: while it has a lease no other server enters.
ALTER TABLE server_lease ADD COLUMN is_alone boolean NOT NULL DEFAULT false;
