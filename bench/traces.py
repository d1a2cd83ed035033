"""Measures what traces cost: `python -m bench.traces [--rounds 5] [--seconds 4]`.

Runs three servers, with traces off, of 5 % of the requests and of every request, and measures them in turn with the
same load while the others are paused. Spans go to a collector in this process that drops them. Prints the CPU time of
the server for each request, as medians over the rounds, as a Markdown table.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import uvloop

from bench.run import alone, load
from bench.servers import HOST, Target, populate_sightline, sightline, sightline_sessions

CONNECTIONS: Final = 16
RATIOS: Final = {"off": None, "on, 5 % of the requests": "0.05", "on, every request": "1"}


async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of the exporter with 200, and drop its spans."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def run(rounds: int, seconds: float, directory: Path) -> None:
    """Start the servers, measure them in turn, and print the table."""
    collector = await asyncio.start_server(collect, HOST, 0)
    endpoint = f"http://{HOST}:{collector.sockets[0].getsockname()[1]}/v1/traces"
    servers: dict[str, tuple[Target, list[str]]] = {}
    async with AsyncExitStack() as stack:
        for name, ratio in RATIOS.items():
            place = directory / (ratio or "off")
            place.mkdir(mode=0o711)
            settings = {"SIGHTLINE_TRACES_ENDPOINT": endpoint, "SIGHTLINE_TRACES_RATIO": ratio} if ratio else {}
            target = await stack.enter_async_context(sightline(place, **settings))
            await populate_sightline(target, operators=CONNECTIONS, devices=CONNECTIONS)
            servers[name] = target, await sightline_sessions(target, CONNECTIONS)
        everybody = [target for target, _ in servers.values()]
        taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for number in range(rounds + 1):
            for name, (target, sessions) in servers.items():
                with alone(target, everybody):
                    closed = {"kind": "closed", "seconds": seconds, "connections": CONNECTIONS}
                    beats = await load(target, **closed, devices=target.devices)
                    key = target.consumer["key"]
                    calls = [{"method": "GET", "path": f"/api/v1/sessions/{each}", "key": key} for each in sessions]
                    reads = await load(target, **closed, requests=calls)
                if number:  # the first round warms up
                    taken[name].append((beats["cpu_us"], reads["cpu_us"]))
                sys.stderr.write(f"{name}: {beats['cpu_us']:.0f} us, {reads['cpu_us']:.0f} us\n")
    print("| traces | POST heartbeat, us of CPU | GET session, us of CPU |\n|---|---|---|")
    for name, runs in taken.items():
        beats_us, reads_us = zip(*runs, strict=True)
        cells = [f"{statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})" for each in (beats_us, reads_us)]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.traces", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sightline-traces-") as name:
        directory = Path(name)
        directory.chmod(0o711)  # the account of Postgres passes through
        uvloop.run(run(given.rounds, given.seconds, directory))


if __name__ == "__main__":
    main()
