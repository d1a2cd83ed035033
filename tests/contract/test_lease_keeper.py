"""The contract of the keeper of a lease: it renews, reports lost shards once, and ends with the server."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import trio

from sightline.actors.shards import OwnedShards
from sightline.ports.leases import LeaseKeeper, ServerIdentity, ShardLeases
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.leases import PostgresLeaseKeeper, PostgresShardLeases
from sightline.system.clock import boot_now_ms
from simulation.memory.identity import MemoryRelations
from simulation.memory.leases import MemoryShardLeases, TrioLeaseKeeper
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore


@dataclass
class Kept:
    """A keeper under test, its leases, and what ends a server as another one would."""

    keeper: LeaseKeeper
    leases: ShardLeases


def a_server(name: str, directory_id: str = "a directory") -> ServerIdentity:
    return ServerIdentity(incarnation=name, host=name, directory_id=directory_id)


@pytest.fixture
async def kept(store_address: str | None) -> AsyncIterator[Kept]:
    if store_address is None:
        store = MemoryStore(relations=MemoryRelations(token_key=b"k" * 32), ledger=MemoryLedger())
        leases = MemoryShardLeases(store, boot_now_ms)
        yield Kept(TrioLeaseKeeper(leases, "first", boot_now_ms), leases)
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield Kept(PostgresLeaseKeeper(database, "first"), PostgresShardLeases(database))


async def enter(kept: Kept) -> None:
    sent_ms = boot_now_ms()
    await kept.leases.enter(a_server("first"))
    kept.keeper.entered(sent_ms)


def unexpected(shards: object) -> None:
    raise AssertionError(f"lost {shards}")


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not holds():  # noqa: ASYNC110  the keeper has no event
            await trio.sleep(0.01)


async def test_a_lease_is_trusted_from_its_entry_on_and_ends_with_the_server(kept: Kept) -> None:
    assert not kept.keeper.is_valid()
    await enter(kept)
    assert kept.keeper.is_valid()
    await kept.leases.enter(a_server("second"))  # of the same place: it ends the first one
    with trio.fail_after(60):
        await kept.keeper.run(dict, unexpected)
    assert not kept.keeper.is_valid()


async def test_shards_that_are_owned_at_another_epoch_are_lost_and_the_others_are_not(kept: Kept) -> None:
    await enter(kept)
    owned = OwnedShards(await kept.leases.take("first", [1, 2, 3]))
    real = owned.epochs[2]
    owned.add({2: real - 1, 9: 4})
    lost: dict[int, int] = {}

    def lose(shards: dict[int, int]) -> None:
        lost.update(shards)
        owned.remove(shards)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.run, lambda: owned.epochs, lose)
        await until(lambda: bool(lost))
        assert lost == {2: real - 1, 9: 4}
        assert kept.keeper.is_valid()
        nursery.cancel_scope.cancel()


async def test_a_lease_is_renewed(kept: Kept) -> None:
    kept.keeper.entered(0)
    assert not kept.keeper.is_valid()
    await kept.leases.enter(a_server("first"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.keeper.run, dict, unexpected)
        await until(kept.keeper.is_valid)
        nursery.cancel_scope.cancel()
    assert kept.keeper.failed_ms is None
