"""Builders of domain objects with default values for everything that a test does not set."""

import uuid
from collections.abc import Sequence
from typing import Any

from sightline.domain.geofence import DeviceKind, Fix
from sightline.domain.metering import OPEN, Evidence, FenceWindow, PauseReason, Window
from sightline.domain.operator.model import Workspace, WorkspaceRole
from sightline.domain.pricing import Price, Quote
from sightline.domain.session.machine import create, fence_of
from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Ended,
    EndReason,
    Live,
    LocationState,
    Operator,
    Phase,
    Session,
    SessionLimits,
    SessionState,
    Terms,
    VideoInput,
)
from sightline.domain.session.record import chain
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.store import (
    Heartbeat,
    HeartbeatWrite,
    IdempotencyKey,
    IdempotencyRecord,
    RecordedEvent,
    ShardLease,
    Store,
)

T0 = 1_760_000_000_000
"""Start time of most tests, epoch milliseconds."""

PAYER = "0x" + "a1" * 20
PAYEE = "0x" + "b2" * 20


def an_id() -> str:
    return str(uuid.uuid4())


def terms(**changes: Any) -> Terms:
    usual = {
        "id": an_id(),
        "consumer_workspace_id": an_id(),
        "payer_address": PAYER,
        "lat": 52.520008,
        "lng": 13.404954,
        "radius_m": 500,
        "max_duration_s": 600,
        "wait_timeout_s": 300,
        "rate": MicroUsdc(1_250),
        "hold": MicroUsdc(750_000),
        "platform_fee_bps": 1_500,
        "quote_id": None,
        "instructions": "look at the gate; ünïcode",
        "metadata_json": '{"case": 7}',
        "created_at_ms": T0,
    }
    return Terms(**{**usual, **changes})


def a_session(**changes: Any) -> Session:
    return create(terms(**changes)).session


def an_operator(workspace_id: str | None = None) -> Operator:
    return Operator(
        workspace_id=workspace_id or an_id(),
        wallet_address=PAYEE,
        device_kind=DeviceKind.PHONE,
        coverage_lat=52.5,
        coverage_lng=None,
    )


def in_phase(session: Session, state: SessionState, operator: Operator | None = None) -> Session:
    """Return the session in another phase, without the transitions to it."""
    given = operator or an_operator()
    at_ms = session.terms.created_at_ms + 1_000
    phases: dict[SessionState, Phase] = {
        SessionState.REQUESTED: session.phase,
        SessionState.ASSIGNED: Assigned(operator=given, assigned_at_ms=at_ms, start_deadline_ms=at_ms + 120_000),
        SessionState.LIVE: Live(
            operator=given,
            assigned_at_ms=at_ms,
            started_at_ms=at_ms + 1_000,
            ends_at_ms=at_ms + 601_000,
            video=VideoInput(ref="input-1", whip_url="http://h/whip/1?secret", whep_url="http://h/whep/1"),
            evidence=Evidence(
                started_at_ms=at_ms + 1_000,
                fence_windows=(FenceWindow(at_ms + 5_000, OPEN, at_ms + 6_000),),
                first_outside_ms=None,
            ),
            location=LocationState(
                fence=fence_of(session.terms, given, SessionLimits()),
                device_kind=given.device_kind,
                last_fix=a_fix(at_ms + 2_000),
                last_sequence=3,
            ),
            pause_reason=PauseReason.MEDIA_LOST,
        ),
        SessionState.ENDED: Ended(
            operator=given,
            assigned_at_ms=at_ms,
            started_at_ms=at_ms + 1_000,
            ended_at_ms=at_ms + 61_000,
            reason=EndReason.CONSUMER_ENDED,
            video_ref="input-1",
            clean_seconds=58,
            charged=MicroUsdc(58 * 1_250),
            windows=(Window(at_ms + 3_000, at_ms + 5_000, PauseReason.LOCATION_STALE),),
        ),
        SessionState.CANCELLED: Closed(
            state=SessionState.CANCELLED,
            operator=None,
            assigned_at_ms=None,
            closed_at_ms=at_ms,
            reason=EndReason.CONSUMER_CANCELLED,
        ),
        SessionState.EXPIRED: Closed(
            state=SessionState.EXPIRED,
            operator=given,
            assigned_at_ms=at_ms,
            closed_at_ms=at_ms + 120_000,
            reason=EndReason.START_TIMEOUT,
        ),
    }
    return replace(session, phase=phases[state])


