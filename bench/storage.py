"""Benchmarks the store's operations per second, on an embedded Postgres with fsync on. Takes about a minute.

    python bench/storage.py [--seconds 2] [--pool 8] [--dsn postgresql://...]

With --dsn the database must be empty: it is migrated and filled.
"""

import argparse
import itertools
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from sightline.domain.geofence import DeviceKind, Fence, Fix
from sightline.domain.metering import Evidence
from sightline.domain.operator.model import Availability, Workspace, WorkspaceRole
from sightline.domain.session.machine import create
from sightline.domain.session.model import Live, LocationState, Operator, Session, Terms, VideoInput
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.store import (
    Committed,
    Heartbeat,
    HeartbeatWrite,
    SessionQuery,
    SessionView,
    SessionWrite,
    ShardLease,
    WorkspaceWrite,
)
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.migrate import migrate
from sightline.storage.database.pool import PoolOptions
from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres
from sightline.storage.postgres.store import PostgresStore
from tests.shards import take_every_shard

NOW_MS = 1_760_000_000_000


@dataclass
class Bench:
    database: Database
    store: PostgresStore
    epochs: dict[int, int]
    seconds: float

    async def measure(self, name: str, callers: int, call: Callable[[int], Awaitable[int]]) -> None:
        """Run this many callers in a loop; `call` gets the caller's number and returns how many items it processed."""
        done, waits = 0, list[float]()
        began, busy = time.perf_counter(), time.process_time()
        ends = began + self.seconds

        async def caller(number: int) -> None:
            nonlocal done
            while (start := time.perf_counter()) < ends:
                # Not in one expression: that would read `done` before the wait and lose the additions of other callers.
                result = await call(number)
                done += result
                waits.append(time.perf_counter() - start)

        async with trio.open_nursery() as nursery:
            for number in range(callers):
                nursery.start_soon(caller, number)
        wall = time.perf_counter() - began
        waits.sort()
        cpu_us = (time.process_time() - busy) / done * 1e6
        p50, p99 = (waits[int(len(waits) * share)] * 1e3 for share in (0.5, 0.99))
        print(f"{name:42} {callers:4} {done / wall:10,.0f} {p50:8.2f} {p99:8.2f} {cpu_us:8.0f}")


def a_session(operator_id: str) -> Session:
    terms = Terms(
        id=str(uuid.uuid4()), consumer_workspace_id=str(uuid.uuid4()), payer_address="0x" + "a" * 40, lat=52.5,
        lng=13.4, radius_m=500, max_duration_s=600, wait_timeout_s=300, rate=MicroUsdc(1000), hold=MicroUsdc(600_000),
        platform_fee_bps=1500, quote_id=None, instructions=None, metadata_json=None, created_at_ms=NOW_MS,
    )  # fmt: skip
    operator = Operator(
        workspace_id=operator_id, wallet_address="0x" + "b" * 40, device_kind=DeviceKind.PHONE, coverage_lat=None,
        coverage_lng=None,
    )  # fmt: skip
    live = Live(
        operator=operator, assigned_at_ms=NOW_MS, started_at_ms=NOW_MS, ends_at_ms=NOW_MS + 600_000,
        video=VideoInput(ref="ref", whip_url="http://localhost/whip/x", whep_url="http://localhost/whep/x"),
        evidence=Evidence(started_at_ms=NOW_MS),
        location=LocationState(fence=Fence(lat=52.5, lng=13.4, radius_m=500), device_kind=DeviceKind.PHONE),
    )  # fmt: skip
    return replace(create(terms).session, phase=live)


def a_workspace() -> Workspace:
    name = uuid.uuid4().hex
    return Workspace(
        id=str(uuid.UUID(name)), slug=name[:30], name="bench", wallet_address="0x" + "b" * 40,
        roles=(WorkspaceRole.SUPPLIER,), created_at_ms=NOW_MS, created_by_wallet="0x" + "b" * 40,
        availability=Availability.ONLINE,
    )  # fmt: skip


async def bench_bridge(bench: Bench) -> None:
    async def ask(_: int) -> int:
        return int(await bench.database.read(lambda connection: connection.fetchval("SELECT 1")))

    for callers in (1, 16):
        await bench.measure("bridge: SELECT 1", callers, ask)


