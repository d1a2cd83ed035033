"""A kernel on virtual time with one scripted kind of actor: a message is a function that the turn calls."""

import inspect
import logging
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog
import trio
import trio.testing

from sightline.actors.kernel import KernelOptions, KindOptions, Registry


def run_on_virtual_time(main, *, clock=None, instruments=()):
    """Run a test so that time jumps ahead whenever every task waits."""
    clock = clock or trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock, instruments=instruments)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.trio(run=run_on_virtual_time))


class WallClock:
    """Wall time that follows trio's clock and can be made to step."""

    def __init__(self):
        self.offset_ms = 1_700_000_000_000

    def now_ms(self):
        return self.offset_ms + round(trio.current_time() * 1000)


class Scripted:
    """Does what its messages say. Its memory is `value`; `stage.disk` is what survives."""

    def __init__(self, stage, context):
        self.stage = stage
        self.context = context
        self.value = 0
        self.kept = []
        self.passive = True
        stage.lives[context.id].append(self)

    async def load(self):
        for hook in self.stage.on_load:
            await hook(self)
        self.value = self.stage.disk[self.context.id]

    async def handle(self, envelope):
        message = envelope.message
        if callable(message):
            await message(self, envelope)
        else:
            self.stage.heard[self.context.id].append(message)
            envelope.reply(envelope.message, message)

    def save(self, value):
        self.value = self.stage.disk[self.context.id] = value

    def snapshot(self):
        return self.value

    def may_passivate(self):
        return self.passive


@dataclass
class Stage:
    clock: WallClock = field(default_factory=WallClock)
    disk: dict = field(default_factory=lambda: defaultdict(int))
    heard: dict = field(default_factory=lambda: defaultdict(list))
    lives: dict = field(default_factory=lambda: defaultdict(list))
    on_load: list = field(default_factory=list)
    registry: Registry = None

    def open(self, kernel=None, **kind):
        self.registry = Registry(clock=self.clock, rng=random.Random(7), options=kernel)
        self.registry.register("actor", self.make, KindOptions(**kind))
        return self

    def make(self, context):
        return Scripted(self, context)

    def ref(self, actor_id="a"):
        return self.registry.ref("actor", actor_id)

    def peek(self, actor_id="a"):
        return self.registry.peek("actor", actor_id)

    def counts(self):
        return self.registry.statistics().kinds["actor"]

    def now_ms(self):
        return self.clock.now_ms()


@pytest.fixture(autouse=True)
def quiet_log():
    """Keep crash reports, which these tests cause on purpose, out of the output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture
def make_stage(nursery):
    """Start a kernel with the given limits."""

    async def make(kernel=None, **kind):
        stage = Stage().open(kernel or KernelOptions(detect_ask_cycles=True), **kind)
        await nursery.start(stage.registry.run)
        return stage

    return make


@pytest.fixture
async def stage(make_stage):
    return await make_stage()


class Script:
    """Messages for the scripted actor."""

    @staticmethod
    def add(amount):
        async def message(actor, envelope):
            actor.save(actor.value + amount)
            envelope.reply(envelope.message, actor.value)

        return message

    @staticmethod
    def crash(error=None):
        async def message(actor, envelope):
            raise error or ValueError("boom")

        return message

    @staticmethod
    def wait_for(event, entered=None):
        async def message(actor, envelope):
            if entered is not None:
                entered.set()
            await event.wait()
            envelope.reply(envelope.message, "waited")

        return message

    @staticmethod
    def keep(entered=None):
        """Put the answer off to a later turn."""

        async def message(actor, envelope):
            actor.kept.append(envelope)
            if entered is not None:
                entered.set()

        return message

    @staticmethod
    def answer_kept(value):
        async def message(actor, envelope):
            for kept in actor.kept:
                kept.reply(kept.message, value)
            actor.kept.clear()
            envelope.reply(envelope.message, None)

        return message

    @staticmethod
    def call(function):
        async def message(actor, envelope):
            envelope.reply(envelope.message, function(actor))

        return message


@pytest.fixture
def script():
    return Script
