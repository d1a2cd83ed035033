"""Several servers against one: `python -m bench.cluster [--workers 1,2] [--rounds 3] [--only ask,load,moves]`.

ask     CPU of an ask between two servers: asker, owner and broker, by callers at once, and its time. It is answered by
        a turn of the actor, as commands are, or from memory, as reads of a quiet actor are.
load    `serve` against `serve --workers N`, in alternating runs: rate, and CPU of all processes per item, without what
        they use when there are no calls. While one is measured, the others are paused.
moves   How long a session does not answer after the kill of a worker, and in a planned stop.
"""

import argparse
import asyncio
import contextlib
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import trio
import uvloop

from bench.run import Result, load
from bench.servers import HOST, PLACE, ROOT, Target, populate_sightline, sightline, sightline_sessions
from bench.wire import Client
from sightline.actors.kernel import Command, Context, Envelope, KernelOptions, KindName, Registry
from sightline.actors.messages import GetWorkspace
from sightline.actors.shards import OwnedShards
from sightline.cluster.bus.nats import NatsOptions, open_nats_bus
from sightline.cluster.bus.server import EmbeddedNatsOptions, run_embedded_nats
from sightline.cluster.peers.peers import Peers
from sightline.cluster.routes import Routes
from sightline.domain.operator.model import Workspace, WorkspaceRole
from sightline.domain.value import Value
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds

KEY: Final = b"k" * 32
"""Of the frames between the servers."""
CALLERS: Final = (1, 32)
ASKS: Final = 6_000
BY_TURN: Final = "by a turn"
FROM_MEMORY: Final = "from memory"
SESSIONS: Final = 200
POLL_S: Final = 0.01
WATCHED_S: Final = 8.0
"""How long all sessions are read around a fault."""
WORKSPACE: Final = KindName[GetWorkspace, Workspace]("workspace")
SHARD_OF_OWNER: Final = 7
IDLE_S: Final = 2.0
"""How long the CPU use of an idle server is measured before each run."""
SETTLE_S: Final = 0.5
"""How long a server may finish background work, after the others are suspended, before its CPU use is measured."""


def a_workspace(workspace_id: str) -> Workspace:
    """A workspace as an answer to an ask."""
    return Workspace(
        id=workspace_id,
        slug="bench",
        name="bench",
        wallet_address="0x" + "a" * 40,
        roles=(WorkspaceRole.SUPPLIER,),
        created_at_ms=1_767_225_600_000,
        created_by_wallet="0x" + "a" * 40,
    )


class Owner:
    """An actor that answers with its workspace."""

    def __init__(self, context: Context[GetWorkspace]) -> None:
        self._workspace = a_workspace(context.id)

    async def load(self) -> None:
        """Nothing is stored."""

    def snapshot(self) -> Workspace:
        """The workspace."""
        return self._workspace

    def may_passivate(self) -> bool:
        """Never."""
        return False

    async def handle(self, envelope: Envelope[GetWorkspace]) -> None:
        """Answer."""
        envelope.reply(envelope.message, self._workspace)


