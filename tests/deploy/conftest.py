"""A server that the tests of a module share."""

from tests.e2e.conftest import running_server

__all__ = ["running_server"]
