"""Asks to actors of other servers, while servers come and go."""

import random
from dataclasses import dataclass

import pytest
import trio

from sightline.actors.kernel import Command, KernelOptions, KindName, Registry
from sightline.actors.ownership.owned_shards import OwnedShards
from sightline.actors.ownership.routes import Routes
from sightline.actors.remote import codec
from sightline.actors.remote.peers import Peers
from sightline.bus.memory import MemoryNetwork
from sightline.system.clock import SystemClock

ACTOR = "05000000-0000-4000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Ask(Command["Ask", str]):
    """Answers who has it."""


codec.extend({910: Ask})
KIND = KindName[Ask, str]("named")


class Named:
    """Answers with the name of its server, when it may."""

    def __init__(self, name, may_answer):
        self.name, self.may_answer = name, may_answer

    async def load(self):
        return

    def snapshot(self):
        return self.name

    def may_passivate(self):
        return True

    async def handle(self, envelope):
        await self.may_answer.wait()
        envelope.reply(envelope.message, self.name)


class Server:
    """One server on a bus in memory."""

    def __init__(self, network, name, *, questions=()):
        self.owned, self.routes, self.may_answer = OwnedShards(), Routes(name), trio.Event()
        self.crashes = []
        self.peers = Peers(network.join(name), self.routes, questions=questions)
        self.registry = Registry(
            clock=SystemClock(),
            rng=random.Random(1),
            options=KernelOptions(),
            owns=self.owned.owns,
            remote=self.peers,
            log=self,
        )
        self.registry.register(KIND, lambda context: Named(name, self.may_answer))
        self.peers.attach(self.registry, self.owned.owns)

    async def run(self, nursery):
        await nursery.start(self.registry.run)
        await nursery.start(self.peers.run)

    def warning(self, event, **fields):
        pass

    def error(self, event, **fields):
        self.crashes.append((event, fields))

    exception = error


@pytest.mark.trio
async def test_a_question_that_is_on_two_ways_is_answered_once(autojump_clock):
    network = MemoryNetwork()
    here, there = Server(network, "here", questions=(Ask,)), Server(network, "there")
    here.may_answer.set()
    async with trio.open_nursery() as nursery:
        await here.run(nursery)
        await there.run(nursery)
        there.owned.add({5: 1})
        here.routes.read({"here": [], "there": [5]})
        answers = []

        async def ask():
            answers.append(await here.registry.ref(KIND, ACTOR).ask(Ask(), timeout_s=5))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        # The other server seems to have ended: the question is held until an owner is known ...
        here.routes.read({"here": []})
        await trio.testing.wait_all_tasks_blocked()
        # ... it is answered by the first receiver after all, and this server becomes the owner.
        there.may_answer.set()
        await trio.testing.wait_all_tasks_blocked()
        here.owned.add({5: 2})
        here.routes.read({"here": [5]})
        await trio.sleep(1)
        assert answers == ["there"]
        assert not here.crashes
        nursery.cancel_scope.cancel()
