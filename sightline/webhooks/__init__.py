"""Webhooks of customers: endpoints, signatures, and delivery (ADR 0125). Web Push to operators (ADR 0249)."""
