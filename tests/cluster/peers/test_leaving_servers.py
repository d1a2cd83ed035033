"""A server that stops hands its shards over while it still has its lease, so that the others wait for its answers."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from sightline.actors.kernel import Context, Envelope, KindName, KindOptions, Registry
from sightline.actors.shards import OwnedShards
from sightline.cluster.routes import Routes
from sightline.cluster.shard_host import ShardHost
from sightline.system.clock import SystemClock
from simulation.memory.identity import MemoryRelations
from simulation.memory.leases import MemoryShardLeases
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.cluster.hosts import start_host

SHARDS = range(120)
ASKER = KindName[str, object]("asker")
ASKED = KindName[str, object]("asked")


class Asked:
    """Answers with its id."""

    def __init__(self, context: Context[str]) -> None:
        self.context = context

    async def load(self) -> None:
        return

    def snapshot(self) -> None:
        return

    def may_passivate(self) -> bool:
        return True

    async def handle(self, envelope: Envelope[str]) -> None:
        envelope.reply(envelope.message, self.context.id)


class Asker(Asked):
    """For each message it asks another actor in a helper and passes that answer on, as a dispatch of a session does."""

    def __init__(self, context: Context[str]) -> None:
        super().__init__(context)
        self.asks: list[Envelope[str]] = []

    async def handle(self, envelope: Envelope[str]) -> None:
        if envelope.is_ask:
            self.asks.append(envelope)
            asked_id = envelope.message
            self.context.spawn(lambda: self.ask(asked_id), on_value=lambda answer: answer, on_error=repr)
        else:
            asked = self.asks.pop()
            asked.reply(asked.message, envelope.message)

    async def ask(self, asked_id: str) -> str:
        await trio.sleep(0.3)
        return str(await self.context.registry.ref(ASKED, asked_id).ask("hello", timeout_s=5))


@asynccontextmanager
async def hosts(count: int) -> AsyncIterator[tuple[list[ShardHost], list[OwnedShards], MemoryShardLeases]]:
    """Run servers until each owns its share of the shards."""
    async with servers(count) as (made, owned, leases, _):
        yield made, owned, leases


@asynccontextmanager
async def servers(
    count: int,
) -> AsyncIterator[tuple[list[ShardHost], list[OwnedShards], MemoryShardLeases, list[Registry]]]:
    """The same, with their actors."""
    now_ms = lambda: round(trio.current_time() * 1_000)  # noqa: E731
    store = MemoryStore(relations=MemoryRelations(token_key=b"k" * 32), ledger=MemoryLedger())
    leases, made, owned = MemoryShardLeases(store, now_ms), list[ShardHost](), list[OwnedShards]()
    registries: list[Registry] = []

    def look(*_: object) -> None:
        for each in made:
            each.look()

    async with trio.open_nursery() as nursery:
        for number in range(count):
            mine, name = OwnedShards(), str(number)
            registry = Registry(clock=SystemClock(), rng=random.Random(number), owns=mine.owns, admits=mine.admits)
            registry.register(ASKED, Asked)
            registry.register(ASKER, Asker, KindOptions(asks_others=True))
            registries.append(registry)
            await nursery.start(registry.run)
            host = await start_host(
                nursery, leases, name, mine, registry, now_ms=now_ms, clock_ms=now_ms, shards=SHARDS,
                servers_expected=count, routes=Routes(name), on_taken=look, on_released=look,
            )  # fmt: skip
            made.append(host)
            owned.append(mine)
        await trio.sleep(20)
        assert all(mine.epochs for mine in owned)
        yield made, owned, leases, registries
        nursery.cancel_scope.cancel()


async def test_a_server_that_stops_keeps_its_lease_until_others_own_all_of_its_shards(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(3) as (made, owned, leases):
        began = trio.current_time()
        await made[0].hand_all_over()
        assert trio.current_time() - began < 2
        assert not owned[0].epochs
        assert owned[1].epochs.keys() | owned[2].epochs.keys() == set(SHARDS)
        assert [server.is_valid for server in await leases.servers()] == [True, True, True]
        await trio.sleep(30)
        assert not owned[0].epochs, "it takes no shards back"


async def test_two_servers_that_stop_at_once_hand_everything_to_the_third(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(3) as (made, owned, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made[0].hand_all_over)
            nursery.start_soon(made[1].hand_all_over)
        await trio.sleep(5)
        assert owned[2].epochs.keys() == set(SHARDS)


async def test_the_last_server_hands_nothing_over(autojump_clock: trio.testing.MockClock) -> None:
    async with hosts(1) as (made, owned, _):
        await made[0].hand_all_over()
        assert owned[0].epochs.keys() == set(SHARDS)


async def test_what_actors_have_begun_ends_before_their_shards_are_given_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with servers(2) as (made, owned, _, registries):
        registry, answers = registries[0], dict[str, str]()
        ids = [f"{shard:02x}000000-0000-4000-8000-000000000000" for shard in sorted(owned[0].epochs)]

        async def ask(asker: str, asked: str) -> None:
            answers[asker] = await registry.ref(ASKER, asker).ask(asked, timeout_s=5)

        async with trio.open_nursery() as nursery:
            # The actor that each one asks is given away too.
            for asker, asked in zip(ids, reversed(ids), strict=True):
                nursery.start_soon(ask, asker, asked)
            await trio.testing.wait_all_tasks_blocked()
            await made[0].hand_all_over()
        assert answers == dict(zip(ids, reversed(ids), strict=True))


async def test_servers_that_all_stop_do_not_wait_for_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hosts(3) as (made, _, _):
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for host in made:
                nursery.start_soon(host.hand_all_over)
                await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() - began < 1
