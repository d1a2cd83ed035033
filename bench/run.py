"""Measures Sightline against a baseline implementation: `python -m bench.run [--quick] [--only ROW,...]`.

Each row is measured in alternating runs (Sightline, baseline, Sightline, ...) on the same machine; while one is
measured, the other is paused with SIGSTOP. Load generator, Postgres and server share the cores. The table shows
medians; the ratio is the median of the ratios of neighbouring runs, with the smallest and the largest. CPU is the time
of the serving process alone per item, from /proc; it is less affected by other processes than the rates are.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop

from bench.servers import (
    HOST,
    PLACE,
    ROOT,
    Target,
    fastapi,
    fastapi_sessions,
    populate_fastapi,
    populate_sightline,
    quart_static,
    sightline,
    sightline_sessions,
)
from bench.wire import Client
from sightline_client.video.assets import clip_path

FRAME_BYTES = 80_000
TICKS = os.sysconf("SC_CLK_TCK")
DEVICE_COUNTS = (1_000, 2_000, 4_000)
ROW_TIMEOUT_S = 600
PUBLISH_S = 4
HELD_COUNTS = (1_000, 4_000, 16_000)

Result = dict[str, Any]
Measure = Callable[[Target], Awaitable[Result]]


@dataclass
class Row:
    """One line of the table."""

    work: str
    unit: str
    aim: str
    ours: list[Result] = field(default_factory=list)
    theirs: list[Result] = field(default_factory=list)

    def median(self, runs: list[Result], what: str) -> float:
        """Return the median of one figure."""
        return statistics.median(run[what] for run in runs) if runs else 0.0

    def ratios(self) -> list[float]:
        """Return the ratios of Sightline's figures to the baseline's of the same round."""
        return [mine["per_s"] / max(other["per_s"], 0.1) for mine, other in zip(self.ours, self.theirs, strict=False)]

    def cells(self) -> list[str]:
        """Format the row's cells."""
        ratios = self.ratios()
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-"
        return [
            self.work,
            f"{self.median(self.ours, 'per_s'):,.0f}",
            f"{self.median(self.theirs, 'per_s'):,.0f}",
            self.unit,
            spread,
            self.aim,
            *(f"{self.median(self.ours, name):.1f} / {self.median(self.theirs, name):.1f}" for name in ("p50", "p99")),
            f"{self.median(self.ours, 'cpu_us'):.0f} / {self.median(self.theirs, 'cpu_us'):.0f}",
        ]


