"""Starts everything below HTTP: database, chain and video in parallel, then the actors; stops in reverse order.

Every loop runs in a nursery of this tree: a loop that dies ends the server, so a half-dead server cannot look alive.
"""

import gc
import random  # noqa: TID251  (jitter of backoffs only; seeded from the system's random source)
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, final

import structlog
import trio

from sightline.actors.build import Actors, build_actors
from sightline.actors.deps import SESSION, Deps
from sightline.actors.kernel import Lane, Registry
from sightline.actors.messages import RecordSettlement
from sightline.actors.recovery import recover
from sightline.actors.service.administration import Administration
from sightline.actors.service.look_up import LookUp
from sightline.actors.session.payer_funds import CHECK_EVERY_S, PayerFunds
from sightline.actors.watchers import Watchers
from sightline.bootstrap.adapters.webhooks import Webhooks, make_webhooks
from sightline.bootstrap.chain import chain_options
from sightline.bootstrap.database import open_migrated_database, open_relations, require_same_secrets
from sightline.bootstrap.evidence import open_evidence
from sightline.bootstrap.membership.bus import require_protected_nats
from sightline.bootstrap.membership.hints import connect_hints
from sightline.bootstrap.membership.member import keep_lease, open_membership
from sightline.bootstrap.parts import open_parts
from sightline.bootstrap.retry import StartRetry
from sightline.bootstrap.sampler import SAMPLE_EVERY_S, Sampler
from sightline.bootstrap.start_errors import check_setting, database_setting
from sightline.bootstrap.video import join_video, open_video_backend
from sightline.chain.refunds import Refunds
from sightline.chain.service import ChainService, open_chain, open_place
from sightline.cluster.membership import ServiceMember
from sightline.cluster.roles import RoleWork, run_roles
from sightline.cluster.video.backend import ClusterBackend
from sightline.config import Settings
from sightline.domain.session.messages import SettlementMined
from sightline.domain.units import DAY_MS
from sightline.evidence.signing import C2paEvidence
from sightline.http.audit import Audit
from sightline.identity.cookies import LIFETIME_MS
from sightline.ports.administration import AdminStore
from sightline.ports.chain import SettlementUpdate
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.leases import ServerIdentity, ServerRole
from sightline.ports.ledger import Ledger, PaymentJournal, SettlementState
from sightline.ports.relations import Relations
from sightline.ports.store import Store
from sightline.ports.tracing import Tracer
from sightline.ports.video import LocalVideo, WatchAccess
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.administration import PostgresAdminStore, PostgresAuditLog
from sightline.storage.postgres.ledger import PostgresLedger
from sightline.storage.postgres.operations.newest import newest_instant
from sightline.storage.postgres.operations.payments import PostgresPayments
from sightline.storage.postgres.operations.retention import Retention, RetentionOptions
from sightline.storage.postgres.operations.withdrawals import WithdrawalLog
from sightline.storage.postgres.role_database import RoleDatabase
from sightline.storage.postgres.store import PostgresStore
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.lock import lock_place
from sightline.system.log_files import rotate_logs
from sightline.system.loops import run_forever
from sightline.system.secrets import Secrets
from sightline.system.withdrawal_file import read_withdrawals

GC_THRESHOLDS: Final = (50_000, 50, 50)
"""Collections are made less often than by default, from recovery on: recovery makes many objects and frees few, and the
default thresholds spend 40 % of its time on collections that find nothing."""

ACTOR_DRAIN_S: Final = 5.0
SETTLEMENT_TIMEOUT_S: Final = 10.0
ADMINISTRATION_EVERY_S: Final = 30.0
RETENTION_EVERY_S: Final = 3_600.0
PAYMENTS_EVERY_S: Final = 2.0
"""How soon each server holds new sessions after the watcher has found a payment that the database does not know."""

log = structlog.get_logger("sightline")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The running parts below HTTP."""

    settings: Settings
    secrets: Secrets
    clock: Clock
    ids: Ids
    database: Database
    store: Store
    ledger: Ledger
    payments: PaymentJournal
    relations: Relations
    chain: ChainService
    video: ClusterBackend
    watch_access: WatchAccess
    """To be connected to identity."""
    own_video: LocalVideo
    """The part of `video` on this server's own media workers."""
    evidence: C2paEvidence
    actors: Actors
    administration: Administration
    admin_store: AdminStore
    audit: Audit
    withdrawals: WithdrawalLog
    membership: ServiceMember
    server: ServerIdentity
    webhooks: Webhooks
    sampler: Sampler
    tracer: Tracer | None


