"""Scenarios: the clients of a simulated world and their behaviour. Each starts its tasks in the world's nursery."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, final

import trio

from sightline.domain.value import replace
from simulation.clients.consumer import Consumer, Wishes
from simulation.clients.device import Device, Habits
from simulation.clients.founder import Founder
from simulation.clients.reader import Reader
from simulation.faults import FaultRates
from simulation.world import WorldOptions

if TYPE_CHECKING:
    from simulation.world import World

Play: TypeAlias = "Callable[[World], Awaitable[None]]"


def populate(world: World, *, operators: int, consumers: int, habits: Habits, wishes: Wishes) -> None:
    """Start operators and consumers."""
    for index in range(operators):
        world.nursery.start_soon(Device(world, f"operator-{index}", habits).run)
    for index in range(consumers):
        world.nursery.start_soon(Consumer(world, f"consumer-{index}", wishes).run)


async def city(world: World) -> None:
    """A few operators and consumers; each device has its own habits."""
    rng = world.rng("city")
    for index in range(rng.randint(1, 4)):
        habits = Habits(
            flaps=rng.choice((0.0, 0.0, 0.05)),
            flap_s=rng.choice((8.0, 30.0, 90.0)),
            jumps=rng.choice((0.0, 0.0, 0.05)),
            wanders=rng.choice((0.0, 0.0, 0.02)),
            mumbles=rng.choice((0.0, 0.0, 0.2)),
            ignores=rng.choice((0.0, 0.3)),
            drops=rng.choice((0.0, 0.1)),
            hangs_up=rng.choice((0.0, 0.05)),
            grabs=rng.choice((0.0, 0.3)),
            stutters=rng.choice((0.0, 0.05)),
            duplicates=rng.choice((0.0, 0.1)),
        )
        world.nursery.start_soon(Device(world, f"operator-{index}", habits).run)
    populate(world, operators=0, consumers=rng.randint(1, 4), habits=Habits(), wishes=Wishes())


async def flapping_phones(world: World) -> None:
    """Devices that stop sending and return, around the limits at which the meter pauses and sessions end."""
    habits = Habits(flaps=0.08, flap_s=world.rng("flap").choice((9.0, 14.0, 75.0)), stutters=0.05, duplicates=0.2)
    populate(world, operators=2, consumers=2, habits=habits, wishes=Wishes(duration_s=(30, 240), hangs_up=0.3))


async def gps_jumps(world: World) -> None:
    """Devices whose fixes jump, leave the fence and lose accuracy."""
    habits = Habits(jumps=0.2, wanders=0.05, mumbles=0.2)
    populate(world, operators=2, consumers=2, habits=habits, wishes=Wishes(duration_s=(30, 120), hangs_up=0.3))


async def steady(world: World) -> None:
    """Devices without faults: faults of the server alone must not cost clean time."""
    populate(world, operators=3, consumers=3, habits=Habits(), wishes=Wishes(duration_s=(20, 90)))


async def mass_dispatch(world: World) -> None:
    """Many consumers request the few operators at the same instant, repeatedly."""
    wishes = Wishes(duration_s=(5, 15), wait_s=(10, 30), pause_s=0.5, quotes=0.0, withdraws=0.0, poll_s=1.0)
    populate(world, operators=4, consumers=10, habits=Habits(grabs=0.1), wishes=wishes)


async def revoked_allowance(world: World) -> None:
    """Holds are enforced, and the wallets' balances and allowances change."""
    wishes = Wishes(duration_s=(10, 60), pause_s=2.0, quotes=0.5)
    populate(world, operators=2, consumers=3, habits=Habits(), wishes=wishes)

    async def fickle_wallets() -> None:
        rng = world.rng("wallets")
        while True:
            await trio.sleep(5)
            for workspace in list(world.history.workspaces.values()):
                await world.set_funds(workspace.wallet_address, rng.choice((0, 30_000, 200_000)))

    world.nursery.start_soon(fickle_wallets)


