-- Tickets with which browsers open one stream, on any server. Each new ticket deletes two that have expired.
CREATE TABLE stream_ticket (
  -- SHA-256 of the ticket.
  digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
  -- The Authorization header for which the ticket stands, encrypted with the ticket.
  sealed bytea NOT NULL,
  expires_at_ms bigint NOT NULL
);
CREATE INDEX stream_ticket_by_expiry ON stream_ticket (expires_at_ms);