@asynccontextmanager
async def open_core(
    settings: Settings,
    secrets: Secrets,
    public_url: str,
    tracer: Tracer | None = None,
    *,
    directory: Path | None = None,
    incarnation: str | None = None,
    internal_url: str = "",
) -> AsyncIterator[Core]:
    """Start everything below HTTP and recover the actors; stop it in reverse order when the block ends.

    Args:
        internal_url: URL of the internal listener, as other servers reach it.
        directory: The directory that a worker has locked. Its supervisor runs database and chain and rotates the logs.
            None: this process holds the data directory.
        incarnation: Names this run to the other servers; None: a new one.
    """
    require_protected_nats(settings)
    clock, ids = SystemClock(), SystemIds()
    server = ServerIdentity(
        incarnation=incarnation or ids.uuid(),
        host=socket.gethostname(),
        place=lock_place(directory or settings.data_dir, ids),
        url=internal_url,
    )
    retry = StartRetry(settings.startup_timeout_seconds, database_setting(settings))
    chain_chosen = chain_options(settings, public_url, is_running=directory is not None)
    async with open_parts() as parts:
        database_part = parts.open(open_migrated_database(settings, retry, server, tracer, directory=directory))
        place_part = parts.open(open_place(chain_chosen, ids=ids))
        video_part = parts.open(
            open_video_backend(settings, secrets, public_url, clock=clock, access=(access := WatchAccess()))
        )
        database, place = await database_part.ready(), await place_part.ready()
        await retry.run(lambda: require_same_secrets(settings, secrets, database))
        ledger, outbox, wallets = PostgresLedger(database), RoleDatabase(database), RoleDatabase(database)
        async with open_relations(settings, secrets, database, retry) as relations, AsyncExitStack() as stack:
            membership = await stack.enter_async_context(open_membership(settings, secrets, database, server))
            store = PostgresStore(database, membership.note_fenced)
            chain = await retry.run(
                lambda: stack.enter_async_context(
                    open_chain(
                        chain_chosen,
                        ledger=ledger,
                        outbox=PostgresLedger(outbox),
                        wallets=PostgresLedger(wallets),
                        clock=clock,
                        ids=ids,
                        place=place,
                    )
                )
            )
            own_video = await video_part.ready()
            video = await stack.enter_async_context(
                join_video(own_video, membership, secrets=secrets, clock=clock, ids=ids)
            )
            await membership.join(patience_s=settings.startup_timeout_seconds, retry=retry.run)
            await stack.enter_async_context(keep_lease(membership))
            clock.advance_to(await retry.run(lambda: newest_instant(database)), at_most_ms=DAY_MS)
            deps = Deps(
                store=store,
                video=video,
                relations=relations,
                clock=clock,
                ids=ids,
                rng=random.Random(ids.token_bytes(16)),  # noqa: S311  (jitter of backoffs, never a secret)
                limits=replace(settings.limits(), session_cap_micro=chain.session_cap_micro),
                watchers=Watchers(),
                owned=membership.owned,
                on_settlement=chain.notify,
            )
            actors = build_actors(deps, membership.others, tracer=tracer)
            membership.attach(actors.registry, partial(recover, store, actors.registry), clock_ms=clock.now_ms)
            admin_store = PostgresAdminStore(database)
            withdrawals = WithdrawalLog(settings.withdrawals_path, database)
            await retry.run(lambda: _apply_withdrawals(withdrawals, settings.withdrawals_path))
            refunds = chain.refunds(admin_store)
            administration = Administration(
                actors.registry, deps, actors.broker, admin_store, refunds.pay, withdrawals.record
            )
            await retry.run(administration.suspensions.load)
            connect_hints(membership.peers, chain, administration.suspensions)
            sampler = Sampler(database, own_video, chain, clock, membership.owned)
            core = Core(
                settings=settings,
                secrets=secrets,
                clock=clock,
                ids=ids,
                database=database,
                store=store,
                ledger=ledger,
                payments=PostgresPayments(database),
                relations=relations,
                chain=chain,
                video=video,
                watch_access=access,
                own_video=own_video,
                evidence=open_evidence(settings, ids, clock, public_url),
                actors=actors,
                administration=administration,
                admin_store=admin_store,
                audit=Audit(PostgresAuditLog(database), clock, ids),
                withdrawals=withdrawals,
                membership=membership,
                server=server,
                webhooks=make_webhooks(settings, secrets, database, clock, ids),
                sampler=sampler,
                tracer=tracer,
            )
            async with trio.open_nursery() as services:
                gc.set_threshold(*GC_THRESHOLDS)
                await services.start(actors.run)
                services.start_soon(membership.run)
                works = _role_works(core, store, outbox, wallets, refunds)
                services.start_soon(run_roles, deps.owned, works)
                services.start_soon(partial(run_forever, "suspensions", administration.suspensions.watch, every_s=0))
                await services.start(_watch_database, core, retry)
                if directory is None:
                    services.start_soon(rotate_logs, settings.data_dir)
                await membership.wait_complete(settings.startup_timeout_seconds)
                yield core
                await membership.hand_over()
                await actors.close(drain_s=ACTOR_DRAIN_S)
                services.cancel_scope.cancel()
            await membership.leave()


