"""Open the database, embedded or external, and the relations graph."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import structlog
import trio

from sightline.bootstrap.children import Children
from sightline.bootstrap.database_mark import MarkKeeper, read_mark
from sightline.bootstrap.failures.errors import StartError, check_setting
from sightline.bootstrap.failures.retry import StartRetry
from sightline.config import Settings
from sightline.ports.leases import TTL_MS, ServerIdentity
from sightline.ports.relations import Relations
from sightline.ports.tracing import Tracer
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.compatibility import require_direct_connections
from sightline.storage.database.durability import warn_if_not_durable
from sightline.storage.database.history import HistoryGuard
from sightline.storage.database.migrate import OlderServersError, migrate
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.url import urls_of_hosts
from sightline.storage.postgres.identity import PostgresRelations
from sightline.storage.postgres.operations.secrets_check import are_same_secrets
from sightline.system.secrets import Secrets

LEASE_ENDS_S: Final = TTL_MS / 1_000 + 1
SECRETS_REMEDY: Final = (
    "Restore the file, or set SIGHTLINE_SECRETS_FILE to that of the other servers. If it was replaced on purpose, run "
    "`sightline secrets accept`"
)

log = structlog.get_logger("sightline")


@asynccontextmanager
async def open_migrated_database(
    children: Children,
    settings: Settings,
    retry: StartRetry,
    server: ServerIdentity,
    directory: Path,
    tracer: Tracer | None,
) -> AsyncIterator[Database]:
    """Connect to the database, when it runs, and bring its schema up to date.

    Args:
        directory: Where the mark of the database is kept.

    Raises:
        IncompatibleDatabaseError: The database lacks what ownership depends on.
        SchemaError: The schema is newer than this code, or was changed, or other servers could not work with it.
        StartError: The database is older than what this server has seen, or two hosts accept writes.
        StoreUnavailableError: As `StartRetry.run`.
        TakenOverError: While it is open: another host was promoted.
    """
    dsn = await children.dsn.ready()
    guard = HistoryGuard(read_mark(directory))
    options = DatabaseOptions(
        pool=PoolOptions(
            dsn=dsn,
            application_name=f"sightline {server.incarnation}",
            connections_max=settings.database_pool,
            guard=guard,
        ),
        tracer=tracer,
    )
    async with AsyncExitStack() as stack:
        database = await retry.run(lambda: stack.enter_async_context(open_database(options)))
        await retry.run(lambda: require_direct_connections(database))
        keeper = MarkKeeper(directory, database, guard)
        await retry.run(keeper.begin)
        await retry.run(lambda: _migrate(database, server.directory_id))
        await retry.run(lambda: warn_if_not_durable(database, has_standby=len(urls_of_hosts(dsn)) > 1))
        keeping = await stack.enter_async_context(trio.open_nursery())
        keeping.start_soon(keeper.run)
        yield database
        await keeper.end()
        keeping.cancel_scope.cancel()


async def _migrate(database: Database, directory_id: str) -> None:
    """Bring the schema up to date, and wait until the leases of servers that were killed have run out."""
    deadline = trio.current_time() + LEASE_ENDS_S
    while True:
        try:
            await migrate(database, directory_id=directory_id)
        except OlderServersError as error:
            if trio.current_time() >= deadline:
                raise
            log.warning("waiting_for_older_servers", reason=str(error), at_most_s=LEASE_ENDS_S)
            await trio.sleep(1)
        else:
            return


async def require_same_secrets(settings: Settings, secrets: Secrets, database: Database) -> None:
    """Check that the other servers of the database use the same secrets.

    Raises:
        StartError: They use others.
        StoreUnavailableError, OutcomeUnknownError: Call it again.
    """
    if not await are_same_secrets(database, secrets.fingerprint):
        raise StartError(
            f"The secrets in {settings.secrets_path} are not those of this database: API keys and sign-ins would be "
            f"refused. {SECRETS_REMEDY}."
        )


@asynccontextmanager
async def open_relations(
    settings: Settings, secrets: Secrets, database: Database, retry: StartRetry
) -> AsyncIterator[Relations]:
    """Open the relations graph: embedded in the database, or an external SpiceDB."""
    if settings.spicedb_endpoint is None:
        yield await retry.run(lambda: PostgresRelations.open(database, token_key=secrets.token_key))
        return
    with check_setting("SIGHTLINE_SPICEDB_ENDPOINT (it needs `pip install 'sightline-live[spicedb]'`)"):
        from sightline.identity.spicedb import SpiceDbOptions, open_spicedb
    with check_setting("SIGHTLINE_SPICEDB_CA"):
        certificates = settings.spicedb_ca.read_bytes() if settings.spicedb_ca is not None else None
    options = SpiceDbOptions(
        endpoint=settings.spicedb_endpoint,
        preshared_key=settings.spicedb_key.get_secret_value() if settings.spicedb_key is not None else "",
        is_tls=settings.spicedb_tls,
        ca_certificates=certificates,
    )
    async with open_spicedb(options, token_key=secrets.token_key) as relations:
        yield relations