HEADS = ["work", "Sightline", "baseline", "per second", "ratio (spread)", "aim", "p50 ms", "p99 ms", "server CPU us"]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def load(target: Target, **job: Any) -> Result:
    """Run the load generator against a server."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    before = cpu_s(target.process.pid)
    out, _ = await process.communicate(json.dumps({**target.address, **job}).encode())
    if process.returncode != 0:
        raise RuntimeError(f"the load generator failed on {target.name} {job.get('kind')}")
    result: Result = json.loads(out.decode().splitlines()[-1])
    done = max(1.0, result["per_s"] * result["took_s"])
    result["cpu_us"] = (cpu_s(target.process.pid) - before) / done * 1e6
    return result


@contextlib.contextmanager
def alone(target: Target, others: list[Target]) -> Any:
    """Pause every other target inside the block."""
    for other in others:
        if other is not target:
            other.rest()
    try:
        yield
    finally:
        for other in others:
            if other is not target:
                other.wake()


class Bench:
    """One run of the suite."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.options = options
        self.directory = directory
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.everybody: list[Target] = []
        self.ours: Target
        self.base: Target

    async def alternate(
        self, work: str, aim: str, ours: Measure, theirs: Measure, *, unit: str = "requests", base: Target | None = None
    ) -> None:
        """Measure a row in alternating runs."""
        row = Row(work, unit, aim)
        for _ in range(self.options.rounds):
            await self.round(row, ours, theirs, base or self.base)
        self.keep(row)

    async def round(self, row: Row, ours: Measure, theirs: Measure, base: Target) -> Row:
        """Measure both targets once."""
        for target, measure, runs in ((self.ours, ours, row.ours), (base, theirs, row.theirs)):
            with alone(target, self.everybody):
                await asyncio.sleep(0.5)
                result = await measure(target)
            runs.append(result)
            print(
                f"  {row.work}: {target.name}: {result['per_s']:,.0f}/s p99 {result['p99']} ms "
                f"{result['statuses']} lost {result['lost']} cpu {result['cpu_us']:.0f} us",
                flush=True,
            )
        return row

    def keep(self, row: Row) -> None:
        """Put a measured row into the table; it replaces an older one of the same name."""
        self.rows = [each for each in self.rows if each.work != row.work] + [row]
        self.write()

    # Rows.

    async def heartbeats(self) -> None:
        """Measure single, batch and WebSocket heartbeats; the baseline is always one INSERT per request."""
        seconds = self.options.seconds

        async def single(target: Target) -> Result:
            return await load(target, kind="closed", connections=64, seconds=seconds, devices=target.devices[:64])

        async def batch(target: Target) -> Result:
            return await load(
                target, kind="closed", connections=16, seconds=seconds, devices=target.devices[:16], batch=100
            )

        async def stream(target: Target) -> Result:
            devices = target.devices[:32]
            return await load(target, kind="stream", connections=32, seconds=seconds, devices=devices, window=16)

        await self.alternate("single POST heartbeats, durable", ">= 2", single, single)
        await self.alternate("batch POST heartbeats (100), durable", ">= 20", batch, single, unit="heartbeats")
        await self.alternate("WebSocket heartbeats, durable", ">= 5", stream, single, unit="heartbeats")

    async def reads(self) -> None:
        """Measure GET session and quote."""
        ids = {
            self.ours.name: await sightline_sessions(self.ours, 50),
            self.base.name: await fastapi_sessions(self.base, 50),
        }

        async def get(target: Target) -> Result:
            wanted = [
                {"method": "GET", "path": f"/api/v1/sessions/{each}", "key": target.consumer["key"]}
                for each in ids[target.name]
            ]
            return await load(target, kind="closed", connections=32, seconds=self.options.seconds, requests=wanted)

        async def quote(target: Target) -> Result:
            path = f"/api/v1/pricing/quote?lat={PLACE['lat']}&lng={PLACE['lng']}&durationSeconds=600"
            wanted = [{"method": "GET", "path": path, "key": target.consumer["key"]}]
            return await load(target, kind="closed", connections=32, seconds=self.options.seconds, requests=wanted)

        await self.alternate("GET session", ">= 1.2", get, get)
        await self.alternate("quote", ">= 1.2", quote, quote)

    async def frames(self) -> None:
        """Measure a warm frame and a 304 against a static file, each with a new frame (valid for ten seconds)."""
        key = self.ours.consumer["key"]
        size = 0
        for work, aim, good in (("warm 80 KB frame", ">= 1.5", 200), ("304", ">= 2", 304)):
            row: Row | None = None
            for _ in range(self.options.rounds):
                async with self.a_frame() as (path, etag, jpeg), quart_static(self.directory, jpeg) as static:
                    self.everybody.append(static)
                    probe, size = await static_etag(static), len(jpeg)

                    async def polls(target: Target, path: str = path, good: int = good) -> Result:
                        asked = {"method": "GET", "path": path, "key": key}
                        known = etag
                        if target is not self.ours:
                            asked, known = {"method": "GET", "path": "/frame.jpg"}, probe  # noqa: B023
                        if good == 304:
                            asked["extra"] = f"If-None-Match: {known}\r\n"
                        return await load(target, kind="closed", connections=32, seconds=2, requests=[asked], good=good)

                    row = await self.round(row or Row(work, "requests", aim), polls, polls, static)
                    self.everybody.remove(static)
            assert row is not None
            self.keep(row)
        self.notes.append(f"frame: {size} bytes; the baseline's file is the same JPEG")

    @contextlib.asynccontextmanager
    async def a_frame(self) -> AsyncIterator[tuple[str, str, bytes]]:
        """Create a LIVE session whose publisher was just killed: its newest frame stays the same for ten seconds."""
        device = self.ours.devices[0]
        client = Client(HOST, self.ours.port)
        (session,) = await sightline_sessions(self.ours, 1)
        await client.call(
            "POST", f"/sessions/{session}/accept", {"operatorWorkspaceId": device["id"]}, key=device["key"]
        )
        started = await client.call("POST", f"/sessions/{session}/start", key=device["key"])
        program = [sys.executable, "-m", "sightline_client.video.publish"]
        command = [*program, str(clip_path()), "--whip", started["whipUrl"]]
        publisher = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
        )
        await asyncio.sleep(PUBLISH_S)
        publisher.kill()  # one that leaves takes its pictures with it
        await publisher.wait()
        found: list[tuple[int, str, str, bytes]] = []
        for quality in (95, 90, 85, 80, 70, 60):
            path = f"/api/v1/sessions/{session}/frame?quality={quality}"
            head, jpeg = await raw_get(self.ours.port, path, self.ours.consumer["key"])
            if jpeg[:2] == b"\xff\xd8":
                found.append((abs(len(jpeg) - FRAME_BYTES), path, head["etag"], jpeg))
        if not found:
            raise RuntimeError("no frame came")
        _, path, etag, jpeg = min(found)
        yield path, etag, jpeg
        await client.call("POST", f"/sessions/{session}/end", key=self.ours.consumer["key"])
        client.close()

    async def dispatch(self) -> None:
        """Measure dispatch over HTTP with all operators ONLINE; no operator may be assigned twice."""
        count = self.options.dispatches

        def measure(make: Callable[[Target, int], Awaitable[list[str]]]) -> Measure:
            async def run(target: Target) -> Result:
                key = target.consumer["key"]
                wanted = [
                    {"method": "POST", "path": f"/api/v1/sessions/{each}/dispatch", "key": key}
                    for each in await make(target, count)
                ]
                result = await load(target, kind="once", connections=16, requests=wanted)
                operators = result.pop("operators")
                assert len(set(operators.values())) == len(operators), "an operator was assigned twice"
                assert len(operators) == count, result
                return result

            return run

        work = f"dispatch, {self.ours.operators:,} operators ONLINE"
        await self.alternate(work, ">= 1, p95 < 25 ms", measure(sightline_sessions), measure(fastapi_sessions))
        row = self.rows[-1]
        p95 = row.median(row.ours, "p95"), row.median(row.theirs, "p95")
        self.notes.append(f"dispatch p95: {p95[0]:.1f} ms, baseline {p95[1]:.1f} ms; 0 operators assigned twice")

    async def devices(self) -> None:
        """Measure devices that send a heartbeat every two seconds on keep-alive connections."""
        for count in DEVICE_COUNTS:
            if count > len(self.ours.devices):
                break

            async def paced(target: Target, count: int = count) -> Result:
                return await load(target, kind="paced", connections=count, seconds=10, devices=target.devices[:count])

            rounds, self.options.rounds = self.options.rounds, min(2, self.options.rounds)
            await self.alternate(f"{count:,} devices, one heartbeat in 2 s", "p99 < 50 ms", paced, paced)
            self.options.rounds = rounds

    async def memory(self) -> None:
        """Measure the resident memory per keep-alive connection."""
        for target in (self.ours, self.base):
            wanted = [
                {"method": "GET", "path": "/api/v1/pricing/quote?lat=1&lng=2&durationSeconds=9", "key": "none"},
            ]
            found = []
            with alone(target, self.everybody):
                before = target.rss_kb()
                for count in HELD_COUNTS:
                    process = await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "bench.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
                    )
                    assert process.stdin is not None
                    assert process.stdout is not None
                    job = {**target.address, "kind": "hold", "connections": count, "seconds": 3, "requests": wanted}
                    process.stdin.write(json.dumps(job).encode())
                    process.stdin.close()
                    await process.stdout.readline()
                    found.append(f"{count:,}: {(target.rss_kb() - before) / count:.1f} KB")
                    await process.wait()
                    await asyncio.sleep(2)
            self.notes.append(
                f"memory per open connection, {target.name} (increase over the start): {', '.join(found)}"
            )
        self.write()

    # Output.

    def write(self) -> None:
        """Write the results measured so far."""
        self.options.output.write_text(report(self))


