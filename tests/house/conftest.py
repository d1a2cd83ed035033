"""A server for the tests that run what a document prints."""

from tests.e2e.conftest import running_server

__all__ = ["running_server"]
