"""What every bus does: the one on NATS, and the one in memory that stands for it in simulations."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
import trio

from sightline.cluster.bus.memory import MemoryBus, MemoryNetwork
from sightline.cluster.bus.nats import NatsOptions, open_nats_bus
from sightline.ports.bus import Arrival, Bus, Interrupted, Received, Undelivered

from .nats_process import NatsProcess, until

QUEUE_BYTES = 4_000_000
KEY = b"k" * 32
_clusters = itertools.count()


class Network(Protocol):
    """Connects the buses under test."""

    async def join(self, incarnation: str) -> Bus: ...

    async def cut(self) -> None:
        """Cut all servers off. Returns when they know."""

    async def heal(self) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self._network = MemoryNetwork(queue_bytes_max=QUEUE_BYTES)
        self._buses: list[MemoryBus] = []

    async def join(self, incarnation: str) -> Bus:
        bus = self._network.join(incarnation)
        self._buses.append(bus)
        return bus

    async def cut(self) -> None:
        for bus in self._buses:
            bus.disconnect()

    async def heal(self) -> None:
        for bus in self._buses:
            bus.connect()


class OnNats:
    def __init__(self, server: NatsProcess, stack: AsyncExitStack) -> None:
        self._server = server
        self._stack = stack
        self._cluster = f"test{next(_clusters)}"
        self._buses: list[Bus] = []

    async def join(self, incarnation: str) -> Bus:
        options = NatsOptions(
            servers=(self._server.url,),
            cluster=self._cluster,
            key=KEY,
            incarnation=incarnation,
            outgoing_bytes_max=QUEUE_BYTES,
        )
        bus = await self._stack.enter_async_context(open_nats_bus(options))
        self._buses.append(bus)
        return bus

    async def cut(self) -> None:
        self._server.kill()
        await until(lambda: not any(bus.is_connected for bus in self._buses))

    async def heal(self) -> None:
        await trio.to_thread.run_sync(self._server.start)
        await until(lambda: all(bus.is_connected for bus in self._buses))


@pytest.fixture(params=["memory", "nats"])
async def network(request: pytest.FixtureRequest) -> AsyncIterator[Network]:
    if request.param == "memory":
        yield InMemory()
        return
    async with AsyncExitStack() as stack:
        yield OnNats(request.getfixturevalue("nats_server"), stack)


async def next_of(bus: Bus) -> Arrival:
    with trio.fail_after(60):
        return await bus.receive()


def sent_by_one(frame: bytes) -> Received:
    return Received(frame, "one")


async def test_frames_of_one_sender_arrive_in_order_and_name_it(network: Network) -> None:
    one, two = await network.join("one"), await network.join("two")
    for number in range(200):
        assert one.send("two", b"%d" % number) is not None
    assert [await next_of(two) for _ in range(200)] == [sent_by_one(b"%d" % number) for number in range(200)]


async def test_the_sender_learns_which_frame_had_no_receiver(network: Network) -> None:
    one, _ = await network.join("one"), await network.join("two")
    serials = [one.send("two", b"there"), one.send("gone", b"not there"), one.send("two", b"there")]
    assert None not in serials
    assert await next_of(one) == Undelivered(serials[1] or -1)


async def test_a_frame_of_the_maximum_size_arrives_and_a_larger_one_is_refused(network: Network) -> None:
    one, two = await network.join("one"), await network.join("two")
    largest = b"x" * one.frame_max
    assert one.send("two", largest + b"x") is None
    assert one.send("two", largest) is not None
    assert await next_of(two) == sent_by_one(largest)


async def test_frames_above_the_limit_of_the_queue_are_refused_and_others_arrive(network: Network) -> None:
    one, two = await network.join("one"), await network.join("two")
    # Without a checkpoint, so that no frame leaves the queue in between; NATS takes frames on a thread.
    sent = [number for number in range(500) if one.send("two", b"%6d" % number * 50_000) is not None]
    assert len(sent) < 500
    for number in sent:
        assert await next_of(two) == sent_by_one(b"%6d" % number * 50_000)
    assert one.send("two", b"afterwards") is not None
    assert await next_of(two) == sent_by_one(b"afterwards")


async def test_no_arrival_is_lost_when_its_reader_is_cancelled(network: Network) -> None:
    one, two = await network.join("one"), await network.join("two")
    arrived: list[Arrival] = []
    for number in range(100):
        one.send("two", b"%d" % number)
    with trio.fail_after(60):
        while len(arrived) < 100:
            with trio.move_on_after(0.000_1):
                while True:
                    arrived.append(await two.receive())
    assert arrived == [sent_by_one(b"%d" % number) for number in range(100)]


async def test_a_server_that_is_cut_off_is_told_so_and_its_frames_are_refused(network: Network) -> None:
    one, two = await network.join("one"), await network.join("two")
    one.send("two", b"before")
    assert await next_of(two) == sent_by_one(b"before")
    await network.cut()
    assert one.send("two", b"during") is None
    assert await next_of(one) == await next_of(two) == Interrupted()
    await network.heal()
    assert one.send("two", b"after") is not None
    assert two.send("one", b"back") is not None
    assert (await next_of(two), await next_of(one)) == (sent_by_one(b"after"), Received(b"back", "two"))
