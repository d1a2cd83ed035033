"""Benchmarks of the actors: asks per second, memory per idle actor, latency under heartbeats, recovery time.

    python bench/actors.py [--quick] [--json FILE]

One process on one core runs the real actors over the store in memory. This measures the kernel and the actors;
bench/storage.py measures Postgres. Every figure is taken in a new process. Compare medians of several runs.
"""

import argparse
import gc
import itertools
import json
import logging
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
import trio
import trio.testing

from sightline.actors.build import Actors, build_actors
from sightline.actors.deps import SESSION, WORKSPACE, ActorLimits, Deps
from sightline.actors.kernel import Command, Context, Envelope, KindName, Registry
from sightline.actors.messages import GetSession
from sightline.actors.shards import OwnedShards
from sightline.actors.types import HeartbeatReport
from sightline.actors.watchers import Watchers
from sightline.bootstrap.start import GC_THRESHOLDS
from sightline.domain.geofence import DeviceKind
from sightline.domain.metering import Evidence
from sightline.domain.operator.model import Availability, Claim, Workspace, WorkspaceRole
from sightline.domain.session.machine import create, fence_of
from sightline.domain.session.model import Live, LocationState, Operator, Session, Terms, VideoInput
from sightline.domain.units import MicroUsdc
from sightline.ports.store import SessionWrite, ShardLease, WorkspaceWrite
from sightline.ports.video import MediaEvent, MediaKind
from sightline.ports.video import VideoInput as PortInput
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from simulation.adapters.no_other_servers import NoOtherServers
from simulation.memory.identity import MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.shards import take_every_shard

LAT, LNG = 52.52, 13.405


class Ping(Command["Ping", int]):
    """Asks for the number of messages handled."""


ECHO = KindName[Ping, int]("echo")
PING = Ping()


class Echo:
    """An actor that answers each ask and does nothing else."""

    def __init__(self, context: Context[Ping]) -> None:
        self.handled = 0

    async def load(self) -> None:
        """Nothing to load."""

    async def handle(self, envelope: Envelope[Ping]) -> None:
        self.handled += 1
        envelope.reply(envelope.message, self.handled)

    def snapshot(self) -> int:
        return self.handled

    def may_passivate(self) -> bool:
        return False


class NoVideo:
    """A video engine that accepts every call and reports the media events it is given."""

    def __init__(self) -> None:
        self.told, self._events = trio.open_memory_channel[MediaEvent](100_000)

    async def create_input(self, session_id: str) -> PortInput:
        await trio.lowlevel.checkpoint()
        return PortInput(ref=session_id, whip_url="whip", whep_url="whep")

    async def close_input(self, ref: str) -> None:
        await trio.lowlevel.checkpoint()

    def events(self) -> trio.MemoryReceiveChannel[MediaEvent]:
        return self._events

    async def play(self, sessions: list[str], clock: SystemClock) -> None:
        """Report one frame a second in each session, at a different phase for each."""
        began = trio.current_time()
        for number in itertools.count():
            second, place = divmod(number, len(sessions))
            await trio.sleep_until(began + second + place / len(sessions))
            session_id = sessions[place]
            event = MediaEvent(ref=session_id, session_id=session_id, kind=MediaKind.FRAMES, at_ms=clock.now_ms())
            self.told.send_nowait(event)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def per_second(count: int, seconds: float) -> float:
    return round(count / seconds)


ROUNDS = 7


