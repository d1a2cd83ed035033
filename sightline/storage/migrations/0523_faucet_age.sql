-- Retention compares ages in milliseconds.
DROP INDEX faucet_day_by_age;
CREATE INDEX faucet_day_by_age ON faucet_day ((day * 86400000::bigint));
