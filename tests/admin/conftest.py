"""A real server that is stopped at the end of the test."""

from tests.e2e.conftest import server

__all__ = ["server"]
