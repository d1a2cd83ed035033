"""The loops of a running core: the roles that this server owns, figures, and what must be read again and again."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import structlog
import trio

from sightline.actors.deps import SESSION
from sightline.actors.kernel import Lane, Registry
from sightline.actors.messages import RecordSettlement
from sightline.actors.service.look_up import LookUp
from sightline.actors.session.payer_funds import CHECK_EVERY_S, PayerFunds
from sightline.bootstrap.core import Core
from sightline.bootstrap.failures.retry import StartRetry
from sightline.bootstrap.options.core import retention_options
from sightline.bootstrap.sampler import SAMPLE_EVERY_S
from sightline.chain.service import ChainService
from sightline.cluster.roles import RoleWork, run_roles
from sightline.domain.errors import SightlineError
from sightline.domain.session.messages import FundsReported, SettlementMined
from sightline.domain.units import DAY_MS, MicroUsdc
from sightline.ports.chain import SettlementUpdate
from sightline.ports.leases import ServerRole
from sightline.ports.ledger import SettlementState
from sightline.storage.postgres.money.openings import PostgresOpenings
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline.storage.postgres.operations.retention import Retention
from sightline.system.log_files import rotate_logs
from sightline.system.loops import run_forever

SETTLEMENT_TIMEOUT_S: Final = 10.0
ADMINISTRATION_EVERY_S: Final = 30.0
RETENTION_EVERY_S: Final = 3_600.0
RECONCILED_EVERY_MS: Final = DAY_MS
RECONCILIATION_LOOK_S: Final = 10.0
"""How often the watcher's server looks whether the books are due: a restart neither repeats nor delays a comparison."""
PAYMENTS_EVERY_S: Final = 2.0
"""How soon each server holds new sessions after the watcher has found a payment that the database does not know."""

log = structlog.get_logger("sightline")


async def start_background(core: Core, nursery: trio.Nursery, retry: StartRetry) -> None:
    """Start the loops. Returns when the payments that the database does not know were read once."""
    read_payments = partial(core.actors.deps.payment_hold.load, core.stores.payments.unknown)
    await retry.run(read_payments)
    nursery.start_soon(run_roles, core.membership.owned, _role_works(core))
    nursery.start_soon(_await_first_reading, core)
    loops = (
        ("suspensions", core.administration.suspensions.watch, 0),
        ("unknown_payments", read_payments, PAYMENTS_EVERY_S),
        ("metrics_sample", core.sampler.run_once, SAMPLE_EVERY_S),
    )
    for name, step, every_s in loops:
        nursery.start_soon(partial(run_forever, name, step, every_s=every_s))
    if not core.base.is_worker:
        nursery.start_soon(rotate_logs, core.base.settings.data_dir)


async def _await_first_reading(core: Core) -> None:
    """Hold new sessions until the watcher, of this server or of another one, has read the chain up to its head."""

    async def is_read() -> bool:
        runs_watcher = core.membership.owned.role_lease(ServerRole.WATCHER) is not None
        return await core.stores.payments.is_chain_read(runs_watcher=runs_watcher)

    hold = core.actors.deps.payment_hold
    while not hold.is_chain_read:
        try:
            await hold.await_reading(is_read, core.stores.payments.unknown)
        except SightlineError as error:
            log.warning("first_reading_not_known", reason=str(error))
            await trio.sleep(PAYMENTS_EVERY_S)


def _role_works(core: Core) -> Mapping[ServerRole, RoleWork]:
    """What this server does while it owns a role."""
    registry, chain, stores = core.actors.registry, core.chain, core.stores
    retention = Retention(stores.database, stores.rows, core.base.clock, retention_options(core.base.settings))
    loops = (
        ("suspension_sweep", core.administration.sweep, ADMINISTRATION_EVERY_S),
        ("refunds", core.refunds.resume, ADMINISTRATION_EVERY_S),
        ("retention", retention.run_once, RETENTION_EVERY_S),
    )
    housekeeping = (partial(run_forever, name, step, every_s=every_s) for name, step, every_s in loops)
    return {
        ServerRole.RELAYER: RoleWork(run=partial(_relay, chain, stores.openings, registry), bind=stores.outbox.bind),
        ServerRole.WATCHER: RoleWork(
            run=partial(_watch, chain, _payer_funds(core), stores.books), bind=stores.wallets.bind
        ),
        ServerRole.HOUSEKEEPING: RoleWork(
            run=partial(
                _run_all, core.webhooks.dispatcher.run, core.webhooks.pushes.run, core.webhooks.watch.run, *housekeeping
            )
        ),
    }


async def _relay(chain: ChainService, openings: PostgresOpenings, registry: Registry) -> None:
    """Settle, and end sessions whose hold is lost."""

    async def end_unheld() -> None:
        for session_id in await openings.lost():
            registry.ref(SESSION, session_id).tell(FundsReported(MicroUsdc(0)), conflate_key="funds")

    loops: list[Callable[[], Awaitable[object]]] = [partial(chain.run_relayer, partial(_tell_settlement, registry))]
    if chain.escrow is not None:
        loops.append(partial(run_forever, "lost_holds", end_unheld, every_s=CHECK_EVERY_S))
    await _run_all(*loops)


def _payer_funds(core: Core) -> PayerFunds | None:
    """What tells sessions what their payers can still pay; None where holds are not enforced."""
    deps, registry = core.actors.deps, core.actors.registry
    if deps.limits.funds_policy != "enforced":
        return None
    read_session = LookUp(registry, deps).find_session
    return PayerFunds(registry, core.stores.ledger, read_session, core.base.clock, deps.limits.session)


async def _watch(chain: ChainService, funds: PayerFunds | None, books: PostgresBooks) -> None:
    """Follow the chain, and compare the books with it each day."""
    reconcile = partial(chain.reconciler(books).run_if_due, RECONCILED_EVERY_MS)
    loops: list[Callable[[], Awaitable[object]]] = [
        partial(run_forever, "reconciliation", reconcile, every_s=RECONCILIATION_LOOK_S)
    ]
    if funds is None:
        loops.append(chain.run_watcher)
    else:
        loops.append(partial(chain.run_watcher, funds.report))
        loops.append(partial(run_forever, "payer_funds", funds.check, every_s=CHECK_EVERY_S))
    await _run_all(*loops)


async def _run_all(*loops: Callable[[], Awaitable[object]]) -> None:
    async with trio.open_nursery() as nursery:
        for loop in loops:
            nursery.start_soon(loop)


async def _tell_settlement(registry: Registry, update: SettlementUpdate) -> None:
    """Tell a session that its settlement is confirmed. If this raises, the relayer tries again."""
    if update.state is SettlementState.CONFIRMED and update.tx_hash is not None:
        session = registry.ref(SESSION, update.session_id)
        await session.ask(
            RecordSettlement(SettlementMined(update.tx_hash)), timeout_s=SETTLEMENT_TIMEOUT_S, lane=Lane.CONTROL
        )
