"""Moves settlements from the outbox onto the chain: sign, broadcast, confirm, retry."""
