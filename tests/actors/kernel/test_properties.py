"""Whatever happens in whatever order: every ask is answered once, nothing admitted is lost, nothing is done twice."""

import logging
import random

import structlog
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.actors.kernel import KernelOptions, KindOptions, Lane, Registry, ReloadRequestedError, Sent
from sightline.domain.errors import OutcomeUnknownError, SightlineError, StoreUnavailableError

ERRORS = [
    None,
    ValueError("crash"),
    StoreUnavailableError("away"),
    OutcomeUnknownError("lost"),
    ReloadRequestedError("again", retry=True),
    ReloadRequestedError("again"),
]


class World:
    """What survives: how often each command took effect, and the faults to come."""

    def __init__(self, faults):
        self.faults = iter(faults)
        self.applied = {}
        self.answers = {}
        self.inside = 0

    def next_fault(self):
        return next(self.faults, None)


class Ledger:
    """Applies each command at most once, before or after a fault, as a store with command ids would."""

    def __init__(self, world, context):
        self.world = world

    async def load(self):
        await trio.sleep(0.01)
        error = self.world.next_fault()
        if error is not None:
            raise error

    async def handle(self, envelope):
        assert self.world.inside == 0, "turns overlap"
        self.world.inside += 1
        try:
            await trio.sleep(0.01)
            error = self.world.next_fault()
            if not isinstance(error, StoreUnavailableError | ReloadRequestedError):
                self.world.applied[envelope.message] = 1
            if error is not None:
                raise error
            envelope.reply(envelope.message, envelope.message)
        finally:
            self.world.inside -= 1

    def snapshot(self):
        return True

    def may_passivate(self):
        return True


FAULTS = st.lists(st.sampled_from(ERRORS), max_size=12)
STEPS = st.lists(
    st.sampled_from(["ask", "tell", "control", "pause", "stop", "revive", "leave", "impatient"]), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(faults=FAULTS, steps=STEPS, data_max=st.integers(1, 4), idle_s=st.sampled_from([0.0, 0.02, 100.0]))
def test_every_ask_is_answered_and_what_is_answered_is_true(faults, steps, data_max, idle_s):
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        trio.run(play, World(faults), steps, data_max, idle_s, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        structlog.reset_defaults()


async def play(world, steps, data_max, idle_s):
    registry = Registry(
        clock=type("Clock", (), {"now_ms": staticmethod(lambda: round(trio.current_time() * 1000))})(),
        rng=random.Random(1),
        options=KernelOptions(sweep_every_s=0.07),
    )
    registry.register("ledger", lambda context: Ledger(world, context), KindOptions(data_max=data_max, idle_s=idle_s))
    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            await nursery.start(registry.run)
            with trio.fail_after(100):
                async with trio.open_nursery() as asking:
                    tells = await act(world, registry, asking, steps)
            assert len(world.answers) == steps.count("ask") + steps.count("impatient")
            await registry.close(drain_s=100)
    check(world, registry, tells)


async def act(world, registry, nursery, steps):
    ref = registry.ref("ledger", "one")
    tells = {}

    async def ask(number, timeout_s):
        try:
            world.answers[number] = await ref.ask(number, timeout_s=timeout_s)
        except SightlineError as error:
            world.answers[number] = error

    for number, step in enumerate(steps):
        if step == "ask":
            nursery.start_soon(ask, number, 1_000)
        elif step == "impatient":
            nursery.start_soon(ask, number, 0.015)
        elif step == "tell":
            tells[number] = ref.tell(number)
        elif step == "control":
            tells[number] = ref.tell(number, lane=Lane.CONTROL)
        elif step == "pause":
            await trio.sleep(0.025)
        elif step == "stop":
            nursery.start_soon(registry.stop, "ledger", "one")
        elif step == "revive":
            nursery.start_soon(revive, registry)
    return tells


async def revive(registry):
    try:
        await registry.revive("ledger", "one")
    except SightlineError:
        return


def check(world, registry, tells):
    for number, answer in world.answers.items():
        if answer == number:
            assert number in world.applied, "an answered command took effect"
        elif isinstance(answer, SightlineError) and not isinstance(answer, OutcomeUnknownError):
            assert number not in world.applied, f"{answer!r} says that nothing happened"
    counts = registry.statistics().kinds["ledger"]
    lost = sum(1 for number, sent in tells.items() if sent is Sent.ADMITTED and number not in world.applied)
    assert lost <= counts.dead_letters, "an admitted tell took effect or is a dead letter"
    for number, sent in tells.items():
        if sent is not Sent.ADMITTED:
            assert number not in world.applied
