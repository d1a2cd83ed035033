"""Soak test: `python -m bench.soak [--minutes 60] [--devices 200] [--videos 20] [--consumers 4] [--directory DIR]`.

Runs one server with its embedded database, chain and media workers, and keeps it under load:

- Cameras (`bench.cameras`) serve one session after the other with live video of 320x180 at 10 frames a second. The
  consumer of each session creates and dispatches it, reads it, polls frames, ends it after two to five minutes, and
  waits for its settlement.
- All other devices POST a heartbeat every two seconds, on connections that are opened again for every sample.
- One viewer at a time plays a session by WHEP.

Every 30 seconds it appends a sample to `samples.jsonl`: latencies as the clients see them, and memory, threads,
descriptors, CPU and files of the server and its child processes. At the end it compares the charges with what left the
consumers' wallets, and prints a Markdown table. Exits with 1 when money differs or none has moved, or when memory,
threads or descriptors grow from the middle third of the run to the last third.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import psutil
import trio

from bench.cameras import render
from bench.idle import kind_of
from bench.servers import spot
from bench.wire import percentiles
from sightline.cli.local import LocalServer
from sightline_client import AsyncChain, AsyncSightline, InvalidStateError, SightlineError
from sightline_client.commands.access import SCOPES
from sightline_client.models import SessionState, SettlementState

SAMPLE_S: Final = 26
"""Measured time of a sample; the load generator needs about four more seconds to start and to connect."""
SESSION_S: Final = (120.0, 300.0)
START_EVERY_S: Final = 2.0
READ_EVERY_S: Final = 4.0
FRAME_EVERY_S: Final = 3.0
RETRY_S: Final = 2.0
VIEW_S: Final = 10
FUNDS: Final = 10**12
COVERAGE_M: Final = 500
"""Small enough that one operator covers the place of a session: places of operators lie kilometres apart."""
RELATION: Final = re.compile(r"/cluster/(base|global)/[^ ]+$")
"""A file of a table or an index. The name of a deleted one ends with a blank and "(deleted)"."""
GROWTH_MAX: Final = {"memory_mb": 24.0, "threads": 1, "descriptors": 8}
"""Allowed growth of the lowest value of a third of the run, for each kind of process."""


@final
@dataclass
class Results:
    """What the clients saw since the last sample, and the totals of the run."""

    reads_s: list[float] = field(default_factory=list)
    frames_s: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    charged: int = 0

    def take(self) -> tuple[list[float], list[float]]:
        """Return the latencies since the last call."""
        taken = self.reads_s, self.frames_s
        self.reads_s, self.frames_s = [], []
        return taken


@final
class Soak:
    """One run."""

    def __init__(self, directory: Path, *, devices: int, videos: int, consumers: int, seed: int) -> None:
        self._local = LocalServer(directory)
        self._directory = directory
        self._devices, self._videos, self._consumers = devices, videos, consumers
        self._rng = random.Random(seed)
        self._results = Results()
        self._live: dict[str, str] = {}
        """WHEP URLs of the LIVE sessions by their ids."""
        self._is_closing = False

    async def run(self, clip: Path, minutes: float) -> list[dict[str, Any]]:
        """Run the load for that long, end every session, and check the money. Returns the samples."""
        samples: list[dict[str, Any]] = []
        async with self._local.running() as server:
            wallets = [await self._local.funded_wallet(FUNDS) for _ in range(self._consumers)]
            consumers = [
                await self._local.join(wallet, "CONSUMER", f"soak-consumer-{number}")
                for number, wallet in enumerate(wallets)
            ]
            operators = await self._operators()
            ends_at = trio.current_time() + minutes * 60
            async with self._cameras(clip, operators[: self._videos]), trio.open_nursery() as around:
                around.start_soon(self._view)
                async with AsyncExitStack() as stack, trio.open_nursery() as sessions:
                    apis = [
                        await stack.enter_async_context(AsyncSightline(self._local.url, consumer.key))
                        for consumer in consumers
                    ]
                    for number in range(self._videos):
                        api = apis[number % self._consumers]
                        sessions.start_soon(self._consume, api, spot(number), number * START_EVERY_S)
                    while trio.current_time() < ends_at:
                        samples.append(await self._sample(server.pid, operators[self._videos :]))
                    self._is_closing = True
                around.cancel_scope.cancel()
            await self._check_money([wallet.address for wallet in wallets])
        return samples

    async def _operators(self) -> list[dict[str, str]]:
        """Create ONLINE operators of one wallet. Returns their ids and keys, as the load generator reads them."""
        wallet = await self._local.funded_wallet(FUNDS)
        made: list[dict[str, str]] = []
        async with AsyncSightline(self._local.url) as api:
            await api.auth.sign_in(wallet)
            for number in range(self._devices):
                place, slug = spot(number), f"soak-{number:04}"
                workspace = await api.workspaces.create(wallet, slug=slug, name=slug, roles=["SUPPLIER"])
                await api.auth.select(workspace.id)
                minted = await api.keys.mint(workspace.id, label="soak", scopes=SCOPES["SUPPLIER"])
                await api.workspaces.update(
                    workspace.id,
                    availability_state="ONLINE",
                    coverage_lat=place["lat"],
                    coverage_lng=place["lng"],
                    coverage_radius_meters=COVERAGE_M,
                    device_kind="PHONE",
                )
                made.append({"id": workspace.id, "key": minted.plaintext})
        return made

    # Load.

    @asynccontextmanager
    async def _cameras(self, clip: Path, operators: list[dict[str, str]]) -> AsyncIterator[None]:
        """Run the cameras, all in one process, for the length of the block."""
        cameras = [{"key": operator["key"], **spot(number)} for number, operator in enumerate(operators)]
        job = json.dumps({"url": self._local.url, "clip": str(clip), "cameras": cameras})
        with (self._directory / "cameras.log").open("wb") as log_file:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "bench.cameras"], stdin=subprocess.PIPE, stdout=log_file, stderr=log_file
            )
        assert process.stdin is not None
        await process.stdin.send_all(job.encode() + b"\n")
        try:
            yield
        finally:
            process.terminate()
            with trio.CancelScope(shield=True):
                await process.wait()

    async def _consume(self, api: AsyncSightline, place: dict[str, float], after_s: float) -> None:
        """Buy one session after the other at the place of a camera."""
        await trio.sleep(after_s)
        while not self._is_closing:
            try:
                await self._one_session(api, place)
            except SightlineError as error:
                self._results.counts[f"failed: {type(error).__name__}"] += 1
                sys.stderr.write(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}\n")
                await trio.sleep(RETRY_S)

    async def _one_session(self, api: AsyncSightline, place: dict[str, float]) -> None:
        session = await api.sessions.create(place["lat"], place["lng"], seconds=600)
        await api.sessions.dispatch(session.id)
        with trio.move_on_after(60):
            while session.state != SessionState.LIVE:
                await trio.sleep(1)
                session = await api.sessions.get(session.id)
        if session.state != SessionState.LIVE:
            self._results.counts[f"not live: {session.state}"] += 1
            return
        self._live[session.id] = str(session.whep_url)
        try:
            with trio.move_on_after(self._rng.uniform(*SESSION_S)):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._poll_frames, api, session.id)
                    await self._read(api, session.id)
                    nursery.cancel_scope.cancel()
        finally:
            self._live.pop(session.id, None)
        try:
            ended = await api.sessions.end(session.id)
        except InvalidStateError:  # the server ended it first; it is charged all the same
            ended = await api.sessions.get(session.id)
        self._results.charged += ended.charged_micro_usdc
        self._results.counts["clean seconds"] += ended.clean_seconds
        began = trio.current_time()
        while (await api.sessions.settlement(session.id)).state != SettlementState.CONFIRMED:
            if trio.current_time() - began > 120:
                self._results.counts["not settled within 120 s"] += 1
                return
            await trio.sleep(1)
        self._results.counts["settled"] += 1

    async def _read(self, api: AsyncSightline, session_id: str) -> None:
        while not self._is_closing:
            began = trio.current_time()
            session = await api.sessions.get(session_id)
            self._results.reads_s.append(trio.current_time() - began)
            if session.state != SessionState.LIVE:
                self._results.counts[f"ended early: {session.end_reason}"] += 1
                return
            await trio.sleep(READ_EVERY_S)

    async def _poll_frames(self, api: AsyncSightline, session_id: str) -> None:
        while True:
            began = trio.current_time()
            try:
                await api.sessions.frame(session_id, width=640)
                self._results.frames_s.append(trio.current_time() - began)
                self._results.counts["frames"] += 1
            except SightlineError as error:
                self._results.counts[f"no frame: {type(error).__name__}"] += 1
            await trio.sleep(FRAME_EVERY_S)

    async def _view(self) -> None:
        """Play one session after the other by WHEP."""
        while True:
            if self._live:
                url = self._rng.choice(sorted(self._live.values()))
                command = [sys.executable, "-m", "sightline_client.video.play", url, "--seconds", str(VIEW_S), "--json"]
                done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
                self._results.counts["viewers"] += 1
                if done.returncode == 0:
                    self._results.counts["viewed frames"] += json.loads(done.stdout)["frames"]
            await trio.sleep(RETRY_S)

    # Measurement.

    async def _sample(self, server: int, devices: list[dict[str, str]]) -> dict[str, Any]:
        """Run the heartbeats of one sample, then look at the processes."""
        psutil.cpu_percent()
        before, began = _cpu_s(server), trio.current_time()
        job = {
            "kind": "paced",
            "host": "127.0.0.1",
            "port": int(self._local.url.rsplit(":", 1)[1]),
            "seconds": SAMPLE_S,
            "connections": len(devices),
            "devices": devices,
        }
        command = [sys.executable, "-m", "bench.load"]
        done = await trio.run_process(command, stdin=json.dumps(job).encode(), capture_stdout=True)
        took = trio.current_time() - began
        heartbeats = json.loads(done.stdout.splitlines()[-1])
        machine = psutil.cpu_percent()
        reads, frames = self._results.take()
        sample: dict[str, Any] = {
            "at": time.time(),
            "took_s": round(took, 1),
            "load_1_min": os.getloadavg()[0],
            "machine_cpu_percent": machine,
            "live": len(self._live),
            "heartbeats": heartbeats,
            "reads_ms": percentiles(reads),
            "frames_ms": percentiles(frames),
            "processes": await trio.to_thread.run_sync(_census, server),
            "files_mb": await trio.to_thread.run_sync(_files_mb, self._directory),
            "counts": dict(self._results.counts),
        }
        for kind, used in _cpu_s(server).items():
            sample["processes"][kind]["cpu_percent"] = round((used - before.get(kind, 0.0)) / took * 100, 1)
        with (self._directory / "samples.jsonl").open("a") as file:
            file.write(json.dumps(sample) + "\n")
        return sample

    async def _check_money(self, consumers: list[str]) -> None:
        """Compare the sum of the charges with what left the consumers' wallets.

        Raises:
            RuntimeError: They differ, or no money has moved.
        """
        async with AsyncSightline(self._local.url) as api:
            config = await api.config()
        chain, paid = AsyncChain(config.rpc_url), 0
        for address in consumers:
            paid += FUNDS - await chain.balance_of(config.usdc_address, address)
        sys.stdout.write(f"charged {self._results.charged}, paid on the chain {paid} micro-USDC\n")
        sys.stdout.write(f"{json.dumps(self._results.counts)}\n")
        if not paid == self._results.charged > 0:
            raise RuntimeError("the charges differ from the chain, or are 0")


def _tree(server: int) -> list[psutil.Process]:
    root = psutil.Process(server)
    return [root, *root.children(recursive=True)]


def _cpu_s(server: int) -> dict[str, float]:
    """CPU seconds of each kind of process, with those of children that have ended."""
    found: dict[str, float] = defaultdict(float)
    for process in _tree(server):
        try:
            found[kind_of(process)] += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # a connection's Postgres process has ended
            continue
    return dict(found)


def _census(server: int) -> dict[str, dict[str, float]]:
    """Processes, memory (its proportional share of shared pages), threads and descriptors of each kind of process."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for process in _tree(server):
        try:
            kind, memory = kind_of(process), process.memory_full_info().pss / 2**20
            threads, descriptors = process.num_threads(), _descriptors(process.pid)
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue
        row = found[kind]
        row["processes"] += 1
        row["memory_mb"] = round(row["memory_mb"] + memory, 1)
        row["threads"] += threads
        row["descriptors"] += descriptors
    return {kind: dict(row) for kind, row in found.items()}


