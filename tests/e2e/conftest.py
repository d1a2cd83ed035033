"""Fixtures: a real server that is stopped at the end of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import Server


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()
