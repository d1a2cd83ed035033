"""Everything below HTTP: database, chain and video side by side, then the actors on top; taken down in reverse.

Every loop lives in a nursery of this tree, so a loop that dies takes the server with it instead of leaving one that
only looks alive.
"""

import random  # noqa: TID251  (jitter of back-offs only; seeded from ids)
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import structlog
import trio

from sightline.actors.build import Actors, build_actors
from sightline.actors.deps import SESSION, Deps
from sightline.actors.kernel import Lane, Registry
from sightline.actors.messages import SettlementConfirmed
from sightline.actors.watchers import Watchers
from sightline.bootstrap.parts import open_parts
from sightline.bootstrap.video import open_video_backend
from sightline.chain.service import ChainOptions, ChainService, open_chain, open_place
from sightline.chain.signer import KeyRefusedError, read_keystore
from sightline.config import Settings
from sightline.domain.errors import SightlineError, StoreUnavailableError
from sightline.domain.units import DAY_MS
from sightline.ports.chain import SettlementUpdate
from sightline.ports.clock import Clock
from sightline.ports.identity import WorkspaceBrief
from sightline.ports.ids import Ids
from sightline.ports.ledger import Ledger, SettlementState
from sightline.ports.relations import Relations
from sightline.ports.store import Store
from sightline.ports.video import VideoBackend
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.migrate import migrate
from sightline.storage.database.pool import PoolOptions
from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres
from sightline.storage.postgres.identity import PostgresRelations
from sightline.storage.postgres.ledger import PostgresLedger
from sightline.storage.postgres.retention import RetentionOptions, run_retention
from sightline.storage.postgres.store import PostgresStore
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.secrets import Secrets

ACTOR_DRAIN_S: Final = 5.0
DATABASE_PATIENCE_S: Final = 30.0
DATABASE_RETRY_S: Final = 0.5
SETTLEMENT_TIMEOUT_S: Final = 10.0
KEEP_HOUSE_EVERY_S: Final = 600.0

log = structlog.get_logger("sightline")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Everything below HTTP, running."""

    settings: Settings
    secrets: Secrets
    clock: Clock
    ids: Ids
    database: Database
    store: Store
    ledger: Ledger
    relations: Relations
    chain: ChainService
    video: VideoBackend
    actors: Actors


@final
class StoredDirectory:
    """The workspaces, as identity wants to see them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by_ids(self, workspace_ids: Sequence[str]) -> tuple[WorkspaceBrief, ...]:
        """Those that exist, in any order."""
        found = await self._store.workspaces(workspace_ids)
        return tuple(
            WorkspaceBrief(
                id=workspace.id,
                slug=workspace.slug,
                name=workspace.name,
                roles=tuple(role.value for role in workspace.roles),
            )
            for workspace in found
        )


@asynccontextmanager
async def _open_database(settings: Settings) -> AsyncIterator[Database]:
    """The external database, or the embedded one as a child."""
    async with trio.open_nursery() as nursery:
        if settings.database_url is not None:
            dsn = settings.database_url.get_secret_value()
        else:
            options = EmbeddedPostgresOptions(
                directory=settings.data_dir / "postgres",
                log_path=settings.data_dir / "log" / "postgres.log",
                run_as=settings.database_account,
            )
            dsn = await nursery.start(run_embedded_postgres, options)
        pool = PoolOptions(dsn=dsn, connections_max=settings.database_pool)
        async with AsyncExitStack() as stack:
            database = await _reach_database(stack, DatabaseOptions(pool=pool))
            await migrate(database)
            yield database
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _open_relations(settings: Settings, secrets: Secrets, database: Database) -> AsyncIterator[Relations]:
    """The relations graph: embedded in the database, or a SpiceDB."""
    if settings.spicedb_endpoint is None:
        yield await PostgresRelations.open(database, token_key=secrets.token_key)
        return
    # Needs an extra that the embedded graph does without.
    from sightline.identity.spicedb import SpiceDbOptions, open_spicedb

    options = SpiceDbOptions(
        endpoint=settings.spicedb_endpoint,
        preshared_key=settings.spicedb_key.get_secret_value() if settings.spicedb_key is not None else "",
        is_tls=settings.spicedb_tls,
        ca_certificates=settings.spicedb_ca.read_bytes() if settings.spicedb_ca is not None else None,
    )
    async with open_spicedb(options, token_key=secrets.token_key) as relations:
        yield relations


