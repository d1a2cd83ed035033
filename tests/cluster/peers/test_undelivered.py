"""A frame that is said not to have arrived: its messages are sent again, and are handled once."""

from typing import Any

import trio
import trio.testing

from sightline.actors.kernel import ActorStoppedError
from sightline.actors.kernel.errors import stopped
from sightline.cluster.bus.memory import MemoryBus, MemoryNetwork
from sightline.cluster.peers.frame_numbers import MISSED_MAX, SERVERS_MAX, FrameNumbers
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.ports.bus import Undelivered

from .test_peers import ACTOR, KIND, Ask, Server


class Asking:
    """A server asks for an actor of another one."""

    def __init__(self, answer: object = None) -> None:
        self.network = MemoryNetwork()
        self.bus_of_here: MemoryBus | None = None
        self.here, self.there = Server(self.network, "here"), Server(self.network, "there", answer=answer)
        self.handled: list[object] = []
        self.answers: list[Any] = []

    async def run(self, nursery: trio.Nursery) -> None:
        await self.here.run(nursery)
        await self.there.run(nursery)
        self.there.owned.add({5: 1})
        self.here.routes.read({"here": [], "there": [5]})

    async def ask(self) -> None:
        try:
            self.answers.append(await self.here.registry.ref(KIND, ACTOR).ask(Ask(), timeout_s=20))
        except (OutcomeUnknownError, UnavailableError) as error:
            self.answers.append(error)


async def test_an_ask_whose_frame_is_falsely_said_not_to_have_arrived_is_handled_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever reaches NATS can say so."""
    asking = Asking()
    network, there = asking.network, asking.there
    async with trio.open_nursery() as nursery:
        await asking.run(nursery)
        nursery.start_soon(asking.ask)
        await trio.testing.wait_all_tasks_blocked()
        before = there.registry.statistics().kinds[KIND].depth
        for _ in range(3):
            bus = network._buses["here"]
            bus.put(trio.current_time(), -1, Undelivered(bus._serial - 1), 0)
            await trio.sleep(0.5)  # of the test's clock: it is sent again
        assert there.peers.counts.messages_received > 1
        assert there.registry.statistics().kinds[KIND].depth == before == 0
        there.may_answer.set()
        await trio.sleep(1)
        assert asking.answers == ["there"]
        nursery.cancel_scope.cancel()


async def test_an_ask_to_a_server_that_is_away_for_a_moment_is_answered_when_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asking = Asking()
    asking.there.may_answer.set()
    async with trio.open_nursery() as nursery:
        await asking.run(nursery)
        bus = asking.network._buses["there"]
        bus.disconnect()
        nursery.start_soon(asking.ask)
        await trio.sleep(0.6)
        assert asking.answers == []
        assert asking.here.routes.owner(5) == "there", "the database has not said otherwise"
        bus.connect()
        await trio.sleep(0.5)
        assert asking.answers == ["there"]
        nursery.cancel_scope.cancel()


async def answer_after_a_move(error: Exception) -> Any:
    """What an asker is told when the turn of its ask ends with this error after the shard has left."""
    asking = Asking(answer=error)
    async with trio.open_nursery() as nursery:
        await asking.run(nursery)
        nursery.start_soon(asking.ask)
        await trio.testing.wait_all_tasks_blocked()
        asking.there.owned.remove([5])
        asking.there.may_answer.set()
        await trio.testing.wait_all_tasks_blocked()
        taken = list(asking.answers), asking.here.peers.counts.moved
        nursery.cancel_scope.cancel()
    return taken


async def test_an_error_of_another_actor_after_the_shard_has_left_is_an_unknown_outcome(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The turn may have committed something before it asked the other actor: the next owner must not repeat it."""
    for error in (ActorStoppedError("elsewhere"), stopped("workspace", ACTOR)):
        (answer,), moved = await answer_after_a_move(error)
        assert isinstance(answer, OutcomeUnknownError)
        assert moved == 0


async def test_an_ask_that_the_actors_own_mailbox_refused_is_sent_to_the_next_owner(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers, moved = await answer_after_a_move(stopped(KIND, ACTOR))
    assert (answers, moved) == ([], 1), "it waits for the next owner"


def test_numbers_go_on_when_a_server_is_missing_from_one_reading_of_the_leases() -> None:
    asking = Asking()
    here = asking.here
    here.routes.read({"here": [], "there": []})
    numbers = here.peers._frames
    assert [numbers.take("there", number) for number in (1, 2)] == [None, None]
    numbers.sent("there")
    here.peers._server_ended("there")
    assert numbers.take("there", 3) is None
    assert numbers.next_to("there") == 2


def test_missed_numbers_are_known_and_everything_is_bounded() -> None:
    numbers = FrameNumbers()
    assert numbers.take("a", 1) is None
    assert numbers.take("a", 4) == 2
    assert [numbers.has("a", number) for number in range(6)] == [False, True, False, False, True, False]
    assert numbers.take("a", 10**12) == 5
    assert not numbers.has("a", 10**12 - 1)
    assert numbers.has("a", 10**12 - MISSED_MAX - 1), "too long ago to say: not handled a second time"
    for server in range(SERVERS_MAX):
        numbers.sent(str(server))
    assert numbers.take("a", 1) is None, "forgotten"
