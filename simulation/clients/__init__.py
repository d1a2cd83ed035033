"""Simulated clients: the callers, consumers and operator devices of a world."""
