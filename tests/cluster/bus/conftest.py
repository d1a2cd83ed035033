"""nats-servers of the tests: one for all tests of the bus, and some for one test each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .nats_process import NatsProcess


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    server = NatsProcess(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@pytest.fixture
def start_nats() -> Iterator[Callable[..., NatsProcess]]:
    """Starts nats-servers that end with the test; takes the arguments of `NatsProcess`."""
    with ExitStack() as stack:

        def start(directory: Path, *settings: str, **more: str) -> NatsProcess:
            server = NatsProcess(directory, *settings, **more)
            stack.callback(server.kill)
            return server

        yield start
