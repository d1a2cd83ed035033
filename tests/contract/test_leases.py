"""The contract of leases: one server owns the shards, and no other one takes them while its lease is valid."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from sightline.ports.leases import TTL_MS, HeldBy, Leases, ServerIdentity, ServerRole
from sightline.ports.store import SHARDS, HeartbeatWrite, ShardLease, Store
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.memory.identity import MemoryRelations
from sightline.storage.memory.leases import MemoryLeases
from sightline.storage.memory.ledger import MemoryLedger
from sightline.storage.memory.store import MemoryStore
from sightline.storage.postgres.leases import PostgresLeases
from sightline.storage.postgres.store import PostgresStore

from .builders import a_heartbeat, an_id

HOUR_MS = 3_600_000


@dataclass
class Leased:
    """Leases under test, and the store that they guard."""

    leases: Leases
    store: Store
    pass_ms: Callable[[int], Awaitable[None]]
    """Let the clock of the store advance by this time, or go back if it is negative."""


def a_server(name: str, place: str | None = None) -> ServerIdentity:
    return ServerIdentity(incarnation=name, host=f"host of {name}", place=place or f"place of {name}")


def on_memory() -> Leased:
    clock = [1_000_000_000]
    store = MemoryStore(relations=MemoryRelations(token_key=b"k" * 32), ledger=MemoryLedger())

    async def pass_ms(ms: int) -> None:
        clock[0] += ms

    return Leased(MemoryLeases(store, lambda: clock[0]), store, pass_ms)


def on_postgres(database: Database) -> Leased:
    async def pass_ms(ms: int) -> None:
        """Move the ends of leases instead of the clock."""
        statement = "UPDATE server_lease SET expires_at = expires_at - $1 * interval '1 ms'"
        await database.run(lambda connection: connection.execute(statement, ms))

    return Leased(PostgresLeases(database), PostgresStore(database), pass_ms)


@pytest.fixture
async def leased(store_address: str | None) -> AsyncIterator[Leased]:
    if store_address is None:
        yield on_memory()
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield on_postgres(database)


async def joined(leased: Leased, server: ServerIdentity) -> dict[int, int]:
    epochs = await leased.leases.join(server)
    assert not isinstance(epochs, HeldBy)
    assert set(epochs) == {*range(SHARDS), *ServerRole}
    return dict(epochs)


async def may_write(leased: Leased, epochs: dict[int, int]) -> bool:
    write = HeartbeatWrite(ShardLease(7, epochs[7]), (a_heartbeat(an_id(), 1),))
    return not await leased.store.append_heartbeats([write])


async def test_a_second_server_is_told_who_holds_the_lease_and_changes_nothing(leased: Leased) -> None:
    epochs = await joined(leased, a_server("first"))
    assert await leased.leases.join(a_server("second")) == HeldBy("host of first")
    assert await may_write(leased, epochs)
    assert await leased.leases.renew("first")


async def test_a_lease_that_is_renewed_does_not_end(leased: Leased) -> None:
    await joined(leased, a_server("first"))
    for _ in range(3):
        await leased.pass_ms(TTL_MS - 1_000)
        assert await leased.leases.renew("first")
        assert await leased.leases.join(a_server("second")) == HeldBy("host of first")


async def test_a_server_whose_lease_has_ended_is_replaced_and_refused(leased: Leased) -> None:
    old = await joined(leased, a_server("first"))
    await leased.pass_ms(TTL_MS + 1)
    new = await joined(leased, a_server("second"))
    assert all(new[shard] > old[shard] for shard in old)
    assert not await may_write(leased, old)
    assert await may_write(leased, new)
    assert not await leased.leases.renew("first")
    assert await leased.leases.renew("second")


async def test_a_late_renewal_counts_while_no_other_server_has_joined(leased: Leased) -> None:
    epochs = await joined(leased, a_server("first"))
    await leased.pass_ms(TTL_MS + 60_000)
    assert await leased.leases.renew("first")
    assert await leased.leases.join(a_server("second")) == HeldBy("host of first")
    assert await may_write(leased, epochs)


async def test_a_server_that_left_is_replaced_at_once(leased: Leased) -> None:
    await joined(leased, a_server("first"))
    await leased.leases.leave("first")
    await joined(leased, a_server("second"))
    await leased.leases.leave("first")
    assert await leased.leases.renew("second")


async def test_the_next_server_of_the_same_place_does_not_wait(leased: Leased) -> None:
    await joined(leased, a_server("first", place="a directory"))
    await joined(leased, a_server("again", place="a directory"))
    assert not await leased.leases.renew("first")


async def test_joining_again_after_an_unknown_outcome_takes_the_shards_again(leased: Leased) -> None:
    first = await joined(leased, a_server("first"))
    again = await joined(leased, a_server("first"))
    assert all(again[shard] > first[shard] for shard in first)
    assert await leased.leases.renew("first")


async def test_a_lease_that_was_made_before_the_clock_went_back_does_not_block_for_an_hour(leased: Leased) -> None:
    await joined(leased, a_server("first"))
    await leased.pass_ms(-HOUR_MS)
    await joined(leased, a_server("second"))
