"""Run worlds: one seed, many seeds in several processes, or one long day."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from msgspec import field

from sightline.domain.value import Value, replace
from sightline.system.clock import SystemClock
from simulation.checkers import Checker
from simulation.faults import FaultRates
from simulation.runtime import run_virtual, silenced_logs
from simulation.scenarios import CLUSTER, SCENARIOS, Scenario, long_day, scenario_of
from simulation.servers.world import ACTIVE_S, BALANCED_S, simulate_servers
from simulation.trace import Violation
from simulation.world import World

SERVERS: Final = "servers"
"""The scenario of several servers with counters as actors; no seed chooses it by itself."""
SEVERAL: Final = "cluster"
"""The scenario of a whole service of several servers; no seed chooses it by itself."""


@final
class Report(Value, kw_only=True):
    """Result of one world."""

    seed: int
    scenario: str
    violation: Violation | None
    trace_hash: str
    steps: int
    virtual_s: float
    rates: str
    counts: dict[str, int] = field(default_factory=dict)
    tail: tuple[str, ...] = ()
    traceback: str = ""
    repeat: str
    """Return the command that runs the same world again."""

    def explained(self) -> str:
        """Describe a failure: what broke, when, with which faults, the steps before it, and how to repeat it."""
        lines = [f"seed {self.seed} ({self.scenario}) broke: {self.violation}", f"faults: {self.rates or 'none'}"]
        lines += ["last steps:", *(f"  {line}" for line in self.tail)]
        if self.traceback:
            lines.append(self.traceback)
        return "\n".join([*lines, f"repeat it: {self.repeat}"])


@final
class Summary(Value, kw_only=True):
    """Result of many worlds."""

    worlds: int
    steps: int
    virtual_s: float
    real_s: float
    failures: tuple[Report, ...]

    @property
    def virtual_hours_per_minute(self) -> float:
        """Virtual hours simulated per real minute."""
        return (self.virtual_s / 3600) / max(self.real_s / 60, 1e-9)


def play(
    seed: int,
    scenario: Scenario,
    *,
    name: str,
    rates: FaultRates | None = None,
    checkers: Sequence[Checker] = (),
) -> Report:
    """Run one world to its end, or to its first violation.

    Args:
        rates: Faults to use instead of those that the seed draws and the scenario changes.
        checkers: Checkers besides Sightline's own; create new objects for every world.
    """
    worlds: list[World] = []

    async def main() -> float:
        world = World(seed, scenario.options, checkers)
        worlds.append(world)
        drawn = rates if rates is not None else scenario.adjust(world.faults.rates)
        world.faults.rates = drawn
        await world.run(scenario.play)
        return (world.clock.now_ms() - world.born_ms) / 1000

    with silenced_logs():
        virtual_s = run_virtual(seed, main)
    history = worlds[0].history
    return Report(
        seed=seed,
        scenario=name,
        violation=history.violation,
        trace_hash=history.trace_hash,
        steps=history.steps,
        virtual_s=virtual_s,
        rates=worlds[0].faults.rates.described(),
        counts=dict(history.counts),
        tail=history.tail if history.violation is not None else (),
        traceback=worlds[0].report,
        repeat=f"python -m simulation --seed {seed}" + (f" --scenario {name}" if name in (*SCENARIOS, SEVERAL) else ""),
    )


def simulate(
    seed: int, *, scenario: str | None = None, active_s: float | None = None, rates: FaultRates | None = None
) -> Report:
    """Run the world of a seed; the seed chooses scenario and faults unless they are given."""
    if scenario == SERVERS:
        return _simulate_servers(seed)
    name = scenario or scenario_of(seed)
    chosen = CLUSTER if name == SEVERAL else SCENARIOS[name]
    if active_s is not None:
        options = replace(chosen.options, active_s=active_s)
        chosen = Scenario(chosen.play, options=options, adjust=chosen.adjust)
    return play(seed, chosen, name=name, rates=rates)


def _simulate_servers(seed: int) -> Report:
    world = simulate_servers(seed)
    return Report(
        seed=seed,
        scenario=SERVERS,
        violation=world.violation,
        trace_hash=world.trace_hash,
        steps=world.steps,
        virtual_s=ACTIVE_S + BALANCED_S,
        rates="",
        counts=world.counts,
        tail=world.tail,
        repeat=f"python -m simulation --seed {seed} --scenario {SERVERS}",
    )


def simulate_day(seed: int, *, hours: float, operators: int, sessions: int) -> Report:
    """Run one long world: this many operators and sessions over this many virtual hours."""
    day = long_day(hours=hours, operators=operators, sessions=sessions)
    report = play(seed, day, name="day")
    return replace(report, repeat=f"{report.repeat} --hours {hours} --operators {operators} --sessions {sessions}")


def simulate_many(
    seeds: Iterable[int], *, scenario: str | None = None, processes: int = 1, failures_max: int = 5
) -> Summary:
    """Run many worlds; stops after a few failures."""
    clock = SystemClock()
    began_ms = clock.now_ms()
    worlds, steps, virtual_s = 0, 0, 0.0
    failures: list[Report] = []
    for report in _reports(seeds, scenario, processes):
        worlds += 1
        steps += report.steps
        virtual_s += report.virtual_s
        if report.violation is not None:
            failures.append(report)
            if len(failures) >= failures_max:
                break
    return Summary(
        worlds=worlds,
        steps=steps,
        virtual_s=virtual_s,
        real_s=(clock.now_ms() - began_ms) / 1000,
        failures=tuple(failures),
    )


def _reports(seeds: Iterable[int], scenario: str | None, processes: int) -> Iterator[Report]:
    jobs = ((seed, scenario) for seed in seeds)
    if processes <= 1:
        yield from map(_simulate_job, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_simulate_job, jobs, chunksize=4)


def _simulate_job(job: tuple[int, str | None]) -> Report:
    return simulate(job[0], scenario=job[1])