async def _reach_database(stack: AsyncExitStack, options: DatabaseOptions) -> Database:
    """Open the database; one that is still coming up, or on a machine that is busy, is waited for.

    Raises:
        StoreUnavailableError: It did not come in time.
    """
    give_up_at = trio.current_time() + DATABASE_PATIENCE_S
    while True:
        try:
            return await stack.enter_async_context(open_database(options))
        except StoreUnavailableError as error:
            if trio.current_time() >= give_up_at:
                raise
            log.warning("database_not_reached", error=str(error))
            await trio.sleep(DATABASE_RETRY_S)


def relayer_key(settings: Settings) -> bytes | None:
    """The relayer's key from its setting or its keystore.

    Raises:
        KeyRefusedError: If there is one and it can not be read.
    """
    if settings.chain_relayer_keystore is not None:
        password = settings.chain_relayer_password
        return read_keystore(settings.chain_relayer_keystore, "" if password is None else password.get_secret_value())
    if settings.chain_relayer_key is None:
        return None
    try:
        return bytes.fromhex(settings.chain_relayer_key.get_secret_value().removeprefix("0x"))
    except ValueError:
        raise KeyRefusedError("chain_relayer_key is not hex") from None


def chain_options(settings: Settings, public_url: str) -> ChainOptions:
    """The chain room's options."""
    return ChainOptions(
        data_dir=settings.data_dir / "chain",
        rpc_url=settings.chain_rpc_url.get_secret_value() if settings.chain_rpc_url is not None else None,
        chain_id=settings.chain_id,
        usdc_address=settings.chain_usdc_address,
        settlement_address=settings.chain_settlement_address,
        relayer_key=relayer_key(settings),
        start_block=settings.chain_start_block,
        chain_name=settings.chain_name,
        explorer_url=settings.chain_explorer_url or public_url,
        public_rpc_url=settings.chain_public_rpc_url,
        depth=settings.chain_confirmations,
        platform_fee_bps=settings.platform_fee_bps,
    )


@asynccontextmanager
async def open_core(settings: Settings, secrets: Secrets, public_url: str) -> AsyncIterator[Core]:
    """Bring up everything below HTTP, recovered and running; take it down in reverse at the end."""
    clock, ids = SystemClock(), SystemIds()
    chain_chosen = chain_options(settings, public_url)
    async with open_parts() as parts:
        database_part = parts.open(_open_database(settings))
        place_part = parts.open(open_place(chain_chosen, ids=ids))
        video_part = parts.open(open_video_backend(settings, secrets, public_url, clock=clock))
        database, place = await database_part.ready(), await place_part.ready()
        store, ledger = PostgresStore(database), PostgresLedger(database)
        async with (
            _open_relations(settings, secrets, database) as relations,
            open_chain(chain_chosen, ledger=ledger, clock=clock, ids=ids, place=place) as chain,
        ):
            video = await video_part.ready()
            epochs = await store.acquire_shards(socket.gethostname(), ids.uuid())
            deps = Deps(
                store=store,
                video=video,
                relations=relations,
                clock=clock,
                ids=ids,
                rng=random.Random(ids.token_bytes(16)),  # noqa: S311  (jitter of backoffs, never a secret)
                limits=settings.limits(),
                watchers=Watchers(),
                epochs=epochs,
                on_settlement=chain.notify,
            )
            actors = build_actors(deps)
            core = Core(
                settings=settings,
                secrets=secrets,
                clock=clock,
                ids=ids,
                database=database,
                store=store,
                ledger=ledger,
                relations=relations,
                chain=chain,
                video=video,
                actors=actors,
            )
            async with trio.open_nursery() as services:
                await services.start(actors.run)
                await services.start(partial(chain.run, partial(_tell_settlement, actors.registry)))
                services.start_soon(_keep_house, store, clock)
                retention = RetentionOptions(heartbeat_days=settings.heartbeat_keep_days)
                services.start_soon(run_retention, store, clock, retention)
                yield core
                await actors.close(drain_s=ACTOR_DRAIN_S)
                services.cancel_scope.cancel()


async def _tell_settlement(registry: Registry, update: SettlementUpdate) -> None:
    """Pass a confirmed settlement on to its session; what is raised makes the relayer tell it again."""
    if update.state is SettlementState.CONFIRMED and update.tx_hash is not None:
        session = registry.ref(SESSION, update.session_id)
        await session.ask(SettlementConfirmed(update.tx_hash), timeout_s=SETTLEMENT_TIMEOUT_S, lane=Lane.CONTROL)


async def _keep_house(store: Store, clock: Clock) -> None:
    """Drop what nobody may ask for any more."""
    while True:
        try:
            await store.forget_before(clock.now_ms() - DAY_MS)
        except SightlineError as error:
            log.warning("house_not_kept", error=str(error))
        await trio.sleep(KEEP_HOUSE_EVERY_S)
