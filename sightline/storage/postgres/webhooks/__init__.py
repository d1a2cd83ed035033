"""The customers' webhooks on Postgres."""