async def _apply_withdrawals(withdrawals: WithdrawalLog, path: Path) -> None:
    """Apply what this server's file has and the database lacks, because it was restored from before."""
    with check_setting("SIGHTLINE_WITHDRAWALS_FILE"):
        entries = read_withdrawals(path)
    for done in await withdrawals.apply(entries):
        log.info("withdrawals_applied", file=str(path), done=done)


async def _watch_database(
    core: Core, retry: StartRetry, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Read figures and unknown payments again and again. Started when the payments were read once."""
    read_payments = partial(core.actors.deps.payment_hold.load, core.payments.unknown)
    await retry.run(read_payments)
    task_status.started()
    await _run_all(
        partial(run_forever, "unknown_payments", read_payments, every_s=PAYMENTS_EVERY_S),
        partial(run_forever, "metrics_sample", core.sampler.run_once, every_s=SAMPLE_EVERY_S),
    )


def _role_works(
    core: Core, store: PostgresStore, outbox: RoleDatabase, wallets: RoleDatabase, refunds: Refunds
) -> Mapping[ServerRole, RoleWork]:
    """What this server does while it owns a role."""
    registry, chain, limits = core.actors.registry, core.chain, core.actors.deps.limits
    funds: PayerFunds | None = None
    if limits.funds_policy == "enforced":
        read_session = LookUp(registry, core.actors.deps).find_session
        funds = PayerFunds(registry, core.ledger, read_session, core.clock, limits.session)
    retention = Retention(core.database, store, core.clock, retention_options(core.settings))
    loops = (
        ("suspension_sweep", core.administration.sweep, ADMINISTRATION_EVERY_S),
        ("refunds", refunds.resume, ADMINISTRATION_EVERY_S),
        ("retention", retention.run_once, RETENTION_EVERY_S),
    )
    housekeeping = (partial(run_forever, name, step, every_s=every_s) for name, step, every_s in loops)
    return {
        ServerRole.RELAYER: RoleWork(
            run=partial(chain.run_relayer, partial(_tell_settlement, registry)), bind=outbox.bind
        ),
        ServerRole.WATCHER: RoleWork(run=partial(_watch, chain, funds), bind=wallets.bind),
        ServerRole.HOUSEKEEPING: RoleWork(run=partial(_run_all, core.webhooks.dispatcher.run, *housekeeping)),
    }


async def _run_all(*loops: Callable[[], Awaitable[object]]) -> None:
    async with trio.open_nursery() as nursery:
        for loop in loops:
            nursery.start_soon(loop)


async def _watch(chain: ChainService, funds: PayerFunds | None) -> None:
    """Follow the chain; where holds are enforced, tell sessions what their payers can still pay."""
    if funds is None:
        await chain.run_watcher()
    else:
        await _run_all(
            partial(chain.run_watcher, funds.report),
            partial(run_forever, "payer_funds", funds.check, every_s=CHECK_EVERY_S),
        )


async def _tell_settlement(registry: Registry, update: SettlementUpdate) -> None:
    """Tell a session that its settlement is confirmed. If this raises, the relayer tries again."""
    if update.state is SettlementState.CONFIRMED and update.tx_hash is not None:
        session = registry.ref(SESSION, update.session_id)
        await session.ask(
            RecordSettlement(SettlementMined(update.tx_hash)), timeout_s=SETTLEMENT_TIMEOUT_S, lane=Lane.CONTROL
        )


def retention_options(settings: Settings) -> RetentionOptions:
    """Retention periods of stored rows, from the settings."""
    return RetentionOptions(
        heartbeat_days=settings.heartbeat_keep_days,
        history_days=settings.history_keep_days,
        audit_days=settings.audit_keep_days,
        sign_in_ms=LIFETIME_MS,
    )
