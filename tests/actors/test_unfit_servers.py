"""A server whose clock differs from that of the others, or that does not reach them, owns nothing."""

import random
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from sightline.actors.kernel import Registry
from sightline.actors.shards import OwnedShards
from sightline.domain.errors import StoreUnavailableError
from simulation.memory.identity import MemoryRelations
from simulation.memory.leases import MemoryShardLeases
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.cluster.hosts import start_host

SHARDS = range(12)


def now_ms() -> int:
    return 1_767_225_600_000 + round(trio.current_time() * 1_000)


class Machine:
    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms
        self.is_connected = True
        """Whether the server reaches the others."""
        self.reaches_database = True
        self.way_s = 0.0
        """How long a question of the server to the database is on its way."""

    def now_ms(self) -> int:
        return now_ms() + self.ahead_ms


class FailingReleases:
    """Leases whose next releases fail: the database does not answer."""

    def __init__(self, leases: MemoryShardLeases) -> None:
        self._leases = leases
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)

    async def release(self, incarnation: str, shards: Collection[int], *, to: str | None = None) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise StoreUnavailableError("no answer")
        await self._leases.release(incarnation, shards, to=to)


class LeasesOf:
    """The leases, as one server asks them."""

    def __init__(self, leases: FailingReleases, machine: Machine) -> None:
        self._leases = leases
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)

    async def renew(self, incarnation: str) -> Mapping[int, int] | None:
        if not self._machine.reaches_database:
            raise StoreUnavailableError("no answer")
        return await self._leases.renew(incarnation)

    async def database_ms(self) -> int:
        await trio.sleep(self._machine.way_s)
        return int(await self._leases.database_ms())


@asynccontextmanager
async def hosts(*ahead_ms: int) -> AsyncIterator[tuple[list[OwnedShards], list[Machine], FailingReleases]]:
    """Servers whose clocks are ahead of the database's by these times."""
    store = MemoryStore(relations=MemoryRelations(token_key=b"k" * 32), ledger=MemoryLedger())
    leases = FailingReleases(MemoryShardLeases(store, now_ms))
    owned: list[OwnedShards] = []
    clocks = [Machine(ahead) for ahead in ahead_ms]

    async with trio.open_nursery() as nursery:
        for number, clock in enumerate(clocks):
            mine = OwnedShards()
            registry = Registry(clock=clock, rng=random.Random(number), owns=mine.owns)
            await nursery.start(registry.run)
            name = str(number)
            await start_host(
                nursery,
                LeasesOf(leases, clock),
                name,
                mine,
                registry,
                now_ms=now_ms,
                clock_ms=clock.now_ms,
                shards=SHARDS,
                servers_expected=len(clocks),
                is_connected=lambda clock=clock: clock.is_connected,
            )
            owned.append(mine)
        yield owned, clocks, leases
        nursery.cancel_scope.cancel()


def counts(owned: list[OwnedShards]) -> list[int]:
    return [len(each.epochs) for each in owned]


async def test_a_server_whose_clock_is_a_second_off_takes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with hosts(0, 1_200, 0) as (owned, _, _):
        await trio.sleep(30)
        mine = counts(owned)
        assert mine[1] == 0
        assert sum(mine) == len(SHARDS)


async def test_a_server_whose_clock_steps_hands_its_shards_over_and_takes_some_again_when_it_is_right(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(0, 0) as (owned, clocks, _):
        await trio.sleep(20)
        assert all(counts(owned))
        clocks[1].ahead_ms = -3_600_000
        await trio.sleep(20)
        assert counts(owned) == [len(SHARDS), 0]
        clocks[1].ahead_ms = 100
        await trio.sleep(40)
        assert all(counts(owned))


async def test_a_slow_way_to_the_database_is_not_taken_for_a_wrong_clock(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(0, 0, 600) as (owned, clocks, _):
        clocks[1].way_s = clocks[2].way_s = 1.5
        await trio.sleep(60)
        mine = counts(owned)
        assert mine[1] > 0
        assert mine[2] > 0, "600 ms ahead could be the way of the question"
        clocks[2].ahead_ms = -2_000
        await trio.sleep(20)
        assert counts(owned)[2] == 0


async def test_no_shard_moves_when_the_database_was_away_for_as_long_as_a_lease(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(0, 0, 0) as (owned, machines, _):
        await trio.sleep(20)
        before = [each.epochs for each in owned]
        # The first server renews last before and first after, so that only the leases of the others run out.
        machines[1].reaches_database = machines[2].reaches_database = False
        await trio.sleep(1.5)
        machines[0].reaches_database = False
        await trio.sleep(3.95)
        machines[0].reaches_database = True
        await trio.sleep(0.15)
        machines[1].reaches_database = machines[2].reaches_database = True
        await trio.sleep(20)
        assert [each.epochs for each in owned] == before


async def test_shards_whose_release_failed_are_released_again(autojump_clock: trio.testing.MockClock) -> None:
    async with hosts(0, 0) as (owned, clocks, leases):
        await trio.sleep(20)
        leases.failures = 1
        clocks[1].ahead_ms = -3_600_000
        await trio.sleep(20)
        assert counts(owned) == [len(SHARDS), 0]


async def test_shards_that_were_offered_to_a_server_before_its_clock_stepped_go_to_another_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(0, 0) as (owned, clocks, leases):
        await trio.sleep(20)
        mine = frozenset(owned[0].epochs)
        clocks[1].ahead_ms = 600
        await trio.sleep(10)
        # As a server does that gives shards to one whose clock it has not read again.
        owned[0].remove(mine)
        await leases.release("0", mine, to="1")
        await trio.sleep(10)
        assert mine <= owned[0].epochs.keys()


async def test_servers_that_all_differ_from_the_database_go_on(autojump_clock: trio.testing.MockClock) -> None:
    async with hosts(3_600_000, 3_600_000) as (owned, _, _):
        await trio.sleep(30)
        assert sum(counts(owned)) == len(SHARDS)
        assert all(counts(owned))


async def test_a_server_that_does_not_reach_the_others_hands_its_shards_over_after_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(0, 0) as (owned, clocks, _):
        await trio.sleep(20)
        assert all(counts(owned))
        clocks[1].is_connected = False
        await trio.sleep(4)
        assert all(counts(owned))
        await trio.sleep(6)
        assert counts(owned) == [len(SHARDS), 0]
        clocks[1].is_connected = True
        await trio.sleep(40)
        assert all(counts(owned))


async def test_servers_of_which_none_reaches_another_keep_their_shards(autojump_clock: trio.testing.MockClock) -> None:
    async with hosts(0, 0) as (owned, clocks, _):
        await trio.sleep(20)
        before = counts(owned)
        for clock in clocks:
            clock.is_connected = False
        await trio.sleep(60)
        assert counts(owned) == before
