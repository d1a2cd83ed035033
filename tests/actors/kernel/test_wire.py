"""A wire sees every tell and nothing else, and decides what becomes of it."""

import random

import trio
import trio.testing

from sightline.actors.kernel import Envelope, Registry, Sent


class Twice:
    """Delivers every tell twice."""

    def __init__(self):
        self.carried = []

    def carry(self, ref, envelope, lane):
        self.carried.append(envelope.message)
        ref.receive(Envelope(envelope.message, envelope.enqueued_at), lane)
        return ref.receive(envelope, lane)


async def test_tells_pass_the_wire_and_asks_and_timers_do_not(make_stage, nursery):
    stage = await make_stage()
    wire = Twice()
    registry = Registry(clock=stage.clock, rng=random.Random(1), wire=wire)
    registry.register("actor", stage.make)
    await nursery.start(registry.run)
    ref = registry.ref("actor", "wired")
    assert ref.tell("told") is Sent.ADMITTED
    await ref.ask("asked", timeout_s=1)
    registry.timers.set(ref, stage.now_ms() + 1000, "due")
    await trio.sleep(2)
    assert stage.heard["wired"] == ["told", "told", "asked", "due"]
    assert wire.carried == ["told"]
