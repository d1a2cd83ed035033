"""Composition: the one place that chooses adapters."""
