"""The simulation test kit: world, faults, checkers, scenarios."""
