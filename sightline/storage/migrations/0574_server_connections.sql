-- Whether a server reaches the other servers, as it reported last.
ALTER TABLE server_lease ADD COLUMN is_connected boolean NOT NULL DEFAULT true;
