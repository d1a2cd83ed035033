"""Several servers of one service: one Postgres, one chain, one nats-server, and real processes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import httpx
import trio

from sightline.actors.shards import EVERY_SHARD
from sightline.domain.placement import IMBALANCE
from sightline.system.server_address_file import read_server_addresses
from tests.cluster.bus.nats_process import NatsProcess
from tests.conftest import open_data_directory
from tests.e2e.server import Server
from tests.e2e.test_fencing import shared_parts

BALANCED_S = 120.0
"""Shards are handed to new servers after 10 s, 8 in a second."""
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

    async def until_balanced(self) -> None:
        """Wait until each server has its share of the shards: from then on none is moved."""
        with trio.fail_after(BALANCED_S):
            while not self._is_balanced((await internal(self.servers[0], "/internal/nodes")).json()["data"]):  # noqa: ASYNC110
                await trio.sleep(0.2)  # nothing tells this process when a server has taken shards

    def _is_balanced(self, found: dict[str, Any]) -> bool:
        owned = [item["shards"] + len(item["roles"]) for item in found["items"]]
        is_whole = len(owned) == len(self.servers) and sum(owned) == len(EVERY_SHARD)
        return is_whole and max(owned) <= IMBALANCE * ceil(len(EVERY_SHARD) / len(owned))


async def internal(server: Server, path: str) -> httpx.Response:
    """What the internal listener of a server answers."""
    addresses = read_server_addresses(server.directory / "data")
    assert addresses is not None
    async with httpx.AsyncClient(base_url=addresses.internal_url, headers=server.internal_headers()) as http:
        return await http.get(path)


@contextmanager
def a_cluster(count: int, *, is_escrow: bool = False, **settings: str) -> Iterator[Cluster]:
    """A cluster of so many servers, none of them started; all its processes end with the block."""
    with open_data_directory() as directory, shared_parts(directory, is_escrow=is_escrow) as env:
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
