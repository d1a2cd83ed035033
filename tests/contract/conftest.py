"""Fixtures for both stores, each with its relations and its ledger."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from sightline.ports.ledger import Ledger
from sightline.ports.relations import Relations
from sightline.ports.store import Heartbeat, ShardLease, Store
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.identity import PostgresRelations
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.store import PostgresStore
from sightline.system.clock import SystemClock
from simulation.memory.identity import MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.shards import take_every_shard

from .builders import record

TOKEN_KEY = b"k" * 32


@dataclass
class Stored:
    """A store under test, with fencing epoch 1."""

    store: Store
    relations: Relations
    ledger: Ledger
    database: Database | None = None
    epochs: dict[int, int] = field(default_factory=dict)

    def lease(self, shard: int = 7) -> ShardLease:
        return ShardLease(shard, self.epochs[shard])

    async def record(self, *heartbeats: Heartbeat) -> None:
        """Record heartbeats under a lease that is held."""
        await record(self.store, *heartbeats, lease=self.lease())


@pytest.fixture(params=["memory", "postgres"])
def store_address(request: pytest.FixtureRequest) -> str | None:
    """Address of the store under test; None for memory."""
    return None if request.param == "memory" else request.getfixturevalue("database_dsn")


@pytest.fixture
async def stored(store_address: str | None) -> AsyncIterator[Stored]:
    if store_address is None:
        relations, ledger = MemoryRelations(token_key=TOKEN_KEY), MemoryLedger()
        memory = MemoryStore(relations=relations, ledger=ledger)
        yield Stored(memory, relations, ledger, epochs=dict(await take_every_shard(memory, "test", "one")))
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        graph = await PostgresRelations.open(database, token_key=TOKEN_KEY)
        postgres = PostgresStore(database)
        epochs = dict(await take_every_shard(postgres, "test", "one"))
        yield Stored(postgres, graph, PostgresLedger(database), database, epochs)


@pytest.fixture
async def ledger(store_address: str | None) -> AsyncIterator[Ledger]:
    """The ledger under test, without a store."""
    if store_address is None:
        yield MemoryLedger(SystemClock().now_ms)
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield PostgresLedger(database)
