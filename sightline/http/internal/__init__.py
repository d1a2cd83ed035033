"""The calls of the internal listener: readiness, metrics, webhooks, operations."""
