-- compatible_from: 0580
-- What each server with a lease understands. Servers of versions that do not say it speak wire version 1 and know
-- migration 0580.
ALTER TABLE server_lease
  ADD COLUMN wire_first smallint NOT NULL DEFAULT 1,
  ADD COLUMN wire_last smallint NOT NULL DEFAULT 1,
  ADD COLUMN migrations integer[] NOT NULL DEFAULT '{580}';
