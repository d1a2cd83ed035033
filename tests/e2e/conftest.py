"""A server that is gone when the test is."""

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
    """A server that a module's tests share; none of them may stop it."""
    with open_data_directory() as directory:
        made = Server(directory)
        try:
            trio.run(made.start)
            yield made
        finally:
            made.end()
