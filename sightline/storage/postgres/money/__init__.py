"""The money records on Postgres: outboxes of the relayer, holds, wallets and their events."""
