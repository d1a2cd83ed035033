"""Composition: the one place that chooses adapters, and the order in which a server comes up and goes down."""
