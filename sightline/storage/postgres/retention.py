"""Keeps what may be dropped from growing: heartbeat partitions come a day early and go when their time is over."""

from dataclasses import dataclass
from typing import NoReturn, final

import structlog
import trio

from sightline.domain.errors import OutcomeUnknownError, StoreUnavailableError
from sightline.ports.clock import Clock
from sightline.storage.postgres.store import PostgresStore

log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions:
    """How long to keep what is not money."""

    heartbeat_days: int = 30
    """Full days of heartbeats behind today. Recovery of a LIVE session needs one; disputes may need more."""
    period_s: float = 3_600.0


async def run_retention(store: PostgresStore, clock: Clock, options: RetentionOptions) -> NoReturn:
    """Look after the partitions for ever; a database that does not answer is asked again next time."""
    while True:
        try:
            dropped = await store.keep_heartbeats(now_ms=clock.now_ms(), days=options.heartbeat_days)
            if dropped:
                log.info("heartbeat_days_dropped", days=dropped)
        except (StoreUnavailableError, OutcomeUnknownError) as error:
            log.warning("retention_skipped", reason=str(error))
        await trio.sleep(options.period_s)
