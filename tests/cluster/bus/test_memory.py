"""The bus in memory: the faults that a simulation asks for."""

import random

import trio
import trio.testing

from sightline.cluster.bus.memory import MemoryNetwork
from sightline.ports.bus import Received, Undelivered


async def test_frames_of_a_pair_keep_their_order_whatever_their_delays(autojump_clock: trio.testing.MockClock) -> None:
    delays = random.Random(7)
    network = MemoryNetwork(lambda _sender, _receiver: delays.uniform(0.0, 1.0))
    one, two = network.join("one"), network.join("two")
    for number in range(100):
        one.send("two", b"%d" % number)
    assert [await two.receive() for _ in range(100)] == [Received(b"%d" % number, "one") for number in range(100)]
    assert 0.5 < trio.current_time() <= 1.0


async def test_a_route_drops_frames_in_one_direction() -> None:
    network = MemoryNetwork(lambda sender, _receiver: None if sender == "one" else 0.0)
    one, two = network.join("one"), network.join("two")
    assert one.send("two", b"lost") is not None
    network.route = lambda _sender, _receiver: 0.0
    one.send("two", b"arrives")
    assert await two.receive() == Received(b"arrives", "one")


async def test_frames_to_a_server_that_left_are_undelivered() -> None:
    network = MemoryNetwork()
    one = network.join("one")
    network.join("two")
    network.leave("two")
    serial = one.send("two", b"late")
    assert serial is not None
    assert await one.receive() == Undelivered(serial)