async def cluster(world: World) -> None:
    """A few operators and consumers in a service of several servers, and readers that compare answers."""
    rng = world.rng("cluster people")
    habits = Habits(flaps=rng.choice((0.0, 0.0, 0.02)), drops=rng.choice((0.0, 0.05)), grabs=rng.choice((0.0, 0.1)))
    short = Wishes(duration_s=(10, 40), pause_s=2.0, hangs_up=0.4, forgets=0.3, quotes=0.2)
    long = Wishes(duration_s=(90, 150), pause_s=2.0, hangs_up=0.1, quotes=0.0, withdraws=0.0)
    populate(world, operators=rng.randint(4, 6), consumers=rng.randint(1, 3), habits=habits, wishes=short)
    for number in range(3):
        world.nursery.start_soon(Consumer(world, f"patient-{number}", long).run)
    for number in range(2):
        world.nursery.start_soon(Reader(world, f"reader-{number}").run)
        world.nursery.start_soon(Founder(world, f"founder-{number}").run)


def long_day(*, hours: float, operators: int, sessions: int) -> Scenario:
    """A city over a long time: this many operators, sessions spread over it, and a server that crashes hourly."""
    consumers = max(1, min(sessions, 2 * operators))
    each = max(1, round(sessions / consumers))
    wishes = Wishes(
        pause_s=2 * hours * 3600 / each, sessions_max=each, duration_s=(60, 600), wait_s=(30, 300), poll_s=5.0
    )
    habits = Habits(
        idle_beat_s=30.0, looks_s=None, flaps=0.001, jumps=0.005, wanders=0.001, mumbles=0.01, ignores=0.02,
        stutters=0.002, duplicates=0.01,
    )  # fmt: skip
    rates = FaultRates(
        store_refused=0.001, store_unknown_applied=0.0005, store_unknown_lost=0.0005, read_refused=0.001,
        slow=0.002, slow_s=4.0, relations_refused=0.002, video_refused=0.01, video_hangs=0.001, duplicate=0.01,
        late=0.01, crash_every_s=3600.0, pause_every_s=5400.0,
    )  # fmt: skip

    async def play(world: World) -> None:
        populate(world, operators=operators, consumers=consumers, habits=habits, wishes=wishes)

    return Scenario(play, options=WorldOptions(active_s=hours * 3600), adjust=lambda _drawn: rates)


@final
class Scenario:
    """A scenario and its world options."""

    def __init__(self, play: Play, *, options: WorldOptions | None = None, adjust: Callable[[FaultRates], FaultRates]):
        self.play = play
        self.options = options or WorldOptions()
        self.adjust = adjust
        """Changes the rates that the seed drew."""


def _as_drawn(rates: FaultRates) -> FaultRates:
    return rates


def _stormy(rates: FaultRates) -> FaultRates:
    return replace(rates, crash_every_s=8.0, pause_every_s=45.0, slow_s=0.5)


def _mild(rates: FaultRates) -> FaultRates:
    """Make faults of single calls rare. This scenario is about faults between servers."""
    return replace(
        rates,
        store_refused=rates.store_refused / 10,
        store_unknown_applied=rates.store_unknown_applied / 10,
        store_unknown_lost=rates.store_unknown_lost / 10,
        read_refused=rates.read_refused / 10,
        crash_every_s=0.0,
        pause_every_s=0.0,
    )


CLUSTER: Final = Scenario(cluster, options=WorldOptions(active_s=60, is_cluster=True), adjust=_mild)
"""Several servers; no seed chooses it by itself."""

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "city": Scenario(city, adjust=_as_drawn),
    "flapping-phones": Scenario(flapping_phones, adjust=_as_drawn),
    "gps-jumps": Scenario(gps_jumps, adjust=_as_drawn),
    "steady": Scenario(steady, adjust=_as_drawn),
    "mass-dispatch": Scenario(mass_dispatch, options=WorldOptions(active_s=60), adjust=_as_drawn),
    "revoked-allowance": Scenario(revoked_allowance, options=WorldOptions(funds_policy="enforced"), adjust=_as_drawn),
    "restart-storm": Scenario(steady, options=WorldOptions(active_s=120), adjust=_stormy),
}


def scenario_of(seed: int) -> str:
    """Return the scenario that a seed runs if none is named."""
    names = list(SCENARIOS)
    return names[seed % len(names)]
