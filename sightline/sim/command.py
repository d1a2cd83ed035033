"""The `simulate` command: runs worlds, reports the result, and prints how to reproduce a failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sightline.sim.scenarios import SCENARIOS
from sightline.sim.simulate import SERVERS, SEVERAL, Report, simulate, simulate_day, simulate_many
from sightline.system.clock import SystemClock


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """Which worlds to run.

    Attributes:
        seed: The world to run, or the first of `seeds`.
        seeds: Number of worlds; with 1 the world is described in full.
        scenario: A name of SCENARIOS, SERVERS or SEVERAL; None lets every seed choose its own.
        hours, operators, sessions: If `hours` is given, run one long day of this size instead.
        processes: Worlds that run in parallel; 0 is one per processor.
    """

    seed: int = 0
    seeds: int = 1
    scenario: str | None = None
    hours: float | None = None
    operators: int = 200
    sessions: int = 2000
    processes: int = 0


def run_simulation(options: SimulateOptions, say: Callable[[str], None]) -> int:
    """Run the worlds and print the results line by line.

    Returns:
        The exit code: 0 if every promise held, 1 if one was broken, 2 if the scenario is unknown.
    """
    if options.scenario is not None and options.scenario not in (*SCENARIOS, SERVERS, SEVERAL):
        say(f"unknown scenario; choose one of {', '.join((*SCENARIOS, SERVERS, SEVERAL))}")
        return 2
    if options.hours is not None:
        return _run_day(options, options.hours, say)
    if options.seeds == 1:
        return _run_one(options, say)
    return _run_many(options, say)


def _run_one(options: SimulateOptions, say: Callable[[str], None]) -> int:
    report = simulate(options.seed, scenario=options.scenario)
    _describe(report, say)
    return int(report.violation is not None)


def _describe(report: Report, say: Callable[[str], None]) -> None:
    if report.violation is not None:
        say(report.explained())
        return
    say(f"seed {report.seed} ({report.scenario}) held: {report.steps} steps in {report.virtual_s:.0f} virtual seconds")
    say(f"faults: {report.rates or 'none'}")
    say("counts: " + ", ".join(f"{kind} {count}" for kind, count in sorted(report.counts.items())))
    say(f"trace: {report.trace_hash}")


def _run_many(options: SimulateOptions, say: Callable[[str], None]) -> int:
    seeds = range(options.seed, options.seed + options.seeds)
    processes = options.processes or os.cpu_count() or 1
    summary = simulate_many(seeds, scenario=options.scenario, processes=processes)
    for failure in summary.failures:
        say(failure.explained())
    say(
        f"{summary.worlds} worlds, {summary.steps} steps, {summary.virtual_s / 3600:.1f} virtual hours in"
        f" {summary.real_s:.0f} s ({summary.virtual_hours_per_minute:.1f} virtual hours per real minute),"
        f" {len(summary.failures)} violations"
    )
    return int(bool(summary.failures))


def _run_day(options: SimulateOptions, hours: float, say: Callable[[str], None]) -> int:
    clock = SystemClock()
    began_ms = clock.now_ms()
    report = simulate_day(options.seed, hours=hours, operators=options.operators, sessions=options.sessions)
    minutes = max(clock.now_ms() - began_ms, 1) / 60_000
    _describe(report, say)
    say(f"{report.virtual_s / 3600 / minutes:.1f} virtual hours per real minute")
    return int(report.violation is not None)
