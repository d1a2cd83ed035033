-- Usage of a workspace by day: the settlements of its sessions, by when their end was recorded.
CREATE INDEX settlement_by_consumer ON settlement ((payload ->> 'consumer'), composed_at_ms);
CREATE INDEX settlement_by_operator ON settlement ((payload ->> 'operator'), composed_at_ms);

-- What the faucet of the embedded chain has given to a wallet on a UTC day. Addresses are lower-case text.
CREATE TABLE faucet_day (
  address text NOT NULL,
  day integer NOT NULL,
  amount numeric(78) NOT NULL CHECK (amount >= 0),
  PRIMARY KEY (address, day)
);
CREATE INDEX faucet_day_by_age ON faucet_day (day);
