"""Several servers of one service: one Postgres, one chain, one nats-server, and real processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from tests.bus.nats_process import NatsProcess
from tests.e2e.server import Server
from tests.e2e.test_fencing import share_secrets, shared_parts


@dataclass
class Cluster:
    """The servers, each with its own data directory and ports, and the nats-server between them."""

    servers: list[Server]
    nats: NatsProcess

    async def start(self) -> None:
        """Start the first server, whose secrets the others share, then the others at once."""
        first, *others = self.servers
        first.spawn()
        await first.until_secrets()
        async with trio.open_nursery() as nursery:
            for server in others:
                share_secrets(first, server)
                server.spawn()
            for server in self.servers:
                nursery.start_soon(server.await_ready)


@contextmanager
def a_cluster(directory: Path, count: int) -> Iterator[Cluster]:
    """A cluster of so many servers, none of them started; all its processes end with the block."""
    with shared_parts(directory) as env:
        nats = NatsProcess(directory / "nats")
        env |= {"SIGHTLINE_NATS_URL": nats.url, "SIGHTLINE_WORKERS": "1"}
        servers = [Server(directory / f"server-{number}", env=dict(env)) for number in range(count)]
        for server in servers:
            (server.directory / "data").mkdir(parents=True)
        try:
            yield Cluster(servers, nats)
        finally:
            for server in servers:
                server.end()
            nats.kill()
