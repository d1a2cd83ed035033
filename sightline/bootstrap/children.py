"""What a server, or the supervisor of several, runs as children: database and chain, unless they are external.

A start begins with them: while they start, most of the server is imported (ADR 0260). This module imports little.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import final

import trio

from sightline.bootstrap.units import Unit, open_units
from sightline.chain.embedded.node import (
    CHAIN_ID_DEFAULT,
    EmbeddedNode,
    EmbeddedOptions,
    open_embedded_node,
    running_node,
)
from sightline.config import Settings
from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres


@final
class Children:
    """The children of a server, which start in parallel."""

    def __init__(self, dsn: Unit[str], chain: Unit[EmbeddedNode | None]) -> None:
        self.dsn = dsn
        """The DSN of the database."""
        self.chain = chain
        """The embedded chain; None with an external one."""


@asynccontextmanager
async def open_children(settings: Settings, *, is_worker: bool = False) -> AsyncIterator[Children]:
    """Start the children, and stop them when the block ends.

    Args:
        is_worker: Whether a supervisor runs the embedded chain.

    Raises:
        ChildFailedError: A child does not start.
    """
    async with open_units() as units:
        yield Children(units.open(open_dsn(settings)), units.open(_open_chain(settings, is_worker=is_worker)))


@asynccontextmanager
async def open_dsn(settings: Settings) -> AsyncIterator[str]:
    """Yield the DSN of the external database, or of the embedded one, which runs until the block ends.

    Raises:
        ChildFailedError: The embedded database does not start.
    """
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    options = EmbeddedPostgresOptions(
        directory=settings.data_dir / "postgres",
        log_path=settings.data_dir / "log" / "postgres.log",
        run_as=settings.database_account,
    )
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run_embedded_postgres, options)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _open_chain(settings: Settings, *, is_worker: bool) -> AsyncIterator[EmbeddedNode | None]:
    directory = settings.data_dir / "chain"
    if settings.chain_rpc_url is not None:
        yield None
    elif is_worker:
        yield running_node(directory)
    else:
        options = EmbeddedOptions(
            data_dir=directory,
            chain_id=settings.chain_id or CHAIN_ID_DEFAULT,
            is_escrow=settings.funds_policy == "escrow",
        )
        async with open_embedded_node(options) as node:
            yield node
