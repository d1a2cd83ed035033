"""Facade over the actors for callers: commands, reads, pricing, subscriptions, idempotency."""