def recorded(session: Session, *events: Event) -> tuple[Session, tuple[RecordedEvent, ...]]:
    """Return the session with events appended to its chain, and the recorded events."""
    chained, rows = chain(session, events or (Event(EventKind.CREATED, T0, (("by", "x"), ("n", 1), ("none", None))),))
    return chained, tuple(RecordedEvent(*row) for row in rows)


def a_workspace(**changes: Any) -> Workspace:
    name = changes.get("slug", f"w-{uuid.uuid4().hex[:12]}")
    usual = {
        "id": an_id(),
        "slug": name,
        "name": "Gate Nörd",
        "wallet_address": PAYEE,
        "roles": (WorkspaceRole.SUPPLIER,),
        "created_at_ms": T0,
        "created_by_wallet": PAYEE,
        "coverage_lat": 52.5,
        "coverage_lng": 13.4,
        "coverage_radius_m": 1_000.5,
    }
    return Workspace(**{**usual, **changes})


def a_fix(at_ms: int, **changes: Any) -> Fix:
    usual = {"lat": 52.5200081, "lng": 13.4049541, "accuracy_m": 7.25, "at_ms": at_ms, "taken_at_ms": at_ms - 80}
    return Fix(**{**usual, **changes})


def a_heartbeat(workspace_id: str, sequence: int, at_ms: int | None = None, **changes: Any) -> Heartbeat:
    return Heartbeat(
        workspace_id=workspace_id,
        sequence=sequence,
        fix=a_fix(T0 + 2_000 * sequence if at_ms is None else at_ms),
        is_fresh=True,
        **changes,
    )


async def record(
    store: Store,
    *heartbeats: Heartbeat,
    lease: ShardLease = ShardLease(7, 0),  # noqa: B008  frozen; epoch 0 is that of a shard that was never taken
    answers: Sequence[IdempotencyRecord] = (),
) -> None:
    """Record heartbeats under one lease, which must be held."""
    assert await store.append_heartbeats([HeartbeatWrite(lease, heartbeats, tuple(answers))]) == frozenset()


def a_quote(**changes: Any) -> Quote:
    usual = {
        "id": an_id(),
        "workspace_id": an_id(),
        "lat": 52.52,
        "lng": 13.4,
        "duration_s": 600,
        "price": Price(base_rate=MicroUsdc(1_000), supply_bps=10_625, demand_bps=12_500, corridor_bps=10_000),
        "available_operators": 3,
        "created_at_ms": T0,
        "expires_at_ms": T0 + 120_000,
    }
    return Quote(**{**usual, **changes})


def an_answer(key: str = "k-1", *, body: str = "hash-1", at_ms: int = T0, workspace_id: str = "w") -> IdempotencyRecord:
    return IdempotencyRecord(
        key=IdempotencyKey(workspace_id=workspace_id, method="POST", path="/api/v1/sessions", key=key, body_hash=body),
        result={"id": "x", "list": [1, None, "é"], "nested": {"deep": True}},
        at_ms=at_ms,
    )


def a_settlement(session: Session) -> SettlementPayload:
    assert isinstance(session.phase, Ended)
    return SettlementPayload(
        session_id=session.id,
        from_address=PAYER,
        to_address=PAYEE,
        to_amount=MicroUsdc(session.phase.charged - 100),
        fee_amount=MicroUsdc(100),
        rate=session.terms.rate,
        chargeable_seconds=session.phase.clean_seconds,
        consumer_workspace_id=session.terms.consumer_workspace_id,
        operator_workspace_id=session.phase.operator.workspace_id,
        platform_fee_bps=1_500,
    )