def cpu_us(pid: int) -> float:
    """CPU time that a process has used, in microseconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system) * 1e6


@contextlib.asynccontextmanager
async def a_server(url: str, me: str, *, from_memory: bool = False) -> AsyncIterator[Registry]:
    """The kernel and the peers of one of two servers; `owner` owns everything."""
    routes = Routes(me)
    routes.took("owner", range(256))
    owned = OwnedShards(dict.fromkeys(range(256), 1) if me == "owner" else {})
    async with open_nats_bus(NatsOptions(servers=(url,), cluster="bench", key=KEY, incarnation=me)) as bus:
        peers = Peers(bus, routes)
        registry = Registry(
            clock=SystemClock(), rng=random.Random(1), options=KernelOptions(), owns=owned.owns, remote=peers
        )
        registry.register(WORKSPACE, Owner)
        peers.attach(registry, owned.owns)
        if from_memory:
            peers.answer_quietly(GetWorkspace, lambda actor_id: registry.peek_quiet(WORKSPACE, actor_id))
        async with trio.open_nursery() as nursery:
            await nursery.start(registry.run)
            await nursery.start(peers.run)
            yield registry
            nursery.cancel_scope.cancel()


async def own(url: str, how: str) -> None:
    """The other process: owns the actors until it is killed."""
    async with a_server(url, "owner", from_memory=how == FROM_MEMORY):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await trio.sleep_forever()


async def measure_asks(url: str, how: str, owner: int, broker: int) -> list[str]:
    """Ask from this process; a line of the table for each number of callers."""
    lines = []
    async with a_server(url, "asker") as registry:
        for callers in CALLERS:
            times: list[float] = []

            async def call(count: int, times: list[float] = times) -> None:
                for _ in range(count):
                    began = time.perf_counter()
                    command: Command[GetWorkspace, Workspace | None] = GetWorkspace()
                    ref = registry.ref(WORKSPACE, f"{SHARD_OF_OWNER:02x}000000-0000-4000-8000-000000000001")
                    assert await ref.ask(command, timeout_s=10) is not None
                    times.append(time.perf_counter() - began)

            await call(100)
            times.clear()
            pids = (os.getpid(), owner, broker)
            before, began = [cpu_us(pid) for pid in pids], time.perf_counter()
            async with trio.open_nursery() as nursery:
                for _ in range(callers):
                    nursery.start_soon(call, ASKS // callers)
            took = time.perf_counter() - began
            spent = [(cpu_us(pid) - start) / len(times) for pid, start in zip(pids, before, strict=True)]
            ordered = sorted(times)
            lines.append(
                f"| {how} | {callers} | {spent[0]:.0f} | {spent[1]:.0f} | {spent[2]:.0f} | {sum(spent):.0f} | "
                f"{len(times) / took:,.0f} | {ordered[len(ordered) // 2] * 1e3:.2f} | "
                f"{ordered[int(len(ordered) * 0.99)] * 1e3:.2f} |"
            )
            print(lines[-1], flush=True)
    return lines


async def asks() -> list[str]:
    """Measure asks between two processes over a nats-server."""
    with tempfile.TemporaryDirectory(prefix="sightline-") as folder:
        here = Path(folder)
        async with trio.open_nursery() as nursery:
            nats = EmbeddedNatsOptions(directory=here, log_path=here / "nats.log")
            url = await nursery.start(run_embedded_nats, nats, SystemIds())
            lines = []
            for how in (BY_TURN, FROM_MEMORY):
                child = await trio.lowlevel.open_process(
                    [sys.executable, "-m", "bench.cluster", "own", url, how], stdout=subprocess.PIPE, cwd=ROOT
                )
                assert child.stdout is not None
                await child.stdout.receive_some()
                brokers = [one.pid for one in psutil.process_iter() if one.name() == "nats-server" and _is_ours(one)]
                lines += await measure_asks(url, how, child.pid, brokers[0])
                child.kill()
                await child.wait()
            nursery.cancel_scope.cancel()
    head = "| answered | callers | asker us | owner us | broker us | sum us | asks/s | p50 ms | p99 ms |"
    return [head, "|" + "---|" * 9, *lines]


def _is_ours(process: psutil.Process) -> bool:
    return any(parent.pid == os.getpid() for parent in process.parents())


# Whole servers.


@dataclass
class Measured:
    """The runs of one kind of work on one number of workers."""

    runs: list[Result] = field(default_factory=list)

    def median(self, what: str) -> float:
        """The median of one figure."""
        return float(statistics.median(run[what] for run in self.runs))


def tree(target: Target) -> list[psutil.Process]:
    """The processes of a server: its own, workers, broker, database and chain."""
    process = psutil.Process(target.process.pid)
    return [process, *process.children(recursive=True)]


def tree_cpu_us(target: Target) -> float:
    """CPU time of all processes of a server, ended children of Postgres included."""
    total = 0.0
    for process in tree(target):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total * 1e6


def pause(targets: list[Target], number: signal.Signals) -> None:
    """Suspend or resume all processes of servers."""
    for target in targets:
        for process in tree(target):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


async def loads(options: argparse.Namespace) -> list[str]:
    """Measure heartbeats, reads, quotes and dispatches."""
    directory = Path(tempfile.mkdtemp(prefix="sightline-bench-"))
    counts = [int(count) for count in options.workers.split(",")]
    operators = max(options.operators, 64 * max(counts) + 2 * options.rounds * options.dispatches)
    measured: dict[tuple[str, int, int], Measured] = {}
    async with contextlib.AsyncExitStack() as stack:
        targets: dict[int, Target] = {}
        for count in counts:
            here = directory / str(count)
            here.mkdir()
            targets[count] = await stack.enter_async_context(sightline(here, SIGHTLINE_WORKERS=str(count)))
            await populate_sightline(targets[count], operators=operators, devices=64 * max(counts))
        sessions = {count: await sightline_sessions(target, 50) for count, target in targets.items()}
        works = works_of(options.seconds)
        for _ in range(options.rounds):
            for work, count, connections in runs_of(works, counts):
                target = targets[count]
                others = [other for other in targets.values() if other is not target]
                pause(others, signal.SIGSTOP)
                try:
                    ids = sessions[count]
                    if work.run is dispatches:
                        ids = await sightline_sessions(target, options.dispatches)
                    await asyncio.sleep(SETTLE_S)
                    idle_us_per_s = await idle_cpu(target)
                    before, began = tree_cpu_us(target), time.perf_counter()
                    result = await work.run(target, connections, ids)
                    done = max(1.0, result["per_s"] * result["took_s"])
                    idle_us = idle_us_per_s * (time.perf_counter() - began)
                    result["all_us"] = (tree_cpu_us(target) - before - idle_us) / done
                    result["idle_percent"] = idle_us_per_s / 1e4
                finally:
                    pause(others, signal.SIGCONT)
                measured.setdefault((work.name, count, connections), Measured()).runs.append(result)
                said = f"{result['per_s']:,.0f}/s, {result['all_us']:.0f} us"
                print(f"  {work.name}, {count} workers, {connections} connections: {said}", flush=True)
                for other in others:
                    await serving(other)
    head = "| work | workers | connections | per second | ratio | CPU of all processes us | ratio | p50 ms | p99 ms |"
    lines = [f"{head} idle CPU % |", "|" + "---|" * 10]
    base = {work.name: work.connections for work in works}
    for (name, count, connections), runs in measured.items():
        alone = measured[name, counts[0], base[name]]
        rate = statistics.median(m["per_s"] / a["per_s"] for m, a in zip(runs.runs, alone.runs, strict=True))
        cpu = statistics.median(m["all_us"] / a["all_us"] for m, a in zip(runs.runs, alone.runs, strict=True))
        latency, idle = f"{runs.median('p50'):.1f} | {runs.median('p99'):.1f}", f"{runs.median('idle_percent'):.1f}"
        lines.append(
            f"| {name} | {count} | {connections} | {runs.median('per_s'):,.0f} | {rate:.2f} | "
            f"{runs.median('all_us'):,.0f} | {cpu:.2f} | {latency} | {idle} |"
        )
    return lines


class Work(Value):
    """One kind of call, and how many connections make it to one worker."""

    name: str
    connections: int
    run: Callable[[Target, int, list[str]], Awaitable[Result]]
    """Called with the server, the number of connections, and ids of sessions."""


def works_of(seconds: float) -> list[Work]:
    """All kinds of work, each for some seconds."""

    async def heartbeats(target: Target, connections: int, _: list[str]) -> Result:
        devices = target.devices[:connections]
        return await load(target, kind="closed", connections=connections, seconds=seconds, devices=devices)

    async def reads(target: Target, connections: int, ids: list[str]) -> Result:
        wanted = gets(target, ids)
        return await load(target, kind="closed", connections=connections, seconds=seconds, requests=wanted)

    async def quotes(target: Target, connections: int, _: list[str]) -> Result:
        wanted = [quote(target)]
        return await load(target, kind="closed", connections=connections, seconds=seconds, requests=wanted)

    return [
        Work("heartbeats", 64, heartbeats),
        Work("GET session", 32, reads),
        Work("quote", 32, quotes),
        Work("dispatch", 16, dispatches),
    ]


def runs_of(works: list[Work], counts: list[int]) -> Iterator[tuple[Work, int, int]]:
    """List the runs, as (work, workers, connections).

    Several workers are measured twice: with the same total number of connections as one worker, and with the same
    number for each worker. Fewer connections for each make smaller batches of writes and messages.
    """
    for work in works:
        for count in counts:
            yield from ((work, count, each) for each in sorted({work.connections, work.connections * count}))


async def idle_cpu(target: Target) -> float:
    """CPU time that a server uses in a second without calls, in microseconds."""
    before, began = tree_cpu_us(target), time.perf_counter()
    await asyncio.sleep(IDLE_S)
    return (tree_cpu_us(target) - before) / (time.perf_counter() - began)


async def serving(target: Target) -> None:
    """Wait until a server that was suspended answers again: it renews its leases, or its workers are restarted."""
    async with asyncio.timeout(60):
        while True:
            client = Client(HOST, target.port)
            with contextlib.suppress(OSError, RuntimeError):
                await client.call("GET", "/sessions?view=consumer", key=target.consumer["key"])
                return
            await asyncio.sleep(0.2)


def gets(target: Target, ids: list[str]) -> list[dict[str, str]]:
    """Read each session."""
    return [{"method": "GET", "path": f"/api/v1/sessions/{each}", "key": target.consumer["key"]} for each in ids]


def quote(target: Target) -> dict[str, str]:
    """Ask for a price."""
    path = f"/api/v1/pricing/quote?lat={PLACE['lat']}&lng={PLACE['lng']}&durationSeconds=600"
    return {"method": "GET", "path": path, "key": target.consumer["key"]}


async def dispatches(target: Target, connections: int, ids: list[str]) -> Result:
    """Dispatch sessions; no operator may be assigned twice."""
    wanted = [
        {"method": "POST", "path": f"/api/v1/sessions/{each}/dispatch", "key": target.consumer["key"]} for each in ids
    ]
    result = await load(target, kind="once", connections=connections, requests=wanted)
    operators = result.pop("operators")
    assert len(set(operators.values())) == len(operators), "an operator was assigned twice"
    assert len(operators) == len(ids), result
    return result


async def moves(options: argparse.Namespace) -> list[str]:
    """Kill and stop workers while all sessions are read."""
    directory = Path(tempfile.mkdtemp(prefix="sightline-bench-"))
    lines = [
        "| fault | rounds | sessions | worst ms | median of rounds ms | answers that are not 200 |",
        "|" + "---|" * 6,
    ]
    async with sightline(directory, SIGHTLINE_WORKERS="2") as target:
        await populate_sightline(target, operators=2, devices=2)
        ids = await sightline_sessions(target, SESSIONS)
        for name, number in (("worker kill -9", signal.SIGKILL), ("worker stopped in order", signal.SIGTERM)):
            outages: list[float] = []
            refused: dict[str, int] = {}
            for round_number in range(options.kills):
                watching = asyncio.create_task(watch(target, ids, refused, WATCHED_S))
                workers = [each for each in tree(target) if "bootstrap.workers.worker" in " ".join(each.cmdline())]
                started = worker_starts(directory)
                workers[round_number % len(workers)].send_signal(number)
                outages.append(await watching)
                async with asyncio.timeout(60):
                    while worker_starts(directory) == started:  # noqa: ASYNC110  another process writes the log
                        await asyncio.sleep(POLL_S)
            lines.append(
                f"| {name} | {len(outages)} | {len(ids)} | {max(outages) * 1e3:.0f} | "
                f"{statistics.median(outages) * 1e3:.0f} | {refused or 'none'} |"
            )
            print(lines[-1], flush=True)
    return lines


def worker_starts(directory: Path) -> int:
    """How often a worker has become ready, by the supervisor's log."""
    return (directory / "sightline.log").read_text().count('"worker_ready"')


