"""Measures whether a call costs more with more tenants: `python -m bench.growth [--sizes 1000,10000]`.

One server per size, each with as many ONLINE operators as open sessions: some are created through the API, the rest are
copies of one of them that a start recovers from the database. The servers take turns within a round, so that the
ratios hold on a machine with other load. Those that wait are not stopped: they would recover all tenants afterwards.
Density is the same at each size (operators and sessions are spread over a larger region), because a quote counts the
operators around its point. Sessions are read in random order over all of them. CPU is that of the server's process,
without Postgres.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import asyncpg

from bench.run import Result, load, surroundings
from bench.servers import PLACE, ROOT, Target, populate_sightline, sightline, sightline_sessions, spot
from sightline.domain.value import Value
from sightline.storage.embedded.dump import embedded_dsn

SEED: Final = 1
DEVICES: Final = 64
READ: Final = 20_000
"""Sessions of one round of reads; each connection begins at another one."""
MADE: Final = 500
"""Operators, and sessions, that are created through the API."""
COPY_OPERATORS: Final = """
INSERT INTO workspace (id, shard, version, slug, is_dispatchable, doc, updated_at_ms)
SELECT id, get_byte(decode(left(id::text, 2), 'hex'), 0), version, slug, is_dispatchable,
  (doc::jsonb || jsonb_build_object('id', id, 'slug', slug, 'coverage_lat', lat, 'coverage_lng', lng))::json,
  updated_at_ms
FROM (
  SELECT gen_random_uuid() AS id, 'bench-copy-' || row_number() OVER () AS slug, place.*, w.version, w.is_dispatchable,
    w.doc, w.updated_at_ms
  FROM unnest($1::float8[], $2::float8[]) AS place(lat, lng),
    (SELECT * FROM workspace WHERE is_dispatchable LIMIT 1) AS w
) AS copy
"""
COPY_SESSIONS: Final = """
WITH copy AS MATERIALIZED (
  SELECT gen_random_uuid() AS id, place.lat, place.lng, s.id AS of, s.version, s.state, s.consumer_workspace_id,
    s.created_at_ms, s.wait_deadline_ms, s.due_at_ms, s.doc, s.updated_at_ms
  FROM unnest($1::float8[], $2::float8[]) AS place(lat, lng),
    (SELECT * FROM session WHERE state = 'REQUESTED' LIMIT 1) AS s
), sessions AS (
  INSERT INTO session (id, shard, version, state, consumer_workspace_id, lat, lng, created_at_ms, wait_deadline_ms,
    due_at_ms, doc, updated_at_ms)
  SELECT id, get_byte(decode(left(id::text, 2), 'hex'), 0), version, state, consumer_workspace_id, lat, lng,
    created_at_ms, wait_deadline_ms, due_at_ms,
    jsonb_set(doc::jsonb, '{terms}',
      doc::jsonb -> 'terms' || jsonb_build_object('id', id, 'lat', lat, 'lng', lng))::json,
    updated_at_ms
  FROM copy RETURNING id
), events AS (
  INSERT INTO session_event (session_id, sequence, kind, at_ms, facts, hash)
  SELECT copy.id, e.sequence, e.kind, e.at_ms, e.facts, e.hash FROM copy JOIN session_event e ON e.session_id = copy.of
), holds AS (
  INSERT INTO hold (session_id, session_id_hash, payer, amount, state, updated_at_ms)
  SELECT copy.id, '0x' || encode(sha256(copy.id::text::bytea), 'hex'), h.payer, h.amount, h.state, h.updated_at_ms
  FROM copy JOIN hold h ON h.session_id = copy.of
)
SELECT id::text FROM sessions
"""

Job = Callable[["Grown"], Awaitable[Result]]


class Grown(Value):
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


@contextlib.asynccontextmanager
async def grown(directory: Path, size: int) -> AsyncIterator[Grown]:
    """Run a server with the tenants of one size."""
    spread = math.sqrt(size / 1_000)
    async with sightline(directory) as target:
        start_kb = target.rss_kb()
        await populate_sightline(target, operators=MADE, devices=DEVICES, spread=spread)
        sessions = await sightline_sessions(target, MADE, spread=spread)
        connection = await asyncpg.connect(embedded_dsn(directory / "sightline" / "postgres"))
        places = [spot(number, spread) for number in range(MADE, size)]
        columns = [place["lat"] for place in places], [place["lng"] for place in places]
        await connection.execute(COPY_OPERATORS, *columns)
        sessions += [row["id"] for row in await connection.fetch(COPY_SESSIONS, *columns)]
        await connection.execute("ANALYZE")
        await connection.close()
    async with sightline(directory) as again:
        again.consumer, again.devices = target.consumer, target.devices
        yield Grown(again, size, sessions, start_kb)


class Growth:
    """The jobs, and their results by job and size."""

    def __init__(self, servers: list[Grown], options: argparse.Namespace) -> None:
        self._servers = servers
        self._options = options
        self._dice = random.Random(SEED)
        self.results: dict[str, dict[int, list[Result]]] = {}

    async def measure(self, work: str, job: Job) -> None:
        """Run one job on each server in turn, in each round in the reverse order of the round before."""
        runs = self.results.setdefault(work, {each.size: [] for each in self._servers})
        orders = itertools.cycle((self._servers, self._servers[::-1]))
        for order in itertools.islice(orders, self._options.rounds):
            for server in order:
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
        """Dispatch new sessions, each to an operator of its own, and end them: the next round has all operators."""
        count = self._options.dispatches
        made = await sightline_sessions(server.target, count, spread=server.spread)
        result = await self._once(server, made, "dispatch")
        operators = result.pop("operators")
        assert len(set(operators.values())) == len(operators) == count, result
        ended = await self._once(server, made, "end")
        assert ended["statuses"] == {"200": count}, ended
        return result

    async def _once(self, server: Grown, sessions: list[str], command: str) -> Result:
        path = f"/api/v1/sessions/{{}}/{command}"
        wanted = [{"method": "POST", "path": path.format(each), "key": server.key()} for each in sessions]
        return await load(server.target, kind="once", connections=16, requests=wanted)

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
    for size in options.sizes:
        (directory / str(size)).mkdir()
    print(f"logs and data in {directory}", flush=True)
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for size in options.sizes:
            print(f"creating {size:,} operators and sessions", flush=True)
            servers.append(await stack.enter_async_context(grown(directory / str(size), size)))
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


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    sizes = [1_000, 10_000, 100_000]
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=sizes)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--dispatches", type=int, default=300)
    options = parser.parse_args()
    options.arguments, options.load_average = sys.argv[1:], os.getloadavg()[0]
    return options


if __name__ == "__main__":
    os.chdir(ROOT)
    asyncio.run(main(parsed()))
