"""Calls of the internal listener for administrators: servers, parked actors and unconfirmed settlements."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final
from urllib.parse import urlsplit

import orjson
import structlog
from msgspec.structs import asdict
from pydantic import Field

from sightline.actors.kernel import Registry
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.audit import Act, Audit
from sightline.http.budgets import RateClass
from sightline.http.internal.admin import actor_of
from sightline.http.pipeline.call import Call, Raw, Reply
from sightline.http.pipeline.routes import Param, Route
from sightline.http.schemas.base import Query, iso, iso_or_none
from sightline.ports.administration import AuditAction
from sightline.ports.clock import Clock
from sightline.ports.leases import OwnershipReport
from sightline.ports.ledger import SETTLEMENTS_WAITING, Ledger, SettlementRecord, SettlementState

log = structlog.get_logger()

DONE: Final = frozenset({SettlementState.CONFIRMED, SettlementState.WRITTEN_OFF})
UNSETTLED: Final = tuple(state for state in SettlementState if state not in DONE)
LISTED_MAX: Final = 1_000
REVIVE_TIMEOUT_S: Final = 10.0


class WriteOffQuery(Query):
    """Why a settlement is given up."""

    AREA = "settlements"

    reason: str = Field(min_length=1, max_length=500, description="Kept with the settlement")


@final
class OperationResources:
    """/internal/nodes, /internal/targets, /internal/actors, /internal/settlements."""

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        clock: Clock,
        audit: Audit,
        read_ownership: Callable[[], Awaitable[OwnershipReport]],
    ) -> None:
        self._read_ownership = read_ownership
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._audit = audit

    @Route(
        "GET",
        "/internal/nodes",
        "getNodes",
        "internal",
        "The servers of the database, and the shards and roles that each owns",
        rate=RateClass.NONE,
    )
    async def nodes(self, _call: Call) -> Reply:
        """Every server with a lease, as the database sees it. Each server gives the same answer."""
        report = await self._read_ownership()
        items = [
            {
                "incarnation": server.incarnation,
                "name": server.about.name,
                "host": server.host,
                "url": server.about.url,
                "version": server.about.version,
                "valid": server.is_valid,
                "renewedMsAgo": server.renewed_ms_ago,
                "shards": server.shards,
                "roles": [role.name for role in server.roles],
                "connected": server.is_connected,
                "clockOffsetMs": server.clock_offset_ms,
                "loopDelayMs": server.about.loop_delay_ms,
                "reportedMsAgo": server.reported_ms_ago,
            }
            for server in report.servers
        ]
        return Reply({"items": items, "nextCursor": None, "unownedShards": report.unowned_shards})

    @Route(
        "GET",
        "/internal/targets",
        "getTargets",
        "internal",
        "The servers of the database as targets for Prometheus (http_sd_configs)",
        rate=RateClass.NONE,
        media_type="application/json",
        is_for_probes=True,
    )
    async def targets(self, _call: Call) -> Raw:
        """The internal listener of every server with a valid lease, with its name as the label `node`."""
        report = await self._read_ownership()
        targets = [
            {"targets": [urlsplit(server.about.url).netloc], "labels": {"node": server.about.name}}
            for server in report.servers
            if server.is_valid and server.about.url
        ]
        return Raw(headers=(("content-type", "application/json"),), body=orjson.dumps(targets))

    @Route(
        "GET",
        "/internal/actors",
        "getActors",
        "internal",
        "Counts of every kind of actor, and which are parked, with the reason",
        rate=RateClass.NONE,
    )
    async def actors(self, _call: Call) -> Reply:
        """The kernel's statistics."""
        statistics = self._registry.statistics()
        kinds: dict[str, Mapping[str, object]] = {}
        for kind, counts in statistics.kinds.items():
            kinds[str(kind)] = {
                **{name: value for name, value in asdict(counts).items() if isinstance(value, int)},
                "parked": dict(counts.parked),
                "retrying": dict(counts.retrying),
                "wait_p99_s": counts.wait.quantile_s(0.99),
                "handle_p99_s": counts.handle.quantile_s(0.99),
            }
        return Reply({"kinds": kinds, "timers": statistics.timers})

    @Route(
        "POST",
        "/internal/actors/{kind}/{id}/revive",
        "reviveActor",
        "internal",
        "Give a parked actor another chance",
        params={"kind": Param.TEXT, "id": Param.TEXT},
        rate=RateClass.NONE,
        errors=(Code.NOT_FOUND,),
    )
    async def revive(self, call: Call) -> Reply:
        """Load a parked actor again; answers what it published, or why it cannot be loaded."""
        kind, actor_id = call.params["kind"], call.params["id"]
        counts = self._registry.statistics().kinds.get(kind)
        if counts is None or actor_id not in counts.parked:
            raise RefusedError(Refusal(Code.NOT_FOUND, "actors:parked", "No such actor is parked"))
        await self._audit.record(
            Act(actor_of(call), AuditAction.ACTOR_REVIVE, f"{kind} {actor_id}"),
            lambda: self._registry.revive(kind, actor_id, timeout_s=REVIVE_TIMEOUT_S),
        )
        return Reply({"kind": kind, "id": actor_id, "revived": True})

    @Route(
        "GET",
        "/internal/settlements",
        "getUnsettled",
        "internal",
        "Settlements that are not confirmed, and why",
        rate=RateClass.NONE,
    )
    async def settlements(self, _call: Call) -> Reply:
        """The outbox, confirmed ones left out, oldest first."""
        records = await self._ledger.settlements(UNSETTLED, limit=LISTED_MAX)
        return Reply({"items": [_settlement(record) for record in records], "nextCursor": None})

    @Route(
        "POST",
        "/internal/settlements/{id}/write-off",
        "writeOffSettlement",
        "internal",
        "Give a settlement up for good, with a reason, and release its hold",
        params={"id": Param.UUID},
        query=WriteOffQuery,
        rate=RateClass.NONE,
        errors=(Code.NOT_FOUND, Code.INVALID_STATE),
    )
    async def write_off(self, call: Call) -> Reply:
        """Write off a settlement that waits; one whose transaction may still mine is refused."""
        query: WriteOffQuery = call.query
        session_id = call.params["id"]
        record = await self._audit.record(
            Act(actor_of(call), AuditAction.SETTLEMENT_WRITE_OFF, f"session {session_id}", query.reason),
            lambda: self._write_off(session_id, query.reason),
        )
        log.warning("settlement_written_off", session_id=session_id, reason=query.reason)
        return Reply(_settlement(record))

    async def _write_off(self, session_id: str, reason: str) -> SettlementRecord:
        record = await self._ledger.write_off(session_id, reason=reason, now_ms=self._clock.now_ms())
        if record is None:
            raise RefusedError(Refusal(Code.NOT_FOUND, "settlements:session", "The session has no settlement"))
        if record.state in SETTLEMENTS_WAITING:
            message = "The chain has a payment of this session: the relayer records it, and it is not written off"
            raise RefusedError(Refusal(Code.INVALID_STATE, "settlements:paid", message))
        if record.state is not SettlementState.WRITTEN_OFF:
            message = f"The settlement is {record.state.value}; only one that waits can be written off"
            raise RefusedError(Refusal(Code.INVALID_STATE, "settlements:state", message))
        return record


def _settlement(record: SettlementRecord) -> dict[str, object]:
    total = record.payload.to_amount + record.payload.fee_amount
    return {
        "sessionId": record.session_id,
        "state": record.state.value,
        "reason": record.reason,
        "amountMicroUsdc": str(total),
        "from": record.payload.from_address,
        "txHash": record.tx_hash,
        "tries": record.tries,
        "retryAt": iso_or_none(record.retry_at_ms or None),
        "composedAt": iso(record.composed_at_ms),
    }