async def bench_sessions(bench: Bench) -> None:
    sessions: dict[int, Session] = {}

    async def step(number: int) -> int:
        session = sessions.get(number) or a_session(str(uuid.uuid4()))
        # Spread over shards as real sessions are: 256 rows instead of one.
        lease = ShardLease(number % 256, bench.epochs[number % 256])
        result = await bench.store.write_session(
            SessionWrite(lease=lease, session=session, at_ms=NOW_MS, due_at_ms=NOW_MS)
        )
        assert isinstance(result, Committed)
        sessions[number] = replace(session, version=result.version)
        return 1

    for callers in (1, 8, 32, 128):
        await bench.measure("session step (one statement)", callers, step)

    async def load(number: int) -> int:
        return 1 if await bench.store.load_session(sessions[number].id) else 0

    await bench.measure("load session, LIVE", 16, load)
    consumer = sessions[0].terms.consumer_workspace_id
    query = SessionQuery(workspace_id=consumer, view=SessionView.PARTY, now_ms=NOW_MS, limit=20)

    async def page(_: int) -> int:
        return len(await bench.store.list_sessions(query))

    await bench.measure("list sessions, one found", 16, page)


async def bench_workspaces(bench: Bench) -> None:
    workspaces: dict[int, Workspace] = {}

    async def step(number: int) -> int:
        workspace = workspaces.get(number) or a_workspace()
        lease = ShardLease(number % 256, bench.epochs[number % 256])
        result = await bench.store.write_workspace(WorkspaceWrite(lease=lease, workspace=workspace, at_ms=NOW_MS))
        assert isinstance(result, Committed)
        workspaces[number] = replace(workspace, version=result.version)
        return 1

    for callers in (1, 32):
        await bench.measure("workspace step (one statement)", callers, step)


async def bench_heartbeats(bench: Bench) -> None:
    sequences = itertools.count()
    devices = [str(uuid.uuid4()) for _ in range(2_000)]

    def beats(count: int) -> list[Heartbeat]:
        fix = Fix(lat=52.52, lng=13.405, accuracy_m=8.0, at_ms=NOW_MS, taken_at_ms=NOW_MS)
        return [
            Heartbeat(workspace_id=devices[n % 2_000], sequence=n, fix=fix, is_fresh=True, speed_mps=1.5)
            for n in itertools.islice(sequences, count)
        ]

    for size in (1, 50, 500, 2_000):

        async def append(_: int, size: int = size) -> int:
            assert not await bench.store.append_heartbeats(
                [HeartbeatWrite(ShardLease(0, bench.epochs[0]), tuple(beats(size)))]
            )
            return size

        await bench.measure(f"heartbeats, batches of {size}", 2, append)


@asynccontextmanager
async def open_dsn(dsn: str | None) -> AsyncIterator[str]:
    if dsn is not None:
        yield dsn
        return
    with tempfile.TemporaryDirectory(prefix="sightline-bench-") as directory:
        options = EmbeddedPostgresOptions(directory=Path(directory) / "pg", log_path=Path(directory) / "log")
        async with trio.open_nursery() as nursery:
            yield await nursery.start(run_embedded_postgres, options)
            nursery.cancel_scope.cancel()


async def main(arguments: argparse.Namespace) -> None:
    async with open_dsn(arguments.dsn) as dsn:
        pool = PoolOptions(dsn=dsn, connections_max=arguments.pool)
        async with open_database(DatabaseOptions(pool=pool)) as database:
            await migrate(database)
            store = PostgresStore(database)
            bench = Bench(database, store, dict(await take_every_shard(store, "bench", "1")), arguments.seconds)
            print(f"{'work':42} {'at once':>4} {'per second':>9} {'p50 ms':>8} {'p99 ms':>8} {'CPU us':>8}")
            for part in (bench_bridge, bench_sessions, bench_workspaces, bench_heartbeats):
                await part(bench)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--pool", type=int, default=8)
    parser.add_argument("--dsn")
    trio.run(main, parser.parse_args())
