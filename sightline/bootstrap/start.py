"""Starts everything below HTTP, in the steps of `open_core`, and stops it in reverse order.

Every loop runs in a nursery of this tree: a loop that dies ends the server, so a half-dead server cannot look alive.
"""

import gc
import random  # noqa: TID251  (jitter of backoffs only; seeded from the system's random source)
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import trio

from sightline.actors.build import Actors, build_actors
from sightline.actors.deps import Deps
from sightline.actors.payment_hold import PaymentHold
from sightline.actors.recovery import recover
from sightline.actors.service.administration import Administration
from sightline.actors.watchers import Watchers
from sightline.bootstrap.adapters.video import join_video, open_video_backend
from sightline.bootstrap.adapters.webhooks import make_webhooks
from sightline.bootstrap.background import start_background
from sightline.bootstrap.children import Children
from sightline.bootstrap.core import Base, Core, Stores, Video
from sightline.bootstrap.database import open_migrated_database, open_relations, require_same_secrets
from sightline.bootstrap.failures.errors import check_setting
from sightline.bootstrap.failures.line import database_setting
from sightline.bootstrap.failures.retry import StartRetry
from sightline.bootstrap.membership.member import keep_lease, open_membership
from sightline.bootstrap.membership.peer_wakeups import connect_wakeups
from sightline.bootstrap.options.actors import actor_limits
from sightline.bootstrap.options.core import chain_options
from sightline.bootstrap.sampler import Sampler
from sightline.bootstrap.units import open_units
from sightline.chain.service import ChainOptions, ChainService, Endpoint, Holds, open_chain, open_endpoint
from sightline.cluster.membership import ServiceMember
from sightline.config.shell_lines import faucet_line
from sightline.domain.units import DAY_MS
from sightline.domain.value import replace
from sightline.ports.ids import Ids
from sightline.ports.video import WatchAccess
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.administration import PostgresAdminStore
from sightline.storage.postgres.money.extensions import PostgresExtensions
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.mandates import PostgresMandates
from sightline.storage.postgres.money.openings import PostgresOpenings
from sightline.storage.postgres.money.payments import PostgresPayments
from sightline.storage.postgres.money.permits import PostgresPermits
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline.storage.postgres.operations.newest import newest_instant
from sightline.storage.postgres.operations.withdrawals import WithdrawalLog
from sightline.storage.postgres.role_database import RoleDatabase
from sightline.storage.postgres.store import PostgresStore
from sightline.system.withdrawal_file import read_withdrawals
from sightline.video.worker_template import WorkerTemplate

GC_THRESHOLDS: Final = (50_000, 50, 50)
"""Collections are made less often than by default, from recovery on: recovery makes many objects and frees few, and the
default thresholds spend 40 % of its time on collections that find nothing."""

FIRST_READING_S: Final = 5.0
"""How long a start waits for the watcher's first reading. Afterwards calls are answered, and new sessions are held."""
ACTOR_DRAIN_S: Final = 5.0

log = structlog.get_logger("sightline")


