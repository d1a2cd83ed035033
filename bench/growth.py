"""Measures whether a call costs more with more tenants: `python -m bench.growth [--sizes 1000,10000]`.

One server per size, each with as many ONLINE operators as open sessions, all created through the API. The servers take
turns within a round while the others are stopped, so that the ratios hold on a machine with other load. Density is the
same at each size (operators and sessions are spread over a larger region), because a quote counts the operators around
its point. Sessions are read in random order over all of them. CPU is that of the server's process, without Postgres.
With 100,000 of each, creating them takes about ten minutes and the server 1 GB.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import os
import random
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.run import Result, alone, load, surroundings
from bench.servers import PLACE, ROOT, Target, populate_sightline, sightline, sightline_sessions

SEED: Final = 1
DEVICES: Final = 64
READ: Final = 20_000
"""Sessions of one round of reads; each connection begins at another one."""

Job = Callable[["Grown"], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Grown:
    """A server with this many operators and sessions."""

    target: Target
    size: int
    sessions: list[str]
    start_kb: int
    """Resident memory before there was a tenant."""

    @property
    def spread(self) -> float:
        """Sides of the region of this size, in those of the region of 1,000."""
        return math.sqrt(self.size / 1_000)

    def key(self) -> str:
        """The consumer's key."""
        return self.target.consumer["key"]


async def grown(target: Target, size: int) -> Grown:
    """Create the tenants of one size."""
    start_kb, spread = target.rss_kb(), math.sqrt(size / 1_000)
    await populate_sightline(target, operators=size, devices=DEVICES, spread=spread)
    return Grown(target, size, await sightline_sessions(target, size, spread=spread), start_kb)


class Growth:
    """The jobs, and their results by job and size."""

    def __init__(self, servers: list[Grown], options: argparse.Namespace) -> None:
        self._servers = servers
        self._options = options
        self._targets = [each.target for each in servers]
        self._dice = random.Random(SEED)
        self.results: dict[str, dict[int, list[Result]]] = {}

    async def measure(self, work: str, job: Job) -> None:
        """Run one job on each server in turn, in each round in the reverse order of the round before."""
        runs = self.results.setdefault(work, {each.size: [] for each in self._servers})
        orders = itertools.cycle((self._servers, self._servers[::-1]))
        for order in itertools.islice(orders, self._options.rounds):
            for server in order:
                with alone(server.target, self._targets):
                    await asyncio.sleep(0.3)
                    result = await job(server)
                assert set(result["statuses"]) == {"200"}, (work, server.size, result["statuses"])
                runs[server.size].append(result)
                print(f"  {work}, {server.size:,}: {result['per_s']:,.0f}/s, {result['cpu_us']:.0f} us", flush=True)

    async def post(self, server: Grown) -> Result:
        """Send heartbeats, one device a connection."""
        devices = server.target.devices
        return await load(
            server.target, kind="closed", connections=DEVICES, seconds=self._options.seconds, devices=devices
        )

    async def get(self, server: Grown) -> Result:
        """Read sessions in random order."""
        ids = self._dice.sample(server.sessions, min(READ, len(server.sessions)))
        return await self._reads(server, [f"/api/v1/sessions/{each}" for each in ids])

    async def page(self, server: Grown) -> Result:
        """Read the first page of the consumer's sessions."""
        return await self._reads(server, ["/api/v1/sessions?limit=20"])

    async def quote(self, server: Grown) -> Result:
        """Ask for the price in the middle of the region."""
        return await self._reads(
            server, [f"/api/v1/pricing/quote?lat={PLACE['lat']}&lng={PLACE['lng']}&durationSeconds=600"]
        )

    async def _reads(self, server: Grown, paths: list[str]) -> Result:
        wanted = [{"method": "GET", "path": path, "key": server.key()} for path in paths]
        return await load(server.target, kind="closed", connections=32, seconds=self._options.seconds, requests=wanted)

    async def dispatch(self, server: Grown) -> Result:
        """Dispatch new sessions; every operator is ONLINE, and none is assigned twice."""
        count = self._options.dispatches
        wanted = [
            {"method": "POST", "path": f"/api/v1/sessions/{each}/dispatch", "key": server.key()}
            for each in await sightline_sessions(server.target, count, spread=server.spread)
        ]
        result = await load(server.target, kind="once", connections=16, requests=wanted)
        operators = result.pop("operators")
        assert len(set(operators.values())) == len(operators) == count, result
        return result

    def lines(self) -> list[str]:
        """The table."""
        least, *more = [each.size for each in self._servers]
        head = [f"CPU us, {least:,}", *(f"CPU us, {size:,} (ratio, spread)" for size in more)]
        lines = [f"| work | {' | '.join(head)} |", f"|{'---|' * (1 + len(head))}"]
        for work, runs in self.results.items():
            cells = [f"{statistics.median(each['cpu_us'] for each in runs[least]):.0f}"]
            for size in more:
                pairs = zip(runs[size], runs[least], strict=True)
                ratios = [mine["cpu_us"] / first["cpu_us"] for mine, first in pairs]
                cpu = statistics.median(each["cpu_us"] for each in runs[size])
                cells.append(f"{cpu:.0f} ({statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f})")
            lines.append(f"| {work} | {' | '.join(cells)} |")
        each_kb = [f"{(each.target.rss_kb() - each.start_kb) / each.size:.1f}" for each in self._servers]
        lines.append(f"| memory of an operator and a session, KB | {' | '.join(each_kb)} |")
        return lines


async def main(options: argparse.Namespace) -> None:
    """Create the tenants, run the jobs, print the table."""
    directory = Path(tempfile.mkdtemp(prefix="sightline-growth-"))
    print(f"logs and data in {directory}", flush=True)
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for size in options.sizes:
            (directory / str(size)).mkdir()
            target = await stack.enter_async_context(sightline(directory / str(size)))
            print(f"creating {size:,} operators and sessions", flush=True)
            servers.append(await grown(target, size))
        growth = Growth(servers, options)
        jobs: dict[str, Job] = {
            "POST heartbeat, durable": growth.post,
            "GET session, any of all": growth.get,
            "GET sessions, first page": growth.page,
            "quote": growth.quote,
            "dispatch": growth.dispatch,
        }
        for work, job in jobs.items():
            await growth.measure(work, job)
        lines = [f"- {line}" for line in surroundings(options, "bench.growth")]
        print("\n".join([*lines, "", *growth.lines()]), flush=True)


def parsed(arguments: list[str] | None = None) -> Any:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    sizes = [1_000, 10_000, 100_000]
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=sizes)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--dispatches", type=int, default=300)
    options = parser.parse_args(arguments)
    options.arguments, options.load_average = arguments or [], os.getloadavg()[0]
    return options


if __name__ == "__main__":
    os.chdir(ROOT)
    asyncio.run(main(parsed()))
