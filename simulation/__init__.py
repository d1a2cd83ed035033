"""Simulation test kit: worlds, faults, checkers and scenarios."""
