"""Bytes per row of each table: `python -m bench.rows --data-dir DIR [--least 20]`, or `--dsn URL`.

Reads a database that some load has filled, for example that of `python -m bench.soak --directory DIR` (its data
directory is DIR/data). Sizes include indexes and TOAST. Three figures: as found, with the dead rows of a young table;
after VACUUM, which frees them for new rows; and after VACUUM FULL, the least that the rows need. The server must be
stopped. VACUUM FULL rewrites the database, and nothing else is changed.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import trio

from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres

SIZES: Final = """
SELECT c.relname AS name, coalesce(sum(pg_total_relation_size(p.relid)), 0)::bigint AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, LATERAL pg_partition_tree(c.oid) p
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY c.relname
UNION ALL
SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r' AND NOT c.relispartition
  AND NOT EXISTS (SELECT FROM pg_partition_tree(c.oid))
"""


async def sizes(connection: Any) -> Mapping[str, int]:
    """Return the bytes of each table with its partitions."""
    return {row["name"]: row["bytes"] for row in await connection.fetch(SIZES)}


async def measure(dsn: str, least: int) -> str:
    """Return a Markdown table of the tables that have at least so many rows."""
    connection: Any = await asyncpg.connect(dsn)
    try:
        young = await sizes(connection)
        counts = {name: await connection.fetchval(f'SELECT count(*) FROM "{name}"') for name in young}
        await connection.execute("VACUUM")
        vacuumed = await sizes(connection)
        await connection.execute("VACUUM FULL")
        full = await sizes(connection)
    finally:
        await connection.close()
    lines = ["| table | rows | as found | after VACUUM | after VACUUM FULL |", "|---|---|---|---|---|"]
    for name in sorted(name for name, count in counts.items() if count >= least):
        each = " | ".join(f"{found[name] / counts[name]:.0f}" for found in (young, vacuumed, full))
        lines.append(f"| `{name}` | {counts[name]} | {each} |")
    return "\n".join(lines)


@asynccontextmanager
async def open_embedded(data_dir: Path) -> Any:
    """Run the embedded Postgres of a server that is stopped; yields its address."""
    options = EmbeddedPostgresOptions(directory=data_dir / "postgres", log_path=data_dir / "log" / "postgres.log")
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run_embedded_postgres, options)
        nursery.cancel_scope.cancel()


async def run(data_dir: Path | None, dsn: str | None, least: int) -> str:
    """Measure the database of a data directory, or another one."""
    if dsn is not None:
        return await trio.to_thread.run_sync(lambda: asyncio.run(measure(dsn, least)))
    assert data_dir is not None
    async with open_embedded(data_dir) as address:
        return await trio.to_thread.run_sync(lambda: asyncio.run(measure(address, least)))


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.rows", description=__doc__.partition("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data-dir", type=Path)
    where.add_argument("--dsn")
    parser.add_argument("--least", type=int, default=20, help="leave out tables with fewer rows")
    given = parser.parse_args()
    sys.stdout.write(trio.run(run, given.data_dir and given.data_dir.resolve(), given.dsn, given.least) + "\n")


if __name__ == "__main__":
    main()
