"""Measures the CPU use of an idle server with a large database: `python -m bench.idle [--wallets N] [--answers N]`.

Starts a server on an embedded Postgres and an embedded chain, fills the tables of wallets and of idempotency records,
and starts the server again. Half of the records are older than their retention. When the server has deleted these, has
read the new wallets, and Postgres has vacuumed, the CPU time of all processes is measured for a minute.
Exits with 1 if it is above the limit.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil

from bench.servers import Target, sightline
from sightline.domain.value import Value
from sightline.storage.embedded.postgres_child import find_binaries, lay_out

SECONDS: Final = 60.0
CATCH_UP_S: Final = 1_200.0
LIMIT_PERCENT: Final = 2.0
CHUNK: Final = 200_000
NEW_WALLET_EVERY: Final = 50
"""One wallet in this many is new: its history is read from the chain. The others were last read a day ago."""

FILL_ANSWERS: Final = """
INSERT INTO idempotency (scope, method, path, key, body_hash, result, at_ms)
SELECT gen_random_uuid()::text, 'POST', '/api/v1/sessions', gen_random_uuid()::text, repeat('b', 64),
  json_build_object('status', 200, 'data', json_build_object('id', gen_random_uuid(), 'note', repeat('n', 150))),
  (extract(epoch FROM now()) * 1000 - random() * 2 * 86400000)::bigint
FROM generate_series($1::integer, $2::integer)
"""
FILL_WALLETS: Final = """
INSERT INTO tracked_wallet (workspace_id, address, tracked_at_ms)
SELECT gen_random_uuid(), '0x' || lpad(to_hex(n), 40, '0'), 0 FROM generate_series(1, $1::integer) n
"""
FILL_READINGS: Final = """
INSERT INTO wallet_state (address, balance, allowance, block_number, needs_reading, updated_at_ms)
SELECT '0x' || lpad(to_hex(n), 40, '0'), 0, 0, 0, false, (extract(epoch FROM now()) * 1000)::bigint - 86400000
FROM generate_series(1, $1::integer) n WHERE n % $2 <> 0
"""
FORGET_READ: Final = """
DELETE FROM wallet_to_read USING wallet_state WHERE wallet_to_read.address = wallet_state.address
"""
EXPIRED: Final = """
SELECT count(*) FROM (SELECT FROM idempotency
  WHERE at_ms < (extract(epoch FROM now()) * 1000)::bigint - 86400000 - 600000 LIMIT 1) AS any_expired
"""
"""Ten minutes behind retention, which runs once at the start and then every hour."""
TO_READ: Final = "SELECT count(*) FROM wallet_to_read"
VACUUMS: Final = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
UNVACUUMED: Final = """
SELECT count(*) FROM pg_stat_user_tables WHERE relname = 'idempotency' AND n_dead_tup > 50 + 0.2 * n_live_tup
"""


class Share(Value):
    """CPU time of the processes of one kind."""

    kind: str
    processes: int
    cpu_s: float


async def fill(dsn: str, *, wallets: int, answers: int) -> None:
    """Fill the tables through the schema of the server, with its indexes and triggers."""
    connection = await asyncpg.connect(dsn)
    for first in range(0, answers, CHUNK):
        await connection.execute(FILL_ANSWERS, first + 1, min(answers, first + CHUNK))
    await connection.execute(FILL_WALLETS, wallets)
    await connection.execute(FILL_READINGS, wallets, NEW_WALLET_EVERY)
    await connection.execute(FORGET_READ)
    await connection.execute("ANALYZE")
    await connection.close()


async def waited_s(what: str, is_done: Callable[[], Awaitable[bool]]) -> float:
    """Wait until something is done; returns the seconds."""
    began = time.monotonic()
    while not await is_done():
        if time.monotonic() - began > CATCH_UP_S:
            raise TimeoutError(f"{what}: not done after {CATCH_UP_S:.0f} s")
        await asyncio.sleep(1)
    return time.monotonic() - began


async def catch_up(dsn: str) -> dict[str, float]:
    """Wait until housekeeping has finished; returns the seconds until each part of it was done."""
    connection = await asyncpg.connect(dsn)
    began = time.monotonic()
    done: dict[str, float] = {}
    for what, questions in (
        ("new wallets are read", [TO_READ]),
        ("expired records are deleted", [EXPIRED]),
        ("Postgres has vacuumed", [UNVACUUMED, VACUUMS]),
    ):

        async def is_done(questions: list[str] = questions) -> bool:
            return not any([await connection.fetchval(question) for question in questions])

        await waited_s(what, is_done)
        done[what] = time.monotonic() - began
    await connection.close()
    return done


def kind_of(process: psutil.Process) -> str:
    """Name the part of the service to which a process belongs."""
    words = " ".join(process.cmdline())
    for word, kind in (
        ("sightline.video", "video workers"),
        ("sightline.chain", "embedded chain"),
        ("sightline.cli", "server"),
        ("sightline.storage", "Postgres"),
        ("postgres", "Postgres"),
        ("uvicorn", "server"),
    ):
        if word in words:
            return kind
    return words[:40]


def cpu_times(server: int) -> dict[str, tuple[int, float]]:
    """Number of processes and CPU time of each kind: their own, and that of children that have ended."""
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    root = psutil.Process(server)
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # such as a worker of autovacuum: its parent counts its time
            times, kind = process.cpu_times(), kind_of(process)
            count, total = found[kind]
            found[kind] = count + 1, total + sum(times[:4])
    return dict(found)


async def measure(target: Target) -> list[Share]:
    """Measure the CPU time of each kind of process."""
    before = cpu_times(target.process.pid)
    await asyncio.sleep(SECONDS)
    after = cpu_times(target.process.pid)
    return [Share(kind, count, total - before.get(kind, (0, 0.0))[1]) for kind, (count, total) in after.items()]


def table(shares: list[Share], done: dict[str, float], arguments: Any) -> str:
    """Return the result as Markdown."""
    total = sum(share.cpu_s for share in shares)
    lines = [
        f"- {arguments.wallets:,} wallets, {arguments.answers:,} idempotency records, half of them expired",
        *(f"- {what}: {seconds:.0f} s after the start" for what, seconds in done.items()),
        "",
        f"| processes | number | CPU s in {SECONDS:.0f} s | % of a core |",
        "|---|---|---|---|",
        *(
            f"| {share.kind} | {share.processes} | {share.cpu_s:.2f} | {share.cpu_s / SECONDS:.2%} |"
            for share in sorted(shares, key=lambda share: -share.cpu_s)
        ),
        f"| all | {sum(share.processes for share in shares)} | {total:.2f} | {total / SECONDS:.2%} |",
    ]
    return "\n".join(lines)


async def run(arguments: Any) -> bool:
    """Fill, wait, measure and print. Returns whether the limit holds."""
    with tempfile.TemporaryDirectory(prefix="sightline-idle-") as name:
        directory = Path(name)
        os.chmod(directory, 0o711)  # the account of Postgres passes through
        dsn = lay_out(directory / "sightline" / "postgres", find_binaries()).dsn
        async with sightline(directory):
            await fill(dsn, wallets=arguments.wallets, answers=arguments.answers)
        async with sightline(directory) as target:
            done = await catch_up(dsn)
            shares = await measure(target)
    sys.stdout.write(table(shares, done, arguments) + "\n")
    return sum(share.cpu_s for share in shares) / SECONDS * 100 < LIMIT_PERCENT


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wallets", type=int, default=100_000)
    parser.add_argument("--answers", type=int, default=5_000_000)
    raise SystemExit(0 if asyncio.run(run(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
