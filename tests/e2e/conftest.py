"""Fixtures: a real server that is stopped at the end of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.conftest import open_data_directory
from tests.e2e.server import Server


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    """A server shared by the tests of a module; no test may stop it."""
    with open_data_directory() as directory:
        made = Server(directory)
        try:
            trio.run(made.start)
            yield made
        finally:
            made.end()