def _descriptors(pid: int) -> int:
    """Count the descriptors of a process, without those of Postgres' relations.

    A connection of Postgres keeps each file of a relation that it has used open, once, up to `max_files_per_process`:
    their number grows until every connection has run every statement. One that is opened twice, or deleted, counts.
    """
    opened = Path(f"/proc/{pid}/fd")
    targets = []
    for descriptor in opened.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(descriptor))
    return len(targets) - len({target for target in targets if RELATION.search(target)})


def _files_mb(directory: Path) -> dict[str, float]:
    """Size of the parts of the data directory and of the server's log."""

    def size(path: Path) -> float:
        done = subprocess.run(["du", "-sk", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return round(int(done.stdout.split()[0]) / 1024, 2)

    parts = [each for each in (directory / "data").iterdir() if each.is_dir()]
    cluster = directory / "data" / "postgres" / "cluster"
    sizes = {each.name: size(each) for each in parts} | {"server.log": size(directory / "server.log")}
    return sizes | {"postgres WAL": size(cluster / "pg_wal")}


# Report.


def _alarms(directory: Path) -> Counter[str]:
    """Count the events of level warning and above in the server's log."""
    found: Counter[str] = Counter()
    with (directory / "server.log").open() as lines:
        for line in lines:
            if line.startswith("{") and (entry := json.loads(line))["level"] in {"warning", "error", "critical"}:
                found[f"{entry['level']} {entry['event']}"] += 1
    return found


def growth(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return, for each kind of process, how much the lowest value rose from the middle third to the last."""
    third = max(1, len(samples) // 3)
    middle, last = samples[-2 * third : -third] or samples[:1], samples[-third:]
    kinds = set.intersection(*(set(each["processes"]) for each in middle + last))

    def lowest(part: list[dict[str, Any]], kind: str, name: str) -> float:
        return min(float(each["processes"][kind][name]) for each in part)

    return {
        kind: {name: round(lowest(last, kind, name) - lowest(middle, kind, name), 1) for name in GROWTH_MAX}
        for kind in sorted(kinds)
    }


def table(samples: list[dict[str, Any]], every: int) -> str:
    """Return one row for each `every` samples: the median of each latency, else the last value."""
    kinds = sorted(samples[-1]["processes"])
    lines = [
        "| minutes | load average | machine CPU % | live | heartbeats p50, p99 | GET p99 | frame p99 | "
        + " | ".join(f"{kind}: MB, threads, descriptors, CPU %" for kind in kinds)
        + " | files, MB | settled |",
        "|" + "---|" * (9 + len(kinds)),
    ]

    def median(rows: list[dict[str, Any]], *names: str) -> float:
        values = []
        for row in rows:
            value: Any = row
            for name in names:
                value = value[name]
            values.append(float(value))
        return sorted(values)[len(values) // 2]

    start = samples[0]["at"] - samples[0]["took_s"]
    for first in range(0, len(samples), every):
        rows = samples[first : first + every]
        last = rows[-1]
        cells = [
            f"{(last['at'] - start) / 60:.0f}",
            f"{median(rows, 'load_1_min'):.0f}",
            f"{median(rows, 'machine_cpu_percent'):.0f}",
            f"{last['live']}",
            f"{median(rows, 'heartbeats', 'p50'):.1f}, {median(rows, 'heartbeats', 'p99'):.0f}",
            f"{median(rows, 'reads_ms', 'p99'):.0f}",
            f"{median(rows, 'frames_ms', 'p99'):.0f}",
        ]
        for kind in kinds:
            row = last["processes"].get(kind, {})
            used = median([each for each in rows if kind in each["processes"]], "processes", kind, "cpu_percent")
            cells.append(", ".join(f"{row.get(name, 0):.0f}" for name in GROWTH_MAX) + f", {used:.0f}")
        cells.append(", ".join(f"{name} {value:.0f}" for name, value in sorted(last["files_mb"].items())))
        cells.append(f"{last['counts'].get('settled', 0)}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Parse the arguments, run, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--devices", type=int, default=200, help="devices in all")
    parser.add_argument("--videos", type=int, default=20, help="devices among them that serve sessions with video")
    parser.add_argument("--consumers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="default: a new directory in /tmp")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="sightline-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "SIGHTLINE_RATE_LIMITS": "false",
        "SIGHTLINE_CONSUMER_DISPATCHES_MAX": "0",
        "SIGHTLINE_UNFUNDED_SESSIONS_MAX": "0",
    }
    soak = Soak(directory, devices=given.devices, videos=given.videos, consumers=given.consumers, seed=given.seed)
    sys.stdout.write(f"samples: {directory / 'samples.jsonl'}\n")
    sys.stdout.flush()
    clip = directory / "clip.mp4"
    render(clip)
    samples = trio.run(soak.run, clip, given.minutes)
    rise = growth(samples)
    too_much = [
        f"{kind}: {name} +{value}"
        for kind, row in rise.items()
        for name, value in row.items()
        if value > GROWTH_MAX[name]
    ]
    sys.stdout.write(f"{table(samples, 10)}\n\nwarnings and errors in the log: {json.dumps(_alarms(directory))}\n")
    sys.stdout.write(f"growth from the middle third to the last third: {json.dumps(rise)}\n")
    sys.stdout.write("\n".join(too_much or ["flat"]) + "\n")
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
