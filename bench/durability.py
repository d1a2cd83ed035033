"""Kills the server under each kind of load and checks that no acknowledged data is lost:
`python -m bench.durability [--devices 4000] [--seed 1]`.

For each load, the server and (every other time) its database are killed with SIGKILL at a seeded moment and restarted
on the same data. Then the database is read: it must hold every acknowledged heartbeat once, and every answered dispatch
with its operator; no operator may have two sessions. Exits with 1 when data is lost or duplicated.
"""

import argparse
import asyncio
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import uvloop

from bench.servers import ROOT, Target, populate_sightline, sightline, sightline_sessions
from sightline.storage.embedded.postgres_child import find_binaries, lay_out

SECONDS = 6.0
KILL_AFTER_S = (2.5, 4.5)
"""Range of the moment of the kill. The connections of the load need up to one second to open."""


def loads(target: Target, sessions: list[str]) -> dict[str, dict[str, Any]]:
    """Return the load generator's jobs, with the parameters of `bench.run`."""
    devices, key = target.devices, target.consumer["key"]
    usual = {"seconds": SECONDS, "acknowledged": True}
    dispatches = [{"method": "POST", "path": f"/api/v1/sessions/{each}/dispatch", "key": key} for each in sessions]
    return {
        "single POST": {"kind": "closed", "connections": 64, "devices": devices[:64], **usual},
        "batch POST (100)": {"kind": "closed", "connections": 16, "devices": devices[64:80], "batch": 100, **usual},
        "WebSocket": {"kind": "stream", "connections": 32, "devices": devices[80:112], "window": 16, **usual},
        f"{len(devices):,} devices, a heartbeat in 2 s": {
            "kind": "paced",
            "connections": len(devices),
            "devices": devices,
            **usual,
        },
        "dispatch": {"kind": "once", "connections": 16, "requests": dispatches, **usual},
    }


async def generate(target: Target, job: dict[str, Any]) -> tuple[asyncio.subprocess.Process, "asyncio.Task[bytes]"]:
    """Start the load generator; the task returns its result."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, limit=2**26
    )

    async def result() -> bytes:
        out, _ = await process.communicate(json.dumps({**target.address, **job}).encode())
        return out

    return process, asyncio.create_task(result())


def kill(target: Target, *, database: bool) -> None:
    """Kill the server with SIGKILL; with `database`, kill the database processes first."""
    if database:
        for child in reversed(psutil.Process(target.process.pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    target.process.send_signal(signal.SIGKILL)
    target.process.wait()


async def one_load(directory: Path, target: Target, job: dict[str, Any], after_s: float, *, database: bool) -> Any:
    """Kill the server during the load, and return what was acknowledged before."""
    _, result = await generate(target, job)
    await asyncio.sleep(after_s)
    kill(target, database=database)
    return json.loads((await result).splitlines()[-1])


async def wrong_in(directory: Path, told: dict[str, Any]) -> list[str]:
    """Return acknowledged data that is missing in the database or stored twice."""
    connection = await asyncpg.connect(lay_out(directory / "sightline" / "postgres", find_binaries()).dsn)
    found: list[str] = []
    try:
        for workspace_id, sequences in told["acknowledged"].items():
            rows = await connection.fetch(
                "SELECT sequence FROM heartbeat WHERE workspace_id = $1 AND sequence >= $2",
                workspace_id,
                min(sequences, default=0),
            )
            stored = Counter(row["sequence"] for row in rows)
            found += [f"{workspace_id}: heartbeat {each} is lost" for each in sequences if each not in stored]
            found += [
                f"{workspace_id}: heartbeat {each} is stored twice" for each, count in stored.items() if count > 1
            ]
        assigned = {
            str(row["id"]): str(row["operator"])
            for row in await connection.fetch(
                "SELECT id, operator_workspace_id AS operator FROM session WHERE state = 'ASSIGNED'"
            )
        }
        found += [
            f"session {session_id}: {operator} was assigned, but {assigned.get(session_id)} is stored"
            for session_id, operator in told.get("operators", {}).items()
            if assigned.get(session_id) != operator
        ]
        found += [
            f"operator {each} has {count} sessions" for each, count in Counter(assigned.values()).items() if count > 1
        ]
    finally:
        await connection.close()
    return found


async def main(options: argparse.Namespace) -> int:
    """Run every load once."""
    rng, directory = random.Random(options.seed), Path(tempfile.mkdtemp(prefix="sightline-durability-"))
    async with sightline(directory) as first:
        await populate_sightline(first, operators=options.operators, devices=options.devices)
        sessions = await sightline_sessions(first, options.operators - 100)
        jobs = loads(first, sessions)
    wrong: list[str] = []
    for number, (name, job) in enumerate(jobs.items()):
        database = number % 2 == 1
        async with sightline(directory) as target:
            told = await one_load(directory, target, job, rng.uniform(*KILL_AFTER_S), database=database)
        async with sightline(directory):
            found = await wrong_in(directory, told)
        acknowledged = sum(len(each) for each in told["acknowledged"].values()) + len(told.get("operators", ()))
        victims = "server and database" if database else "server"
        print(f"{name}: {victims} killed after {acknowledged:,} acknowledged; {len(found)} wrong", flush=True)
        wrong += found or ([] if acknowledged else [f"{name}: nothing was acknowledged"])
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.durability")
    parser.add_argument("--devices", type=int, default=4_000)
    parser.add_argument("--operators", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.exit(uvloop.run(main(parsed(sys.argv[1:]))))
