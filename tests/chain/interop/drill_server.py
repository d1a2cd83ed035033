"""The roles of a server that move money, in a process of their own, so that a drill can kill it: relayer and watcher.

Usage: python -m tests.chain.interop.drill_server JSON
"""

import json
import sys
from typing import Any

import structlog
import trio

from sightline.chain.service import ChainOptions, Holds, open_chain
from sightline.ports.chain import SettlementUpdate
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.money.extensions import PostgresExtensions
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.mandates import PostgresMandates
from sightline.storage.postgres.money.openings import PostgresOpenings
from sightline.storage.postgres.money.permits import PostgresPermits
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds


async def told(_update: SettlementUpdate) -> None:
    """No actor is there to be told."""
    await trio.lowlevel.checkpoint()


async def serve(given: dict[str, Any]) -> None:
    """Run relayer and watcher until the process is killed."""
    for name in ("relayer_key", "meter_key"):
        given["options"][name] = bytes.fromhex(given["options"][name])
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=given["dsn"]))) as database:
        openings, extensions, ledger = (
            PostgresOpenings(database),
            PostgresExtensions(database),
            PostgresLedger(database),
        )
        holds = Holds(
            all=openings, relayer=openings, extensions=extensions, relayer_extensions=extensions,
            permits=PostgresPermits(database), relayer_permits=PostgresPermits(database),
            mandates=PostgresMandates(database),
        )  # fmt: skip
        options = ChainOptions(**given["options"])
        async with (
            open_chain(options, ledger=ledger, holds=holds, clock=SystemClock(), ids=SystemIds()) as service,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(service.run_watcher)
            nursery.start_soon(service.run_relayer, told)
            sys.stdout.write("ready\n")
            sys.stdout.flush()


if __name__ == "__main__":
    # stdout says that the server is ready, and nobody reads it afterwards: a full pipe would stop the server.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    trio.run(serve, json.loads(sys.argv[1]))
