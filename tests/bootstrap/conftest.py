"""Fixtures: a real server per test, or one per module."""

from collections.abc import Iterator

import pytest

from tests.conftest import run_server
from tests.e2e.conftest import server
from tests.e2e.server import Server

__all__ = ["running_server", "server"]


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    """A server of the module's own: its tests expect that nothing is waiting to be settled."""
    with run_server() as made:
        yield made
