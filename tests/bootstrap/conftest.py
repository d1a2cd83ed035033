"""A real server for each test, or one that a module shares."""

from tests.e2e.conftest import running_server, server

__all__ = ["running_server", "server"]
