"""Measures how long a server takes to become ready: `python -m bench.start [--starts N]`.

Starts a server with all its embedded parts N times on a directory that an earlier start has set up, and the FastAPI
baseline with its own Postgres, alternating. Exits with 1 if the median start of the server takes longer than the limit.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

from bench.idle import cpu_times
from bench.servers import Target, fastapi, sightline
from sightline.domain.value import Value

LIMIT_S: Final = 1.0
Open: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Target]]


class Start(Value):
    """One start: the time until it is ready, and the CPU time of its processes until then, by kind."""

    ready_s: float
    cpu_s: dict[str, float]


async def start(opened: Open, directory: Path) -> Start:
    """Start once, and stop."""
    began = time.monotonic()
    async with opened(directory) as target:
        ready_s = time.monotonic() - began
        return Start(ready_s, {kind: seconds for kind, (_, seconds) in cpu_times(target.process.pid).items()})


def table(found: dict[str, list[Start]]) -> str:
    """Return the result as Markdown."""
    lines = ["| server | ready, s (spread) | CPU s | of which |", "|---|---|---|---|"]
    for name, starts in found.items():
        ready = [each.ready_s for each in starts]
        kinds = sorted({kind for each in starts for kind in each.cpu_s})
        share = {kind: statistics.median(each.cpu_s.get(kind, 0.0) for each in starts) for kind in kinds}
        parts = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in sorted(share.items(), key=lambda one: -one[1]))
        spread = f"{statistics.median(ready):.2f} ({min(ready):.2f} to {max(ready):.2f})"
        lines.append(f"| {name} | {spread} | {sum(share.values()):.2f} | {parts} |")
    return "\n".join(lines)


async def run(starts: int) -> bool:
    """Start both, measure and print. Returns whether the limit holds."""
    with tempfile.TemporaryDirectory(prefix="sightline-start-") as name:
        directory = Path(name)
        os.chmod(directory, 0o711)  # the account of Postgres passes through
        opened: dict[str, Open] = {"Sightline": sightline, "FastAPI": fastapi}
        found: dict[str, list[Start]] = {each: [] for each in opened}
        for open_server in opened.values():
            await start(open_server, directory)
        for _ in range(starts):
            for server, open_server in opened.items():
                found[server].append(await start(open_server, directory))
    sys.stdout.write(f"- load average {os.getloadavg()[0]:.1f}, {starts} starts each\n\n{table(found)}\n")
    return statistics.median(each.ready_s for each in found["Sightline"]) <= LIMIT_S


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=7)
    raise SystemExit(0 if asyncio.run(run(parser.parse_args().starts)) else 1)


if __name__ == "__main__":
    main()
