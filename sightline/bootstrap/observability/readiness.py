"""The readiness checks of a running server. GET /readyz answers 503 while one of them fails."""

import shutil
from collections.abc import Mapping
from typing import Final, final

import structlog
import trio

from sightline.bootstrap.core import Core
from sightline.bootstrap.observability.sibling_workers import SiblingWorkers
from sightline.chain.embedded.copy import find_damage
from sightline.config import Settings
from sightline.domain.units import usdc_text
from sightline.domain.value import replace
from sightline.http.recent_failures import WINDOW_S, RecentFailures
from sightline.ports.health import ReadinessCheck
from sightline.storage.postgres.operations.readiness import probe_database
from sightline.system.data_directory import CHAIN_DATABASE
from sightline.video.embedded import EmbeddedBackend

CALLS_MIN: Final = 10
"""Fewer calls within the window say nothing."""
FAILED_PERCENT_MAX: Final = 50
MEGABYTE: Final = 1_000_000
CHECK_EVERY_S: Final = 15.0
"""Between the checks for the metrics, which also take the results of GET /readyz."""
CAUSES_SHOWN: Final = 5

log = structlog.get_logger()


@final
class Readiness:
    """Runs the readiness checks with the limits from the settings."""

    def __init__(self, core: Core, siblings: SiblingWorkers, failures: RecentFailures) -> None:
        self._core = core
        self._failures = failures
        self._siblings = siblings
        self.latest: Mapping[str, bool] = {}
        """Which checks passed when they were last run."""
        self._chain_damage: str | None = None

    async def check(self) -> Mapping[str, ReadinessCheck]:
        """Run every check. A check never raises; each has a deadline."""
        checks: dict[str, ReadinessCheck] = {}

        async def check_siblings() -> None:
            checks["workers"] = await self._siblings.check()

        async with trio.open_nursery() as nursery:
            if self._siblings.directories:
                nursery.start_soon(check_siblings)
            checks |= await self._check_itself()
        self.latest = {name: check.is_ok for name, check in sorted(checks.items())}
        return checks

    async def _check_itself(self) -> dict[str, ReadinessCheck]:
        database = await probe_database(self._core.stores.database, self._core.actors.deps.owned.epochs)
        checks = {
            "database": ReadinessCheck(
                is_ok=database.problem is None,
                detail="The database accepts writes."
                if database.problem is None
                else f"The database accepts no writes: {database.problem}.",
                figures={"notDurable": list(self._core.sampler.figures.not_durable)},
            ),
            "ownership": self._ownership(database.fenced_shards),
            "actors": self._actors(),
            "chain": await self._chain_file(),
            "relayer": self._relayer(),
            "watcher": self._watcher(),
            "payments": self._payments(),
            "calls": calls_check(*self._failures.counts()),
            "disk": self._disk(),
        }
        if isinstance(self._core.video.own, EmbeddedBackend):
            ready, wanted = self._core.video.own.worker_counts()
            checks["video"] = ReadinessCheck(
                is_ok=ready > 0,
                detail=f"{ready} of {wanted} video workers are ready.",
                figures={"workersReady": ready, "workers": wanted},
            )
        return checks

    def _ownership(self, fenced: int) -> ReadinessCheck:
        is_leased = self._core.membership.is_valid()
        if fenced:
            detail = "Another server uses this database and has taken over: stop one of them."
        elif not is_leased:
            detail = "The lease of the shards was not renewed for seconds; calls are answered 503 until it is."
        else:
            detail = "No other server has taken over."
        return ReadinessCheck(
            is_ok=fenced == 0 and is_leased, detail=detail, figures={"fencedShards": fenced, "leased": is_leased}
        )

    def _actors(self) -> ReadinessCheck:
        registry, bound = self._core.actors.registry, self._core.base.settings.ready_parked_actors
        parked = {
            f"{kind}/{actor_id}": reason
            for kind, counts in registry.statistics().kinds.items()
            for actor_id, reason in counts.parked.items()
        }
        if not registry.accepts_asks:
            detail = "The actors are stopping."
        else:
            detail = f"{len(parked)} actors are parked (at most {bound})."
        causes = dict(list(parked.items())[:CAUSES_SHOWN])
        return ReadinessCheck(
            is_ok=registry.accepts_asks and len(parked) <= bound,
            detail=detail,
            figures={"parked": len(parked), "causes": causes},
        )

    async def _chain_file(self) -> ReadinessCheck:
        """Read the embedded chain's file, which can be damaged while the chain answers from memory."""
        damage = await chain_file_damage(self._core.base.settings)
        if damage is not None and self._chain_damage is None:
            log.error("chain_file_damaged", reason=damage)
        self._chain_damage = damage
        return ReadinessCheck(is_ok=damage is None, detail=f"{damage or 'No file of an embedded chain is damaged'}.")

    def _relayer(self) -> ReadinessCheck:
        status, bound = self._core.chain.relayer_status(), self._core.base.settings.ready_relayer_lag_seconds
        if status is None:
            return ReadinessCheck(is_ok=True, detail="The relayer does not run on this server.")
        check = self._lag("The relayer's last round", status.round_at_ms, bound, status.halted_because)
        away = [reason for reason in self._core.chain.signers().values() if reason is not None]
        return replace(check, detail=". ".join([check.detail.removesuffix("."), *away]) + ".")

    def _watcher(self) -> ReadinessCheck:
        status, bound = self._core.chain.watcher_status(), self._core.base.settings.ready_watcher_lag_seconds
        if status is None:
            return ReadinessCheck(is_ok=True, detail="The watcher does not run on this server.")
        check = self._lag("The watcher's last round", status.seen_at_ms, bound, status.halted_because)
        return ReadinessCheck(
            is_ok=check.is_ok, detail=check.detail, figures={**check.figures, "lagBlocks": status.lag_blocks}
        )

    def _payments(self) -> ReadinessCheck:
        hold = self._core.actors.deps.payment_hold
        unknown = hold.unknown
        if not hold.is_chain_read:
            detail = "The chain has not been read up to its head since the start: new sessions are held."
            return ReadinessCheck(is_ok=False, detail=detail, figures={"reason": "chainNotRead"})
        if not unknown.count:
            return ReadinessCheck(is_ok=True, detail="Every payment on the chain that was read is in the database.")
        return ReadinessCheck(
            is_ok=False,
            detail=f"{unknown.count} payments on the chain ({usdc_text(unknown.amount_micro)} USDC) are not in the "
            "database, which is older than the chain: new sessions are held. Run `sightline reconcile`.",
            figures={
                "reason": "unknownPayments", "payments": unknown.count, "amountMicroUsdc": str(unknown.amount_micro)
            },
        )  # fmt: skip

    def _lag(self, what: str, at_ms: int, bound_s: int, halted_because: str | None) -> ReadinessCheck:
        age_s = max(0, self._core.base.clock.now_ms() - at_ms) / 1_000
        detail = f"{what} was {age_s:.0f} s ago (at most {bound_s} s)."
        if halted_because is not None:
            detail = f"Halted: {halted_because}."
        return ReadinessCheck(
            is_ok=halted_because is None and age_s <= bound_s, detail=detail, figures={"ageSeconds": round(age_s, 1)}
        )

    def _disk(self) -> ReadinessCheck:
        directory, bound = self._core.base.settings.data_dir, self._core.base.settings.ready_disk_free_mb
        try:
            free = shutil.disk_usage(directory).free // MEGABYTE
        except OSError as error:
            return ReadinessCheck(is_ok=False, detail=f"The data directory cannot be read: {error.strerror}.")
        return ReadinessCheck(
            is_ok=free >= bound,
            detail=f"{free} MB are free in the data directory (at least {bound} MB).",
            figures={"freeMegabytes": free},
        )


async def chain_file_damage(settings: Settings) -> str | None:
    """Say in one line that the file of the embedded chain is damaged; None if it can be read, or is not here."""
    path = settings.data_dir / CHAIN_DATABASE.path
    if settings.chain_rpc_url is not None or not path.exists():
        return None
    return await trio.to_thread.run_sync(find_damage, path)


def calls_check(calls: int, failed: int) -> ReadinessCheck:
    """Check that not most calls of the last seconds failed because of the database."""
    percent = 100 * failed // calls if calls else 0
    return ReadinessCheck(
        is_ok=calls < CALLS_MIN or percent <= FAILED_PERCENT_MAX,
        detail=f"{failed} of {calls} calls of the last {WINDOW_S} s failed because of the database (at most "
        f"{FAILED_PERCENT_MAX} % of at least {CALLS_MIN}).",
        figures={"calls": calls, "failed": failed},
    )