@asynccontextmanager
async def open_core(base: Base, children: Children, media: WorkerTemplate) -> AsyncIterator[Core]:
    """Start everything below HTTP and recover the actors; stop it in reverse order when the block ends."""
    settings, clock = base.settings, base.clock
    retry = StartRetry(settings.startup_timeout_seconds, database_setting(settings))
    chain_chosen = chain_options(settings, base.public_url)
    access = WatchAccess()
    async with open_units() as units, AsyncExitStack() as stack:
        # 1. Database, chain and media workers are opened in parallel.
        database_unit = units.open(
            open_migrated_database(children, settings, retry, base.server, base.own_directory, base.tracer)
        )
        endpoint_unit = units.open(_open_endpoint(children, chain_chosen, base.ids))
        video_unit = units.open(
            open_video_backend(settings, base.secrets, base.public_url, media, clock=clock, access=access)
        )
        database, endpoint = await database_unit.ready(), await endpoint_unit.ready()

        # 2. The stores. Writes of a server whose lease has ended are refused by the epochs of its membership.
        await retry.run(lambda: require_same_secrets(settings, base.secrets, database))
        membership = await stack.enter_async_context(open_membership(settings, base.secrets, database, base.server))
        stores = await _open_stores(base, database, membership, stack, retry)

        # 3. The chain: deploys or checks the contracts, reads the relayer's account.
        chain = await retry.run(
            lambda: stack.enter_async_context(
                open_chain(
                    chain_chosen,
                    ledger=stores.ledger,
                    outbox=PostgresLedger(stores.outbox),
                    wallets=PostgresLedger(stores.wallets),
                    holds=Holds(
                        all=stores.openings,
                        relayer=PostgresOpenings(stores.outbox),
                        extensions=PostgresExtensions(database),
                        relayer_extensions=PostgresExtensions(stores.outbox),
                        permits=PostgresPermits(database),
                        relayer_permits=PostgresPermits(stores.outbox),
                        mandates=PostgresMandates(database),
                    ),
                    clock=clock,
                    ids=base.ids,
                    endpoint=endpoint,
                )
            )
        )

        # 4. Video, joined with that of the other servers.
        own_video = await video_unit.ready()
        service_video = await stack.enter_async_context(
            join_video(own_video, membership, secrets=base.secrets, clock=clock, ids=base.ids)
        )
        video = Video(service=service_video, own=own_video, access=access)

        # 5. Enter the service: this server has a lease from here on. A spare waits in `join`.
        await membership.join(patience_s=settings.startup_timeout_seconds, retry=retry.run)
        await stack.enter_async_context(keep_lease(membership))
        # `sightline secrets accept` sees a server by its lease: others may have been accepted before it had one.
        await retry.run(lambda: require_same_secrets(settings, base.secrets, database))
        clock.advance_to(await retry.run(lambda: newest_instant(database)), at_most_ms=DAY_MS)

        # 6. The actors and what administers them. Nothing runs yet.
        actors = _make_actors(base, stores, chain, video, membership)
        await retry.run(lambda: _apply_withdrawals(stores.withdrawals, settings.withdrawals_path))
        refunds = chain.refunds(stores.administration, partial(faucet_line, settings))
        administration = Administration(
            actors.registry,
            actors.deps,
            actors.broker,
            stores.administration,
            refunds.pay,
            stores.ledger.settlement,
            stores.withdrawals.record,
        )
        await retry.run(administration.suspensions.load)
        connect_wakeups(membership.peers, chain, administration.suspensions)
        core = Core(
            base=base,
            stores=stores,
            chain=chain,
            refunds=refunds,
            video=video,
            membership=membership,
            actors=actors,
            administration=administration,
            webhooks=make_webhooks(settings, base.secrets, database, clock, base.ids),
            sampler=Sampler(database, own_video, chain, clock, membership.owned),
        )

        # 7. Recover what was unfinished, start the loops, and wait until every shard has an owner.
        async with trio.open_nursery() as running:
            gc.set_threshold(*GC_THRESHOLDS)
            await running.start(actors.run)
            running.start_soon(membership.run)
            await start_background(core, running, retry)
            await membership.wait_complete(settings.startup_timeout_seconds)
            with trio.move_on_after(FIRST_READING_S):
                await actors.deps.payment_hold.wait_read()

            yield core

            await membership.hand_over()
            await actors.close(drain_s=ACTOR_DRAIN_S)
            running.cancel_scope.cancel()
        await membership.leave()


@asynccontextmanager
async def _open_endpoint(children: Children, options: ChainOptions, ids: Ids) -> AsyncIterator[Endpoint]:
    """Connect to the chain, when it runs."""
    async with open_endpoint(options, await children.chain.ready(), ids=ids) as endpoint:
        yield endpoint


async def _open_stores(
    base: Base, database: Database, membership: ServiceMember, stack: AsyncExitStack, retry: StartRetry
) -> Stores:
    """Open what reads and writes the database."""
    relations = await stack.enter_async_context(open_relations(base.settings, base.secrets, database, retry))
    return Stores(
        database=database,
        rows=PostgresStore(database, membership.note_fenced),
        ledger=PostgresLedger(database),
        openings=PostgresOpenings(database),
        payments=PostgresPayments(database),
        books=PostgresBooks(database),
        relations=relations,
        administration=PostgresAdminStore(database),
        withdrawals=WithdrawalLog(base.settings.withdrawals_path, database),
        outbox=RoleDatabase(database),
        wallets=RoleDatabase(database),
    )


async def _apply_withdrawals(withdrawals: WithdrawalLog, path: Path) -> None:
    """Apply what this server's file has and the database lacks, because it was restored from before."""
    with check_setting("SIGHTLINE_WITHDRAWALS_FILE"):
        entries = read_withdrawals(path)
    for done in await withdrawals.apply(entries):
        log.info("withdrawals_applied", file=str(path), done=done)


def _make_actors(base: Base, stores: Stores, chain: ChainService, video: Video, membership: ServiceMember) -> Actors:
    """Build the actors, and let the membership recover those of its shards."""
    deps = Deps(
        store=stores.rows,
        video=video.service,
        relations=stores.relations,
        clock=base.clock,
        ids=base.ids,
        rng=random.Random(base.ids.token_bytes(16)),  # noqa: S311  (jitter of backoffs, never a secret)
        limits=replace(
            actor_limits(base.settings),
            session_cap_micro=chain.limits.session_cap,
            rate_max_micro=chain.limits.max_rate,
        ),
        watchers=Watchers(),
        owned=membership.owned,
        on_settlement=chain.notify,
        escrow=chain.escrow,
        payment_hold=PaymentHold(is_chain_read=False),
    )
    actors = build_actors(deps, membership.others, tracer=base.tracer)
    membership.attach(actors.registry, partial(recover, stores.rows, actors.registry), clock_ms=base.clock.now_ms)
    return actors