async def rate_of(count: int, work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Return the rate per second of wall-clock time and of processor time. Other processes do not affect the latter."""
    began, busy = time.perf_counter(), time.process_time()
    await work()
    return count / (time.perf_counter() - began), count / (time.process_time() - busy)


async def repeat(times: int, act: Callable[[], Awaitable[object]]) -> None:
    """Repeat a measurement."""
    for _ in range(times):
        await act()


def summed_up(rates: list[tuple[float, float]]) -> dict[str, float]:
    """Return the medians of the rounds."""
    wall, busy = (round(statistics.median(column)) for column in zip(*rates, strict=True))
    return {"per_wall_s": wall, "per_cpu_s": busy}


# Asks.


async def ask_one_after_another(asks: int) -> dict[str, float]:
    """Measure the round trip of an ask with one caller and one actor."""
    registry = Registry(clock=SystemClock(), rng=random.Random(1))
    registry.register(ECHO, Echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.run)
        ref = registry.ref(ECHO, "one")
        await ref.ask(PING, timeout_s=10)
        rates = [await rate_of(asks, lambda: repeat(asks, lambda: ref.ask(PING, timeout_s=10))) for _ in range(ROUNDS)]
        await registry.close(drain_s=1)
    return summed_up(rates)


async def ask_many_actors(actors: int, asks: int) -> dict[str, float]:
    """Measure asks of 100 callers to many actors."""
    registry = Registry(clock=SystemClock(), rng=random.Random(1))
    registry.register(ECHO, Echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.run)
        refs = [registry.ref(ECHO, str(number)) for number in range(actors)]
        for ref in refs:
            await ref.ask(PING, timeout_s=10)

        async def asker(first: int) -> None:
            for number in range(asks // 100):
                await refs[(first + number * 7) % actors].ask(PING, timeout_s=10)

        async def all_askers() -> None:
            async with trio.open_nursery() as asking:
                for first in range(100):
                    asking.start_soon(asker, first)

        rates = [await rate_of(asks, all_askers) for _ in range(ROUNDS)]
        await registry.close(drain_s=1)
    return summed_up(rates)


async def ask_with_a_scope_each(asks: int) -> dict[str, float]:
    """Measure the same with `trio.fail_after` around every ask; the difference is the saving of shared deadlines."""
    registry = Registry(clock=SystemClock(), rng=random.Random(1))
    registry.register(ECHO, Echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.run)
        ref = registry.ref(ECHO, "one")
        await ref.ask(PING, timeout_s=10)

        async def ask() -> None:
            with trio.fail_after(10):
                await ref.ask(PING, timeout_s=float("inf"))

        rates = [await rate_of(asks, lambda: repeat(asks, ask)) for _ in range(ROUNDS)]
        await registry.close(drain_s=1)
    return summed_up(rates)


async def idle_kernel_actors(actors: int) -> dict[str, float]:
    """Measure the memory of an actor without state of its own."""
    registry = Registry(clock=SystemClock(), rng=random.Random(1))
    registry.register(ECHO, Echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.run)
        gc.collect()
        before = resident_bytes()
        for number in range(actors):
            await registry.activate(ECHO, f"{number:032x}")
        gc.collect()
        used = resident_bytes() - before
        await registry.close(drain_s=1)
    return {"bytes_per_actor": round(used / actors)}


async def timers_pushed_out(timers: int) -> dict[str, float]:
    """Measure moving a timer to a later time, as every heartbeat does."""
    registry = Registry(clock=SystemClock(), rng=random.Random(1))
    registry.register(ECHO, Echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(registry.run)
        refs = [registry.ref(ECHO, str(number)) for number in range(timers)]
        now_ms = registry.clock.now_ms()
        began = time.process_time()
        for again in range(20):
            for ref in refs:
                registry.timers.set(ref, now_ms + 60_000 + again, PING)
        spent = time.process_time() - began
        heap = registry.timers.heap_size
        await registry.close(drain_s=1)
    return {"sets_per_cpu_s": per_second(20 * timers, spent), "heap_entries_per_timer": heap / timers}


# Live sessions.


class City:
    """A number of LIVE sessions, each with an operator, in a store in memory."""

    def __init__(self) -> None:
        self.ids = SystemIds()
        self.clock = SystemClock()
        self.ledger = MemoryLedger()
        self.relations = MemoryRelations(token_key=b"k" * 32)
        self.store = MemoryStore(relations=self.relations, ledger=self.ledger)
        self.video = NoVideo()
        self.sessions: list[str] = []
        self.operators: list[str] = []

    async def fill(self, live: int) -> None:
        """Write the rows."""
        epochs = await take_every_shard(self.store, "bench", "fill")
        for number in range(live):
            session, workspace = self._pair(number)
            self.sessions.append(session.id)
            self.operators.append(workspace.id)
            lease = ShardLease(int(session.id[:2], 16), epochs[int(session.id[:2], 16)])
            await self.store.write_session(
                SessionWrite(lease=lease, session=session, at_ms=self.clock.now_ms(), due_at_ms=None)
            )
            lease = ShardLease(int(workspace.id[:2], 16), epochs[int(workspace.id[:2], 16)])
            await self.store.write_workspace(
                WorkspaceWrite(lease=lease, workspace=workspace, at_ms=self.clock.now_ms())
            )

    def _pair(self, number: int) -> tuple[Session, Workspace]:
        now_ms, address = self.clock.now_ms(), f"0x{number:040x}"
        session_id, workspace_id = self.ids.uuid(), self.ids.uuid()
        operator = Operator(
            workspace_id=workspace_id,
            wallet_address=address,
            device_kind=DeviceKind.PHONE,
            coverage_lat=LAT,
            coverage_lng=LNG,
        )
        terms = Terms(
            id=session_id, consumer_workspace_id=self.ids.uuid(), payer_address=address, lat=LAT, lng=LNG,
            radius_m=500, max_duration_s=14_400, wait_timeout_s=300, rate=MicroUsdc(1000),
            hold=MicroUsdc(14_400_000), platform_fee_bps=1500, quote_id=None, instructions=None, metadata_json=None,
            created_at_ms=now_ms,
        )  # fmt: skip
        phase = Live(
            operator=operator,
            assigned_at_ms=now_ms,
            started_at_ms=now_ms,
            ends_at_ms=now_ms + 14_400_000,
            video=VideoInput(ref=session_id, whip_url="whip", whep_url="whep"),
            evidence=Evidence(started_at_ms=now_ms),
            location=LocationState(
                fence=fence_of(terms, operator, ActorLimits().session), device_kind=DeviceKind.PHONE
            ),
        )
        session = Session(terms=terms, phase=phase, head_hash=create(terms).session.head_hash)
        workspace = Workspace(
            id=workspace_id, slug=f"operator-{number}", name=f"Operator {number}", wallet_address=address,
            roles=(WorkspaceRole.SUPPLIER,), created_at_ms=now_ms, created_by_wallet=address,
            availability=Availability.BUSY, rest=Availability.ONLINE, coverage_lat=LAT, coverage_lng=LNG,
            coverage_radius_m=5_000.0, device_kind=DeviceKind.PHONE,
            claims={session_id: Claim(session_id=session_id, at_ms=now_ms, is_live=True)},
        )  # fmt: skip
        return session, workspace

    async def build(self) -> Actors:
        """Create the server's actors over this store."""
        deps = Deps(
            store=self.store,
            video=self.video,  # type: ignore[arg-type]
            relations=self.relations,
            clock=self.clock,
            ids=self.ids,
            rng=random.Random(1),
            limits=ActorLimits(unstarted_dispatches_max=0),
            watchers=Watchers(),
            owned=OwnedShards(await take_every_shard(self.store, "bench", "run")),
            on_settlement=lambda: None,
        )
        return build_actors(deps, NoOtherServers())

    async def open(self, nursery: trio.Nursery) -> Actors:
        """Start the actors without recovery, so that none is in memory yet."""
        actors = await self.build()
        nursery.start_soon(actors.writer.run)
        nursery.start_soon(actors.pump.run)
        await nursery.start(actors.registry.run)
        return actors


async def activate_all(registry: Registry, kind: str, ids: list[str], at_once: int = 64) -> None:
    """Load all actors into memory, as recovery does."""
    queue = iter(ids)

    async def worker() -> None:
        for actor_id in queue:
            await registry.activate(kind, actor_id)

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(worker)


async def idle_session_actors(live: int) -> dict[str, float]:
    """Measure the memory of a LIVE session's actor with its state, in addition to the store's copy."""
    city = City()
    await city.fill(live)
    async with trio.open_nursery() as nursery:
        registry = (await city.open(nursery)).registry
        await activate_all(registry, SESSION, city.sessions[:100])
        await activate_all(registry, WORKSPACE, city.operators)
        await trio.testing.wait_all_tasks_blocked(0.05)
        gc.collect()
        before = resident_bytes()
        await activate_all(registry, SESSION, city.sessions[100:])
        await trio.testing.wait_all_tasks_blocked(0.05)
        gc.collect()
        used = resident_bytes() - before
        nursery.cancel_scope.cancel()
    return {"bytes_per_session_actor": round(used / (live - 100))}


async def recovery(live: int) -> dict[str, float]:
    """Measure the time until every LIVE session and its operator are loaded with their timers set."""
    city = City()
    await city.fill(live)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    async with trio.open_nursery() as nursery:
        began, busy = time.perf_counter(), time.process_time()
        actors = await city.build()
        await nursery.start(actors.run)
        registry = actors.registry
        await registry.ref(SESSION, city.sessions[0]).ask(GetSession(), timeout_s=10)
        spent, busy = time.perf_counter() - began, time.process_time() - busy
        assert len(dict(registry.snapshots(SESSION))) == live
        nursery.cancel_scope.cancel()
    return {"wall_s": round(spent, 2), "cpu_s": round(busy, 2)}


async def under_heartbeats(live: int, seconds: float) -> dict[str, float]:
    """Measure the latency of an ask under load.

    Each LIVE session's device sends a heartbeat every 2 s and video frames every second, at spread phases.
    """
    city = City()
    await city.fill(live)
    asks: list[float] = []
    beats: list[float] = []
    late: list[float] = []
    async with trio.open_nursery() as nursery:
        actors = await city.open(nursery)
        registry, broker = actors.registry, actors.broker
        await activate_all(registry, SESSION, city.sessions)
        await activate_all(registry, WORKSPACE, city.operators)
        gc.collect()
        gc.freeze()
        rng = random.Random(1)

        async def device(workspace_id: str, phase_s: float) -> None:
            due, sequence = trio.current_time() + phase_s, 0
            while True:
                await trio.sleep_until(due)
                due += 2.0
                sequence += 1
                report = HeartbeatReport(lat=LAT, lng=LNG, sequence=sequence, accuracy_m=10.0)
                began = time.perf_counter()
                try:
                    await broker.heartbeat(workspace_id, report)
                except Exception:  # noqa: BLE001  counted as missing
                    continue
                beats.append(time.perf_counter() - began)

        async def prober() -> None:
            while True:
                due = trio.current_time() + 0.005
                await trio.sleep_until(due)
                late.append(trio.current_time() - due)
                ref = registry.ref(SESSION, city.sessions[rng.randrange(live)])
                began = time.perf_counter()
                await ref.ask(GetSession(), timeout_s=30)
                asks.append(time.perf_counter() - began)

        nursery.start_soon(city.video.play, city.sessions, city.clock)
        for workspace_id in city.operators:
            nursery.start_soon(device, workspace_id, rng.random() * 2)
        await trio.sleep(2.5)
        beats.clear()
        nursery.start_soon(prober)
        busy = time.process_time()
        await trio.sleep(seconds)
        busy = time.process_time() - busy
        nursery.cancel_scope.cancel()

    def at(values: list[float], share: float) -> float:
        return round(sorted(values)[int(share * (len(values) - 1))] * 1000, 2) if values else -1.0

    return {
        "ask_p50_ms": at(asks, 0.5),
        "ask_p99_ms": at(asks, 0.99),
        "beat_p50_ms": at(beats, 0.5),
        "beat_p99_ms": at(beats, 0.99),
        "loop_late_p99_ms": at(late, 0.99),
        "beats_per_s": per_second(len(beats), seconds),
        "beats_wanted_per_s": live / 2,
        "core_share": round(busy / seconds, 2),
    }


MEASURES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    # name: (function, arguments, arguments of --quick)
    "ask, one asker and one actor": (ask_one_after_another, (20_000,), (2_000,)),
    "ask, 100 askers over 1,000 actors": (ask_many_actors, (1_000, 50_000), (100, 5_000)),
    "ask, a cancel scope each instead of shared deadlines": (ask_with_a_scope_each, (20_000,), (2_000,)),
    "timer pushed out": (timers_pushed_out, (10_000,), (1_000,)),
    "idle actor without state": (idle_kernel_actors, (50_000,), (5_000,)),
    "idle actor of a live session": (idle_session_actors, (10_000,), (1_000,)),
    "recovery with 10,000 live sessions": (recovery, (10_000,), (500,)),
    "1,000 live sessions, a heartbeat each 2 s": (under_heartbeats, (1_000, 10.0), (100, 2.0)),
    "4,000 live sessions, a heartbeat each 2 s": (under_heartbeats, (4_000, 10.0), (200, 2.0)),
    "16,000 live sessions, a heartbeat each 2 s": (under_heartbeats, (16_000, 10.0), (400, 2.0)),
}


def measure(name: str, quick: bool) -> dict[str, float]:
    """Take one figure in this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    function, full, short = MEASURES[name]
    result: dict[str, float] = trio.run(function, *(short if quick else full))
    return result


def main() -> None:
    """Take every figure in a new process and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small numbers: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--only", help="measure only what contains this")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = {}
    for name in MEASURES:
        if options.only and options.only not in name:
            continue
        with context.Pool(1) as pool:
            results[name] = pool.apply(measure, (name, options.quick))
        print(f"{name:55s}", "  ".join(f"{key}={value:,}" for key, value in results[name].items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version, "figures": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
