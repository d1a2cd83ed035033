"""Asks to actors of other servers, while servers come and go."""

import random

import pytest
import trio

from sightline.actors.kernel import ActorStoppedError, Command, KernelOptions, KindName, Registry
from sightline.actors.messages import ShardsTaken
from sightline.actors.shards import OwnedShards
from sightline.cluster.bus.memory import MemoryNetwork
from sightline.cluster.peers import codec
from sightline.cluster.peers.peers import SERVER_TELL, Peers
from sightline.cluster.routes import Routes
from sightline.domain.errors import OutcomeUnknownError, SightlineError
from sightline.domain.value import Value
from sightline.ports.leases import WIRE, WireRange
from sightline.system.clock import SystemClock

ACTOR = "05000000-0000-4000-8000-000000000001"


class Ask(Value, Command["Ask", str]):
    """Answers who has it."""


class Newer:
    """A class that only a newer version knows."""


codec.extend({910: Ask})
KIND = KindName[Ask, str]("named")


class Named:
    """Answers with the name of its server, or with an error, when it may."""

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
        if isinstance(self.name, Exception):
            envelope.fail(self.name)
        else:
            envelope.reply(envelope.message, self.name)


class Server:
    """One server on a bus in memory."""

    def __init__(self, network, name, *, questions=(), answer=None):
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
        self.registry.register(KIND, lambda context: Named(answer or name, self.may_answer))
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


@pytest.fixture
async def asked():
    """Asks one server for an actor of another one, which answers so."""

    async def ask(answer):
        network = MemoryNetwork()
        here, there = Server(network, "here"), Server(network, "there", answer=answer)
        there.may_answer.set()
        async with trio.open_nursery() as nursery:
            await here.run(nursery)
            await there.run(nursery)
            there.owned.add({5: 1})
            here.routes.read({"here": [], "there": [5]})
            try:
                return await here.registry.ref(KIND, ACTOR).ask(Ask(), timeout_s=20)
            except SightlineError as error:
                return error, here.peers.counts.moved, trio.current_time()
            finally:
                nursery.cancel_scope.cancel()

    return ask


@pytest.mark.trio
async def test_an_owner_that_could_not_ask_another_actor_says_so_and_stays_the_owner(autojump_clock, asked):
    error, moved, at_s = await asked(ActorStoppedError("another actor is stopping"))
    assert type(error) is ActorStoppedError
    assert moved == 0
    assert at_s < 1


@pytest.mark.trio
async def test_an_answer_that_is_not_understood_is_an_unknown_outcome_at_once(autojump_clock, asked, monkeypatch):
    monkeypatch.setitem(codec._PACKERS, Newer, lambda value: [9_999])
    error, _, at_s = await asked(Newer())
    assert isinstance(error, OutcomeUnknownError)
    assert at_s < 1


@pytest.mark.trio
async def test_an_item_that_is_not_understood_leaves_the_others_of_its_frame(autojump_clock):
    network = MemoryNetwork()
    here, sender = Server(network, "here"), network.join("there")
    taken = []
    here.peers.listen(ShardsTaken, lambda _, news: taken.append(news.shards))
    async with trio.open_nursery() as nursery:
        await here.run(nursery)
        items = [[SERVER_TELL, [9_999]], [SERVER_TELL, codec.pack(ShardsTaken((5,)))]]
        sender.send("here", codec.encode([WIRE.last, 1, items]))
        await trio.testing.wait_all_tasks_blocked()
        assert taken == [(5,)]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_servers_of_several_versions_send_the_highest_that_both_understand(autojump_clock):
    network, sent = MemoryNetwork(), []

    class Recorded:
        """The bus of a server; records the version of each frame."""

        def __init__(self, bus):
            self._bus = bus

        def __getattr__(self, name):
            return getattr(self._bus, name)

        def send(self, to, frame):
            sent.append((to, codec.decode(frame)[0]))
            return self._bus.send(to, frame)

    wires = {"here": WireRange(1, 3), "old": WireRange(1, 2), "new": WireRange(2, 4)}
    servers = {name: Server(network, name) for name in wires}
    for name, server in servers.items():
        server.routes.wire = wires[name]
        server.may_answer.set()
    here = servers["here"]
    here.peers._bus = Recorded(here.peers._bus)
    async with trio.open_nursery() as nursery:
        for server in servers.values():
            await server.run(nursery)
        for owner, expected in {"old": 2, "new": 3}.items():
            for server in servers.values():
                server.owned.remove([5])
                server.routes.read({other: [5] if other == owner else [] for other in wires}, wires)
            servers[owner].owned.add({5: 1})
            assert await here.registry.ref(KIND, ACTOR).ask(Ask(), timeout_s=5) == owner
            assert sent == [(owner, expected)]
            sent.clear()
        here.peers.tell_all(ShardsTaken(()))
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [("new", 3), ("old", 2)]
        sent.clear()
        here.peers.tell("not known yet", ShardsTaken(()))
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [("not known yet", 1)]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_frame_of_a_version_that_is_not_understood_is_dropped(autojump_clock):
    network = MemoryNetwork()
    here, there = Server(network, "here"), network.join("there")
    async with trio.open_nursery() as nursery:
        await here.run(nursery)
        taken = codec.pack(ShardsTaken((5,)))
        for wire, owner in ((WIRE.last + 1, None), (WIRE.last, "there")):
            there.send("here", codec.encode([wire, 0, [[SERVER_TELL, taken]]]))
            await trio.sleep(0.1)
            assert here.routes.owner(5) == owner
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_server_that_waits_for_nothing_has_no_timer(mock_clock):
    network = MemoryNetwork()
    server = Server(network, "here")
    async with trio.open_nursery() as nursery:
        await nursery.start(server.peers.run)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
        nursery.cancel_scope.cancel()
