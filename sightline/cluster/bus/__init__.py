"""Carries frames between servers: over NATS, or in memory for simulation and unit tests."""
