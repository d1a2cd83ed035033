"""Builds adapters from the settings."""
