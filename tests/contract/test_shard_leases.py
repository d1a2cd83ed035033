"""The contract of leases of single shards: each shard has one owner, and nobody takes one from a living server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import trio

from sightline.ports.leases import (
    TTL_MS,
    IncompatibleServersError,
    ServerIdentity,
    ServerRole,
    ServiceHeldError,
    ShardLeases,
    WireRange,
)
from sightline.ports.store import SHARDS, HeartbeatWrite, ShardLease, Store
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.leases import PostgresShardLeases
from sightline.storage.postgres.store import PostgresStore
from simulation.memory.identity import MemoryRelations
from simulation.memory.leases import MemoryShardLeases
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore

from .builders import a_heartbeat, an_id

EVERY = (*range(SHARDS), *ServerRole)
HOUR_MS = 3_600_000


@dataclass
class Cluster:
    """Leases under test, and the store that they guard."""

    leases: ShardLeases
    store: Store
    pass_ms: Callable[[int], Awaitable[None]]
    """Let the clock of the store advance by this time, or go back if it is negative."""

    async def enter(self, *names: str) -> None:
        for name in names:
            await self.leases.enter(
                ServerIdentity(incarnation=name, host=f"host of {name}", directory_id=f"place of {name}")
            )

    async def pass_a_term(self, *renewed: str) -> None:
        """Let more than a term pass, while these servers renew."""
        for _ in range(3):
            await self.pass_ms(TTL_MS // 2)
            for name in renewed:
                await self.leases.renew(name)

    async def may_write(self, shard: int, epoch: int) -> bool:
        write = HeartbeatWrite(ShardLease(shard, epoch), (a_heartbeat(an_id(), 1),))
        return not await self.store.append_heartbeats([write])


def on_memory() -> Cluster:
    clock = [1_000_000_000]
    store = MemoryStore(relations=MemoryRelations(token_key=b"k" * 32), ledger=MemoryLedger())

    async def pass_ms(ms: int) -> None:
        clock[0] += ms

    return Cluster(MemoryShardLeases(store, lambda: clock[0]), store, pass_ms)


def on_postgres(database: Database) -> Cluster:
    async def pass_ms(ms: int) -> None:
        """Move the times of the leases instead of the clock."""
        statement = """
            UPDATE server_lease SET expires_at = expires_at - $1 * interval '1 ms',
              held_since = held_since - $1 * interval '1 ms'
        """
        await database.run(lambda connection: connection.execute(statement, ms))

    return Cluster(PostgresShardLeases(database), PostgresStore(database), pass_ms)


@pytest.fixture
async def cluster(store_address: str | None) -> AsyncIterator[Cluster]:
    if store_address is None:
        yield on_memory()
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=store_address))) as database:
        yield on_postgres(database)


async def test_the_first_server_of_a_new_database_takes_what_it_wants_at_once(cluster: Cluster) -> None:
    await cluster.enter("first")
    epochs = await cluster.leases.take("first", EVERY)
    assert set(epochs) == set(EVERY)
    assert await cluster.leases.renew("first") == epochs
    assert await cluster.may_write(7, epochs[7])
    assert await cluster.leases.take("first", EVERY) == {}


async def test_shards_of_a_living_server_are_not_taken(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    mine = await cluster.leases.take("first", range(10))
    await cluster.pass_a_term("first", "second")
    assert set(await cluster.leases.take("second", range(20))) == set(range(10, 20))
    assert await cluster.leases.renew("first") == mine
    assert await cluster.may_write(7, mine[7])


async def test_a_server_without_a_valid_lease_takes_nothing(cluster: Cluster) -> None:
    assert await cluster.leases.take("never entered", EVERY) == {}
    await cluster.enter("first")
    await cluster.pass_ms(TTL_MS + 1)
    assert await cluster.leases.take("first", EVERY) == {}
    assert await cluster.leases.renew("first") == {}
    assert await cluster.leases.take("first", [3]) != {}


async def test_a_dead_server_is_replaced_by_one_that_held_its_lease_for_a_term(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    old = await cluster.leases.take("first", EVERY)
    await cluster.pass_a_term("second")
    new = await cluster.leases.take("second", EVERY)
    assert all(new[shard] == old[shard] + 1 for shard in EVERY)
    assert not await cluster.may_write(7, old[7])
    assert await cluster.may_write(7, new[7])
    assert await cluster.leases.renew("first") is None
    assert [each.incarnation for each in await cluster.leases.servers()] == ["second"]


async def test_a_server_that_wakes_with_a_broken_lease_steals_nothing(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    mine = await cluster.leases.take("first", EVERY)
    # Neither reached the database: an outage, or both were suspended.
    await cluster.pass_ms(10 * TTL_MS)
    assert await cluster.leases.renew("second") == {}
    assert await cluster.leases.take("second", EVERY) == {}
    assert await cluster.leases.renew("first") == mine
    assert await cluster.may_write(7, mine[7])


async def test_a_server_that_just_entered_does_not_end_one_whose_lease_has_run_out(cluster: Cluster) -> None:
    await cluster.enter("first")
    mine = await cluster.leases.take("first", EVERY)
    await cluster.pass_ms(TTL_MS + 1)
    await cluster.enter("second")
    assert await cluster.leases.take("second", EVERY) == {}
    assert await cluster.leases.renew("first") == mine


async def test_a_server_that_enters_again_with_a_broken_lease_steals_nothing(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    mine = await cluster.leases.take("first", EVERY)
    await cluster.pass_ms(10 * TTL_MS)
    await cluster.enter("second")
    assert await cluster.leases.take("second", EVERY) == {}
    assert await cluster.leases.renew("first") == mine


async def test_a_released_shard_goes_to_the_server_it_is_meant_for(cluster: Cluster) -> None:
    await cluster.enter("first", "second", "third")
    old = await cluster.leases.take("first", range(10))
    await cluster.leases.release("first", [3, 4], to="second")
    assert await cluster.leases.take("third", range(10)) == {}
    assert [each.offered for each in await cluster.leases.servers()] == [frozenset(), {3, 4}, frozenset()]
    # Until another server takes it, the last write of the earlier owner still counts.
    assert await cluster.may_write(3, old[3])
    taken = await cluster.leases.take("second", range(10))
    assert taken == {3: old[3] + 1, 4: old[4] + 1}
    assert not await cluster.may_write(3, old[3])
    left = await cluster.leases.renew("first")
    assert left is not None
    assert set(left) == {0, 1, 2, 5, 6, 7, 8, 9}


async def test_a_shard_that_was_meant_for_a_server_that_left_is_free(cluster: Cluster) -> None:
    await cluster.enter("first", "second", "third")
    await cluster.leases.take("first", range(10))
    await cluster.leases.release("first", [3], to="second")
    await cluster.leases.leave("second")
    assert set(await cluster.leases.take("third", range(10))) == {3}


async def test_what_another_server_owns_cannot_be_released(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    mine = await cluster.leases.take("first", range(10))
    await cluster.leases.release("second", range(10), to="second")
    assert await cluster.leases.take("second", range(10)) == {}
    assert await cluster.leases.renew("first") == mine


async def test_a_server_that_leaves_frees_its_shards_at_once(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    await cluster.leases.take("first", EVERY)
    await cluster.leases.leave("first")
    assert set(await cluster.leases.take("second", EVERY)) == set(EVERY)


async def test_the_next_server_of_the_same_place_replaces_the_earlier_one_at_once(cluster: Cluster) -> None:
    await cluster.leases.enter(ServerIdentity(incarnation="first", host="h", directory_id="a directory"))
    await cluster.leases.take("first", EVERY)
    await cluster.leases.enter(ServerIdentity(incarnation="again", host="h", directory_id="a directory"))
    assert set(await cluster.leases.take("again", EVERY)) == set(EVERY)
    assert await cluster.leases.renew("first") is None


async def test_servers_that_take_the_same_shards_at_once_get_each_one_of_them_once(cluster: Cluster) -> None:
    names = [f"server {number}" for number in range(5)]
    await cluster.enter(*names)
    taken: dict[str, set[int]] = {}

    async def take(name: str) -> None:
        taken[name] = set(await cluster.leases.take(name, EVERY))

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(take, name)
    assert sum(map(len, taken.values())) == len(EVERY)
    assert set().union(*taken.values()) == set(EVERY)
    assert {each.incarnation: each.shards for each in await cluster.leases.servers()} == taken


async def test_a_lease_that_was_made_before_the_clock_went_back_does_not_last_for_an_hour(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    await cluster.leases.take("first", EVERY)
    await cluster.pass_a_term("second")
    await cluster.leases.renew("first")
    await cluster.pass_ms(-HOUR_MS)
    await cluster.leases.renew("second")
    await cluster.pass_a_term("second")
    assert set(await cluster.leases.take("second", EVERY)) == set(EVERY)


def alone(name: str, directory_id: str | None = None) -> ServerIdentity:
    where = directory_id or f"place of {name}"
    return ServerIdentity(incarnation=name, host=f"host of {name}", directory_id=where, is_alone=True)


@pytest.mark.parametrize("second", ["alone", "several"])
async def test_while_a_server_is_alone_no_other_one_enters(cluster: Cluster, second: str) -> None:
    await cluster.leases.enter(alone("first"))
    mine = await cluster.leases.take("first", EVERY)
    for _ in range(3):
        await cluster.pass_ms(TTL_MS - 1_000)
        assert await cluster.leases.renew("first") == mine
        with pytest.raises(ServiceHeldError, match="on host of first"):
            await (cluster.leases.enter(alone("second")) if second == "alone" else cluster.enter("second"))
    assert await cluster.may_write(7, mine[7])
    assert [each.incarnation for each in await cluster.leases.servers()] == ["first"]


async def test_a_server_that_is_alone_does_not_enter_beside_several(cluster: Cluster) -> None:
    await cluster.enter("first", "second")
    with pytest.raises(ServiceHeldError):
        await cluster.leases.enter(alone("third"))
    await cluster.leases.leave("first")
    await cluster.leases.leave("second")
    await cluster.leases.enter(alone("third"))


@pytest.mark.parametrize("second", ["alone", "several"])
async def test_a_lone_server_whose_lease_has_ended_is_replaced_at_once_and_refused(
    cluster: Cluster, second: str
) -> None:
    await cluster.leases.enter(alone("first"))
    old = await cluster.leases.take("first", EVERY)
    await cluster.pass_ms(TTL_MS + 1)
    await (cluster.leases.enter(alone("second")) if second == "alone" else cluster.enter("second"))
    new = await cluster.leases.take("second", EVERY)
    assert all(new[shard] == old[shard] + 1 for shard in EVERY)
    assert not await cluster.may_write(7, old[7])
    assert await cluster.leases.renew("first") is None


async def test_a_late_renewal_of_a_lone_server_counts_while_no_other_one_has_entered(cluster: Cluster) -> None:
    await cluster.leases.enter(alone("first"))
    mine = await cluster.leases.take("first", EVERY)
    await cluster.pass_ms(TTL_MS + 60_000)
    assert await cluster.leases.renew("first") == mine
    with pytest.raises(ServiceHeldError):
        await cluster.leases.enter(alone("second"))


async def test_the_next_lone_server_of_the_same_place_does_not_wait(cluster: Cluster) -> None:
    await cluster.leases.enter(alone("first", "a directory"))
    await cluster.leases.take("first", EVERY)
    await cluster.leases.enter(alone("again", "a directory"))
    assert set(await cluster.leases.take("again", EVERY)) == set(EVERY)
    assert await cluster.leases.renew("first") is None


async def test_a_lone_lease_that_was_made_before_the_clock_went_back_does_not_block_for_an_hour(
    cluster: Cluster,
) -> None:
    await cluster.leases.enter(alone("first"))
    await cluster.pass_ms(-HOUR_MS)
    await cluster.leases.enter(alone("second"))
    assert await cluster.leases.renew("first") is None


async def test_the_clock_of_the_database_goes_on(cluster: Cluster) -> None:
    before_ms = await cluster.leases.database_ms()
    assert 0 <= await cluster.leases.database_ms() - before_ms < 60_000


async def test_a_server_reports_its_clock_and_its_connection(cluster: Cluster) -> None:
    await cluster.enter("one", "two")
    before = {state.incarnation: state.clock_offset_ms for state in await cluster.leases.servers()}
    assert before == {"one": 0, "two": 0}
    await cluster.leases.report("one", clock_offset_ms=-1_500, is_connected=False)
    offset = {state.incarnation: state.clock_offset_ms for state in await cluster.leases.servers()}
    assert offset == {"one": -1_500, "two": 0}
    connected = {state.incarnation: state.is_connected for state in await cluster.leases.servers()}
    assert connected == {"one": False, "two": True}


def speaking(name: str, first: int, last: int) -> ServerIdentity:
    wire = WireRange(first, last)
    return ServerIdentity(incarnation=name, host=f"host of {name}", directory_id=f"place of {name}", wire=wire)


async def test_a_server_without_a_wire_version_in_common_with_a_living_one_is_refused(cluster: Cluster) -> None:
    await cluster.leases.enter(speaking("one", 1, 2))
    await cluster.leases.enter(speaking("two", 2, 3))
    with pytest.raises(IncompatibleServersError, match=r"wire versions 3 to 4 .* that on host of one speaks 1 to 2:"):
        await cluster.leases.enter(speaking("three", 3, 4))
    wires = {server.incarnation: server.wire for server in await cluster.leases.servers()}
    assert wires == {"one": WireRange(1, 2), "two": WireRange(2, 3)}

    await cluster.leases.leave("one")
    await cluster.leases.enter(speaking("three", 3, 4))


async def test_a_server_whose_lease_has_run_out_refuses_nobody(cluster: Cluster) -> None:
    await cluster.leases.enter(speaking("one", 1, 1))
    await cluster.pass_ms(TTL_MS + 1)
    await cluster.leases.enter(speaking("two", 2, 2))


async def test_a_server_is_not_refused_because_of_the_earlier_one_of_its_place(cluster: Cluster) -> None:
    await cluster.leases.enter(speaking("one", 1, 1))
    again = ServerIdentity(incarnation="again", host="h", directory_id="place of one", wire=WireRange(2, 2))
    await cluster.leases.enter(again)
