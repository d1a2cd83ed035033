"""Adapters of one simulated server process that inject faults."""
