"""Fixtures: a real server per test, or one per module."""

from tests.e2e.conftest import running_server, server

__all__ = ["running_server", "server"]
