"""`python -m simulation`: runs worlds, reports the result, and prints how to reproduce a failure."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sightline.system.clock import SystemClock
from simulation.scenarios import SCENARIOS
from simulation.simulate import SERVERS, SEVERAL, Report, simulate, simulate_day, simulate_many


def run(
    seed: Annotated[int, typer.Option(help="Seed of the world, or the first of --seeds.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of worlds; with 1 the world is described in full.")] = 1,
    scenario: Annotated[str | None, typer.Option(help="Scenario to run; default: chosen by each seed.")] = None,
    hours: Annotated[float | None, typer.Option(help="Run one long simulation of this many virtual hours.")] = None,
    operators: Annotated[int, typer.Option(min=1, help="Operators in the long simulation.")] = 200,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions in the long simulation.")] = 2000,
    processes: Annotated[int, typer.Option(min=0, help="Worlds in parallel; 0: one per processor.")] = 0,
) -> None:
    """Simulate whole servers on virtual time with injected faults, and check every invariant after every step.

    Exit code 0 means that every promise held, 1 that one was broken, 2 that the scenario is unknown.
    """
    if scenario is not None and scenario not in (*SCENARIOS, SERVERS, SEVERAL):
        raise typer.BadParameter(f"choose one of {', '.join((*SCENARIOS, SERVERS, SEVERAL))}", param_hint="--scenario")
    if hours is not None:
        held = _run_day(seed, hours, operators, sessions)
    elif seeds == 1:
        held = _run_one(seed, scenario)
    else:
        held = _run_many(range(seed, seed + seeds), scenario, processes or os.cpu_count() or 1)
    raise typer.Exit(0 if held else 1)


def _run_one(seed: int, scenario: str | None) -> bool:
    report = simulate(seed, scenario=scenario)
    _describe(report)
    return report.violation is None


def _describe(report: Report) -> None:
    if report.violation is not None:
        typer.echo(report.explained())
        return
    typer.echo(
        f"seed {report.seed} ({report.scenario}) held: {report.steps} steps in {report.virtual_s:.0f} virtual seconds"
    )
    typer.echo(f"faults: {report.rates or 'none'}")
    typer.echo("counts: " + ", ".join(f"{kind} {count}" for kind, count in sorted(report.counts.items())))
    typer.echo(f"trace: {report.trace_hash}")


def _run_many(seeds: range, scenario: str | None, processes: int) -> bool:
    summary = simulate_many(seeds, scenario=scenario, processes=processes)
    for failure in summary.failures:
        typer.echo(failure.explained())
    typer.echo(
        f"{summary.worlds} worlds, {summary.steps} steps, {summary.virtual_s / 3600:.1f} virtual hours in"
        f" {summary.real_s:.0f} s ({summary.virtual_hours_per_minute:.1f} virtual hours per real minute),"
        f" {len(summary.failures)} violations"
    )
    return not summary.failures


def _run_day(seed: int, hours: float, operators: int, sessions: int) -> bool:
    clock = SystemClock()
    began_ms = clock.now_ms()
    report = simulate_day(seed, hours=hours, operators=operators, sessions=sessions)
    minutes = max(clock.now_ms() - began_ms, 1) / 60_000
    _describe(report)
    typer.echo(f"{report.virtual_s / 3600 / minutes:.1f} virtual hours per real minute")
    return report.violation is None


if __name__ == "__main__":
    typer.run(run)
