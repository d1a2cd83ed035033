-- How far the clock of a server is ahead of the database's, as it reported last.
ALTER TABLE server_lease ADD COLUMN clock_offset_ms bigint NOT NULL DEFAULT 0;
