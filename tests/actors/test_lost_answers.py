"""An ask whose answer may be lost ends at once, not at its deadline; a question is handled once by its new owner."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from sightline.actors.deps import SESSION
from sightline.actors.kernel import Envelope, Registry
from sightline.actors.messages import CountCells, GetSession
from sightline.actors.shards import shard_of
from sightline.cluster.bus.memory import MemoryBus, MemoryNetwork
from sightline.cluster.peers.peers import Peers
from sightline.cluster.routes import Routes
from sightline.domain.errors import OutcomeUnknownError
from sightline.system.clock import SystemClock


class Pair:
    """Two servers; the second answers an ask when `answers` is set."""

    def __init__(self) -> None:
        network = MemoryNetwork()
        self.buses: list[MemoryBus] = [network.join(name) for name in ("one", "two")]
        self.one, self.two = (Peers(bus, Routes(bus.incarnation)) for bus in self.buses)
        self.asked, self.answers, self.error = trio.Event(), trio.Event(), trio.Event()
        for peers in (self.one, self.two):
            peers.routes.read({"one": (), "two": ()})
        self.two.answer(CountCells, self._answer)

    async def _answer(self, _command: CountCells) -> None:
        self.asked.set()
        await self.answers.wait()

    async def ask(self) -> None:
        with pytest.raises(OutcomeUnknownError):
            await self.one.ask("two", CountCells(), timeout_s=30)
        self.error.set()


@asynccontextmanager
async def an_ask() -> AsyncIterator[Pair]:
    """An ask that the other server has and has not answered."""
    pair = Pair()
    async with trio.open_nursery() as nursery:
        await nursery.start(pair.one.run)
        await nursery.start(pair.two.run)
        nursery.start_soon(pair.ask)
        await pair.asked.wait()
        yield pair
        with trio.fail_after(2):
            await pair.error.wait()
        nursery.cancel_scope.cancel()


async def test_when_the_asker_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    async with an_ask() as pair:
        pair.buses[0].disconnect()


async def test_when_the_other_server_was_cut_off_while_it_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with an_ask() as pair:
        pair.buses[1].disconnect()
        pair.answers.set()
        await trio.testing.wait_all_tasks_blocked()
        pair.buses[1].connect()


class Scripted:
    """An actor that answers every ask, and fails if it gets one twice."""

    def __init__(self, got: list[object]) -> None:
        self._got = got

    async def load(self) -> None:
        await trio.lowlevel.checkpoint()

    async def handle(self, envelope: Envelope[Any]) -> None:
        await trio.lowlevel.checkpoint()
        self._got.append(envelope.message)
        envelope.reply(envelope.message, None)

    def snapshot(self) -> None:
        return None

    def may_passivate(self) -> bool:
        return True


async def test_questions_that_were_sent_to_a_server_that_ended_are_handled_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network, owned, got = MemoryNetwork(), set[str](), list[object]()
    peers = Peers(network.join("one"), Routes("one"))
    registry = Registry(clock=SystemClock(), rng=Random(1), owns=owned.__contains__, remote=peers)
    registry.register(SESSION, lambda _context: Scripted(got))
    peers.attach(registry, owned.__contains__)
    actor_id = "00000000-0000-4000-8000-000000000001"
    peers.routes.read({"one": (), "two": (shard_of(actor_id),)})

    async def ask() -> None:
        await registry.ref(SESSION, actor_id).ask(GetSession(), timeout_s=10)

    async with trio.open_nursery() as nursery:
        await nursery.start(registry.run)
        await nursery.start(peers.run)
        async with trio.open_nursery() as asking:
            # In two frames: the first that comes back ends the other server, and the second comes back later.
            for delay_s in (0.01, 0.02):
                network.route = lambda _sender, _receiver, delay_s=delay_s: delay_s
                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.1)
            owned.add(actor_id)
            peers.routes.took("one", [shard_of(actor_id)])
        assert len(got) == 2
        nursery.cancel_scope.cancel()
