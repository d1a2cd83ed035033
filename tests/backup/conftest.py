"""A server that is stopped at the end of the test, and the `sightline` command."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.server import Server


@pytest.fixture
def server(data_directory: Path) -> Iterator[Server]:
    made = Server(data_directory)
    yield made
    made.end()


async def sightline(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sightline.cli", *map(str, arguments)]
    return await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