async def watch(target: Target, ids: list[str], refused: dict[str, int], seconds: float) -> float:
    """Read all sessions again and again; return the longest time between two good answers of one session."""
    until, worst = time.perf_counter() + seconds, 0.0
    key = target.consumer["key"]

    async def read(mine: list[str]) -> None:
        nonlocal worst
        client = Client(HOST, target.port)
        last = dict.fromkeys(mine, time.perf_counter())
        while time.perf_counter() < until:
            for session_id in mine:
                try:
                    await client.call("GET", f"/sessions/{session_id}", key=key)
                except Exception as error:  # noqa: BLE001 (counted)
                    text = str(error)[:60] or type(error).__name__
                    refused[text] = refused.get(text, 0) + 1
                    client.close()
                    client = Client(HOST, target.port)
                    await asyncio.sleep(POLL_S)
                    continue
                now = time.perf_counter()
                worst = max(worst, now - last[session_id])
                last[session_id] = now
        client.close()

    await asyncio.gather(*(read(ids[part::20]) for part in range(20)))
    return worst


def main() -> None:
    """Measure what is asked for and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["ask", "load", "moves"])
    parser.add_argument("--workers", default="1,2", help="numbers of workers; the first is the base of the ratios")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--operators", type=int, default=2_000)
    parser.add_argument("--dispatches", type=int, default=200)
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args()
    began = (
        f"load average at the start {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {platform.python_version()}"
    )
    tables: list[list[str]] = []
    if "ask" in options.only:
        tables.append(trio.run(asks))
    if "load" in options.only:
        tables.append(uvloop.run(loads(options)))
    if "moves" in options.only:
        tables.append(uvloop.run(moves(options)))
    print("\n" + began + "\n")
    for table in tables:
        print("\n".join(table) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["own"]:
        trio.run(own, sys.argv[2], sys.argv[3])
    else:
        main()
