"""One nats-server for all tests of the bus."""

from collections.abc import Iterator

import pytest

from .nats_process import NatsProcess


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    server = NatsProcess(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()
