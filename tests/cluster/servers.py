"""Several servers of one service: one Postgres, one chain, one nats-server, and real processes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from tests.bus.nats_process import NatsProcess
from tests.conftest import open_data_directory
from tests.e2e.server import Server
from tests.e2e.test_fencing import shared_parts

POOL = 6
"""Database connections of each server."""


@dataclass
class Cluster:
    """The servers, each with its own data directory and ports, and the nats-server between them."""

    servers: list[Server]
    nats: NatsProcess

    async def start(self) -> None:
        """Start all servers; they share the secrets that the first one makes."""
        first, *others = self.servers
        await first.start()
        secrets = first.directory / "data" / "secrets.json"
        async with trio.open_nursery() as nursery:
            for server in others:
                shutil.copy(secrets, server.directory / "data" / "secrets.json")
                nursery.start_soon(server.start)


@contextmanager
def a_cluster(count: int, **settings: str) -> Iterator[Cluster]:
    """A cluster of so many servers, none of them started; all its processes end with the block."""
    with open_data_directory() as directory, shared_parts(directory) as env:
        nats = NatsProcess(directory / "nats")
        env |= {"SIGHTLINE_NATS_URL": nats.url, "SIGHTLINE_DATABASE_POOL": str(POOL), **settings}
        servers = [Server(directory / f"server-{number}", env=dict(env)) for number in range(count)]
        for server in servers:
            (server.directory / "data").mkdir(parents=True)
        try:
            yield Cluster(servers, nats)
        finally:
            for server in servers:
                server.end()
                print(server.log()[-5_000:])  # noqa: T201  shown by pytest after a failure
            nats.kill()
