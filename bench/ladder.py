"""Measures five services with the same load, from the least that an HTTP service does to a full framework.

    python -m bench.ladder [--rounds 3] [--seconds 3] [--operators 10000] [--output bench/RESULTS-ladder.md]

A bare HTTP loop on trio; a service in Go with group commit; the same with one INSERT per heartbeat; Sightline; FastAPI
with asyncpg. They are measured one after another in each round, in the opposite order in every second round, while the
others are paused with SIGSTOP. Go and FastAPI share a Postgres and its tables; Sightline has one of the same version
and settings. CPU is that of the serving process per answer, from /proc; each ratio is to Sightline's CPU in the same
round.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import asyncpg
import uvloop

from bench.run import Result, alone, load, surroundings
from bench.servers import (
    ROOT,
    Target,
    fastapi,
    fastapi_sessions,
    populate_fastapi,
    populate_sightline,
    sightline,
    sightline_sessions,
)

GO = ROOT / ".interop/bench-go/service"
COMMITTERS = 12
HEADS = ("work", "service", "per second", "p95 ms", "CPU us", "CPU / Sightline's (spread)")


@contextlib.asynccontextmanager
async def program(name: str, command: list[str], log_path: Path, env: dict[str, str]) -> AsyncIterator[Target]:
    """Run a baseline that prints `ready HOST:PORT`."""
    with log_path.open("ab") as log_file:
        process = subprocess.Popen(  # noqa: ASYNC220 (nobody else is served meanwhile)
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log_file, cwd=ROOT, env=os.environ | env
        )
    assert process.stdout is not None
    try:
        line = (await asyncio.to_thread(process.stdout.readline)).decode()
        if not line.startswith("ready "):
            raise RuntimeError(f"{name} is not ready; see {log_path}")
        yield Target(name, int(line.rsplit(":", 1)[1]), process)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 30)


class Ladder:
    """The services and their results: by row, then by service."""

    def __init__(self, targets: list[Target], options: argparse.Namespace) -> None:
        self.targets = targets
        self.options = options
        self.results: dict[str, dict[str, list[Result]]] = {}
        self._orders = itertools.cycle((targets, targets[::-1]))

    async def measure(self, work: str, job: Callable[[Target], Awaitable[Result]], *, without: str = "") -> None:
        """Measure a row with every service but `without`."""
        runs = self.results.setdefault(work, {each.name: [] for each in self.targets if each.name != without})
        for _ in range(self.options.rounds):
            for target in next(self._orders):
                if target.name == without:
                    continue
                with alone(target, self.targets):
                    await asyncio.sleep(0.3)
                    result = await job(target)
                assert set(result["statuses"]) == {"200"}, (work, target.name, result)
                runs[target.name].append(result)
                print(f"  {work}: {target.name}: {result['per_s']:,.0f}/s cpu {result['cpu_us']:.0f} us", flush=True)

    def lines(self) -> list[str]:
        """The table."""
        lines = []
        for work, runs in self.results.items():
            for name, results in runs.items():
                pairs = zip(results, runs["sightline"], strict=True)
                ratios = [mine["cpu_us"] / ours["cpu_us"] for mine, ours in pairs]
                spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                rate, p95, cpu = (
                    statistics.median(each[key] for each in results) for key in ("per_s", "p95", "cpu_us")
                )
                lines.append(f"| {work} | {name} | {rate:,.0f} | {p95:.1f} | {cpu:.0f} | {spread} |")
        return lines


async def commits_per_s(dsn: str, seconds: float) -> float:
    """Count the commits of one row each that the disk of this Postgres takes a second, from several connections."""
    deadline, done = time.perf_counter() + seconds, 0

    async def commit() -> None:
        nonlocal done
        connection = await asyncpg.connect(dsn)
        workspace = uuid4()
        insert = "INSERT INTO heartbeat (workspace_id, sequence, lat, lng, accuracy_meters) VALUES ($1, $2, 0, 0, 5)"
        statement = await connection.prepare(insert)
        for sequence in itertools.count():
            if time.perf_counter() >= deadline:
                break
            await statement.fetch(workspace, sequence)
            done += 1
        await connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(commit() for _ in range(COMMITTERS)))
    return done / (time.perf_counter() - began)


async def main(options: argparse.Namespace) -> None:
    """Run the ladder and write its table."""
    directory = Path(tempfile.mkdtemp(prefix="sightline-ladder-"))
    print(f"logs and data in {directory}", flush=True)
    build = ["bash", str(ROOT / "scripts/build_go.sh"), "bench/baselines/go", str(GO.relative_to(ROOT))]
    subprocess.run(build, check=True, cwd=ROOT)  # noqa: ASYNC221 (nobody else is served meanwhile)
    python = [sys.executable, "-m", "bench.baselines.bare_trio"]
    async with (
        sightline(directory) as ours,
        fastapi(directory) as base,
        program(
            "Go, group commit", [str(GO), "-group"], directory / "go-group.log", {"BENCH_DSN": base.cookie}
        ) as group,
        program("Go", [str(GO)], directory / "go.log", {"BENCH_DSN": base.cookie}) as plain,
        program("bare trio loop", python, directory / "bare.log", {}) as bare,
    ):
        print(f"setting up {options.operators:,} operators through the API", flush=True)
        await populate_sightline(ours, operators=options.operators, devices=64)
        await populate_fastapi(base, ours)
        for target in (group, plain, bare):
            target.consumer, target.devices = base.consumer, base.devices
        ladder = Ladder([bare, group, plain, ours, base], options)
        theirs = await fastapi_sessions(base, 50)
        ids = {each.name: theirs for each in ladder.targets} | {ours.name: await sightline_sessions(ours, 50)}

        async def post(target: Target) -> Result:
            return await load(target, kind="closed", connections=64, seconds=options.seconds, devices=target.devices)

        async def get(target: Target) -> Result:
            key = target.consumer["key"]
            wanted = [{"method": "GET", "path": f"/api/v1/sessions/{each}", "key": key} for each in ids[target.name]]
            return await load(target, kind="closed", connections=32, seconds=options.seconds, requests=wanted)

        async def dispatch(target: Target) -> Result:
            make, owner = (sightline_sessions, ours) if target is ours else (fastapi_sessions, base)
            key = target.consumer["key"]
            wanted = [
                {"method": "POST", "path": f"/api/v1/sessions/{each}/dispatch", "key": key}
                for each in await make(owner, options.dispatches)
            ]
            result = await load(target, kind="once", connections=16, requests=wanted)
            operators = result.pop("operators")
            assert len(set(operators.values())) == len(operators) == options.dispatches, result
            return result

        await ladder.measure("POST heartbeat, durable", post)
        await ladder.measure("GET session", get)
        await ladder.measure(f"dispatch, {options.operators:,} operators", dispatch, without=bare.name)
        commits = await commits_per_s(base.cookie, options.seconds)
    lines = ["# Results of `python -m bench.ladder`", ""]
    lines += [f"- {line}" for line in surroundings(options, "bench.ladder")]
    lines += [f"- Postgres on this disk, without a service: {commits:,.0f} commits of one row a second"]
    lines += ["", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}", *ladder.lines(), ""]
    lines += [" ".join(__doc__.split("\n\n")[2].split())]
    options.output.write_text("\n".join(lines) + "\n")
    print(options.output.read_text())


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.ladder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--operators", type=int, default=10_000)
    parser.add_argument("--dispatches", type=int, default=800)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "RESULTS-ladder.md")
    options = parser.parse_args(arguments)
    options.arguments = arguments
    options.load_average = os.getloadavg()[0]
    return options


if __name__ == "__main__":
    uvloop.run(main(parsed(sys.argv[1:])))
