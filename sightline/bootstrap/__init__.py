"""Composition root: chooses the adapters, and starts and stops the parts of a server in order."""
