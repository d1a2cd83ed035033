"""Faulty ports: the adapters that one simulated server process uses."""
