"""One bad frame of another server ends that frame only: whatever it holds, the server goes on and counts it."""

import math
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sightline.actors.messages import RatesSpent, ShardsTaken
from sightline.cluster.bus.memory import MemoryNetwork
from sightline.cluster.peers import codec
from sightline.cluster.peers.peers import ANSWER, ASK, ERROR, MOVED, SERVER_ASK, SERVER_TELL, TELL
from sightline.ports.leases import WIRE

from .test_peers import ACTOR, KIND, Ask, Server

TAKEN = codec.pack(ShardsTaken((5,)))
SOUND: list[list[Any]] = [
    [ASK, 1, str(KIND), ACTOR, False, None, 1_000, codec.pack(Ask()), 0],
    [TELL, str(KIND), ACTOR, False, None, 0, codec.pack(Ask()), 0],
    [ANSWER, 1, TAKEN],
    [ERROR, 1, [1, "later", 1]],
    [MOVED, 1],
    [SERVER_ASK, 1, 1_000, codec.pack(Ask())],
    [SERVER_TELL, TAKEN],
]
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 5, 2**63, math.nan, math.inf, -math.inf])
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)
FRAMES = st.one_of(
    st.binary(max_size=200),
    st.builds(codec.encode, ODD),
    st.builds(codec.encode, st.tuples(st.just(WIRE.last), ODD, ODD)),
    # A sound item with one part of a wrong type, a truncated one, and one of a wrong length.
    st.builds(
        lambda item, at, odd: codec.encode([WIRE.last, 0, [[odd if n == at else part for n, part in enumerate(item)]]]),
        st.sampled_from(SOUND), st.integers(0, 8), ODD,
    ),
    st.builds(
        lambda item, at: codec.encode([WIRE.last, 0, [item]])[:at], st.sampled_from(SOUND), st.integers(0, 80)
    ),
    st.builds(
        lambda item, at, more: codec.encode([WIRE.last, 0, [[*item[:at], *more]]]),
        st.sampled_from(SOUND), st.integers(0, 8), st.lists(ODD, max_size=3),
    ),
)  # fmt: skip


async def answered(_: Ask) -> str:
    await trio.lowlevel.checkpoint()
    return "an answer"


async def goes_on(here: Server, network: MemoryNetwork, frames: list[bytes]) -> None:
    """Send these frames to a server, then a sound one, which it must take."""
    sender = network.join("there")
    here.may_answer.set()
    here.owned.add({5: 1})
    async with trio.open_nursery() as nursery:
        await here.run(nursery)
        for frame in frames:
            sender.send("here", frame)
        await trio.testing.wait_all_tasks_blocked()
        sender.send("here", codec.encode([WIRE.last, 0, [[SERVER_TELL, codec.pack(ShardsTaken((77,)))]]]))
        await trio.testing.wait_all_tasks_blocked()
        assert here.routes.owner(77) == "there"
        nursery.cancel_scope.cancel()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAMES, max_size=8))
def test_a_server_takes_sound_frames_after_any_other_ones(frames: list[bytes]) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        here = Server(network, "here")
        here.peers.answer(Ask, answered)
        await goes_on(here, network, frames)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("depth", [1, 5_000])
async def test_nested_values_and_absurd_lengths_are_refused(autojump_clock: trio.testing.MockClock, depth: int) -> None:
    network = MemoryNetwork()
    here = Server(network, "here")
    nested = b"\x91\x01" * depth
    bad = [nested, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x94\x01\xa1x\x00\x05", b""]
    structlog.reset_defaults()
    with capture_logs() as logs:
        await goes_on(here, network, bad)
    assert here.peers.counts.refused["frame"] == len(bad)
    assert [entry["event"] for entry in logs].count("frame_not_understood") == 1, "one line for each reason"


async def test_a_listener_that_cannot_handle_a_message_ends_that_message_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    here = Server(network, "here")
    here.peers.listen(RatesSpent, lambda _, news: list(news.spent))
    wrong = [[SERVER_TELL, codec.pack(RatesSpent(5))]]  # type: ignore[arg-type]  # no list
    await goes_on(here, network, [codec.encode([WIRE.last, 0, wrong])])
    assert here.peers.counts.refused["item"] == 1