async def raw_get(port: int, path: str, key: str = "") -> tuple[dict[str, str], bytes]:
    """Send one GET on its own connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{authorization}\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:]
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head)}
    body = await reader.readexactly(int(fields.get("content-length", "0")))
    writer.close()
    return fields, body


async def static_etag(target: Target) -> str:
    """Return the ETag of the baseline's file."""
    head, _ = await raw_get(target.port, "/frame.jpg")
    return head["etag"]


def report(bench: Bench) -> str:
    """Format RESULTS.md."""
    lines = ["# Results of `make bench`", ""]
    lines += [f"- {line}" for line in surroundings(bench.options)]
    lines += ["", f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    lines += [f"| {' | '.join(row.cells())} |" for row in bench.rows]
    lines += ["", "Pairs of figures are Sightline / baseline. " + " ".join(__doc__.split("\n\n")[1].split())]
    lines += [
        "",
        "Baselines: FastAPI on uvicorn (uvloop, httptools) with asyncpg: one INSERT per heartbeat, one SELECT per",
        "read, `FOR UPDATE SKIP LOCKED` per dispatch, on a Postgres of the same version and settings; for frames,",
        "the same JPEG as a static file by unmodified Quart-Trio on Hypercorn. Every server writes one access line per",
        "call. Batch and WebSocket rows are compared with the baseline's single POSTs. Bottlenecks and sizing:",
        "docs/ops/performance.md.",
    ]
    lines += ["", "What people wrote about the figures is in [NOTES.md](NOTES.md), which no run changes."]
    if bench.notes:
        lines += ["", "## Of this run", ""] + [f"- {note}" for note in bench.notes]
    return "\n".join(lines) + "\n"


def surroundings(options: argparse.Namespace, program: str = "bench.run") -> list[str]:
    """Describe the machine, the versions and the command."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    names = ("trio", "asyncpg", "httptools", "fastapi", "uvicorn", "uvloop", "pydantic", "quart-trio", "hypercorn")
    return [
        f"machine: {os.cpu_count()} cores, {model}, {memory:.0f} GB, Linux {platform.release()}",
        f"load average at the start {options.load_average:.1f} (above 0: other work used part of the cores)",
        f"versions: Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names),
        f"command: python -m {program} {' '.join(options.arguments)}".rstrip(),
        f"{options.rounds} rounds of {options.seconds} s",
    ]


ROWS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "heartbeats": Bench.heartbeats,
    "reads": Bench.reads,
    "frames": Bench.frames,
    "devices": Bench.devices,
    "dispatch": Bench.dispatch,
    "memory": Bench.memory,
}


async def main(options: argparse.Namespace) -> int:
    """Run the suite. Returns the exit code: 1 if a row could not be measured."""
    failed = False
    directory = Path(tempfile.mkdtemp(prefix="sightline-bench-"))
    print(f"logs and data in {directory}", flush=True)
    bench = Bench(options, directory)
    async with sightline(directory) as ours, fastapi(directory) as base:
        bench.ours, bench.base, bench.everybody = ours, base, [ours, base]
        print(f"setting up {options.operators:,} operators through the API", flush=True)
        await populate_sightline(ours, operators=options.operators, devices=options.devices)
        await populate_fastapi(base, ours)
        for name in options.only or ROWS:
            print(name, flush=True)
            try:
                async with asyncio.timeout(ROW_TIMEOUT_S):
                    await ROWS[name](bench)
            except Exception as error:  # noqa: BLE001 (the other rows are worth having)
                failed = True
                bench.notes.append(f"{name} could not be measured: {type(error).__name__} {error}")
                print(bench.notes[-1], flush=True)
    bench.write()
    print(options.output.read_text())
    return 1 if failed else 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.run")
    parser.add_argument("--quick", action="store_true", help="a tenth of the operators, short runs")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--operators", type=int, default=10_000)
    parser.add_argument("--devices", type=int, default=4_000, help="operators with a key of their own")
    parser.add_argument("--dispatches", type=int, default=1_000)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "RESULTS.md")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.operators, options.devices = 2, 2.0, 1_000, 1_000
        options.dispatches = 300
    options.arguments = arguments
    options.load_average = os.getloadavg()[0]
    return options


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.exit(uvloop.run(main(parsed(sys.argv[1:]))))
