"""The workspace actor: heartbeats, claims, and the batched heartbeat writer."""
