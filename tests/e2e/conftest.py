"""A server that is gone when the test is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()
