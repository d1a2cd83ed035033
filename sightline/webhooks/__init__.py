"""Webhooks of customers: endpoints, signatures, and delivery (ADR 0125)."""
