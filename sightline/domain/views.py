"""How domain objects look to callers: JSON-ready dictionaries with the wire's names. Pure, so that actors can record
the very answer a call was given."""

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias

from sightline.domain.metering import Window, read_live
from sightline.domain.operator.model import Workspace
from sightline.domain.pricing import Quote
from sightline.domain.session.machine import deadline_ms
from sightline.domain.session.messages import Party
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Ended,
    Live,
    MeterState,
    Requested,
    Session,
    SessionLimits,
    SessionState,
)
from sightline.domain.settlement import BASIS_POINTS

View: TypeAlias = dict[str, Any]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COORDINATE_DECIMALS: Final = 6


@lru_cache(maxsize=16_384)
def iso(at_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds and Z. An answer names three or four instants, most of them named before."""
    return f"{(EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def iso_or_none(at_ms: int | None) -> str | None:
    """The same, keeping None."""
    return None if at_ms is None else iso(at_ms)


def coordinate(degrees: float) -> float:
    """Degrees as kept and shown: six decimals, half to even."""
    return round(degrees, COORDINATE_DECIMALS)


def parties_of(session: Session, workspace_id: str) -> frozenset[Party]:
    """Which sides of the session a workspace is on; both where it serves itself."""
    sides = set()
    if session.terms.consumer_workspace_id == workspace_id:
        sides.add(Party.CONSUMER)
    if session.operator is not None and session.operator.workspace_id == workspace_id:
        sides.add(Party.OPERATOR)
    return frozenset(sides)


def session_view(session: Session, now_ms: int, limits: SessionLimits, sides: frozenset[Party]) -> View:
    """The Session object as a party (or, while REQUESTED, an operator that may accept) sees it."""
    terms, phase = session.terms, session.phase
    is_consumer = Party.CONSUMER in sides
    view: View = {
        "id": terms.id,
        "consumerWorkspaceId": terms.consumer_workspace_id,
        "operatorWorkspaceId": session.operator.workspace_id if session.operator else None,
        "state": session.state.value,
        "maxDurationSeconds": terms.max_duration_s,
        "waitTimeoutSeconds": terms.wait_timeout_s,
        "ratePerSecondMicroUsdc": str(terms.rate),
        "holdMicroUsdc": str(terms.hold),
        "startedAt": None,
        "endedAt": None,
        "cleanSeconds": 0,
        "chargedMicroUsdc": "0",
        "settlementTxHash": None,
        "videoBackendRef": None,
        "createdAt": iso(terms.created_at_ms),
        "requestedLat": terms.lat,
        "requestedLng": terms.lng,
        "authorized": session.operator is not None,
        "whepUrl": None,
        "whipUrl": None,
        "endReason": None,
        "meterState": None,
        "pauseReason": None,
        "assignedAt": None,
        "expiresAt": iso_or_none(deadline_ms(session)),
        "radiusMeters": terms.radius_m,
        "platformFeeBps": terms.platform_fee_bps,
        "quoteId": terms.quote_id,
        "instructions": terms.instructions,
        "metadata": json.loads(terms.metadata_json) if is_consumer and terms.metadata_json is not None else None,
    }
    match phase:
        case Requested():
            pass
        case Assigned():
            view["assignedAt"] = iso(phase.assigned_at_ms)
        case Live():
            view |= _live_view(session, phase, now_ms, limits, sides)
        case Ended():
            view |= {
                "assignedAt": iso(phase.assigned_at_ms),
                "startedAt": iso(phase.started_at_ms),
                "endedAt": iso(phase.ended_at_ms),
                "cleanSeconds": phase.clean_seconds,
                "chargedMicroUsdc": str(phase.charged),
                "settlementTxHash": phase.settlement_tx_hash,
                "videoBackendRef": phase.video_ref,
                "endReason": phase.reason.value,
                "meterState": MeterState.STOPPED.value,
            }
        case Closed():
            view |= {
                "assignedAt": iso_or_none(phase.assigned_at_ms),
                "endedAt": iso(phase.closed_at_ms),
                "endReason": phase.reason.value,
            }
    return view


def _live_view(session: Session, live: Live, now_ms: int, limits: SessionLimits, sides: frozenset[Party]) -> View:
    reading = read_live(live.evidence, now_ms, session.terms.max_duration_s, limits.meter)
    return {
        "assignedAt": iso(live.assigned_at_ms),
        "startedAt": iso(live.started_at_ms),
        "cleanSeconds": reading.clean_seconds,
        "videoBackendRef": live.video.ref,
        "whepUrl": live.video.whep_url if sides else None,
        "whipUrl": live.video.whip_url if Party.OPERATOR in sides else None,
        "meterState": (MeterState.PAUSED if reading.pause else MeterState.RUNNING).value,
        "pauseReason": reading.pause.reason.value if reading.pause else None,
    }


def start_view(session: Session, view: View) -> View:
    """The answer to a start."""
    assert isinstance(session.phase, Live)
    video = session.phase.video
    return {"session": view, "videoBackendRef": video.ref, "whipUrl": video.whip_url, "whepUrl": video.whep_url}


def meter_view(session: Session, now_ms: int, limits: SessionLimits) -> View:
    """The meter and its evidence."""
    phase = session.phase
    windows: tuple[Window, ...] = ()
    view: View = {
        "sessionId": session.id,
        "startedAt": None,
        "endedAt": None,
        "meterState": None,
        "cleanSeconds": 0,
        "ratePerSecondMicroUsdc": str(session.terms.rate),
        "chargedMicroUsdc": "0",
        "headHash": session.head_hash,
    }
    if isinstance(phase, Live):
        reading = read_live(phase.evidence, now_ms, session.terms.max_duration_s, limits.meter)
        windows = reading.windows
        state = MeterState.PAUSED if reading.pause else MeterState.RUNNING
        view |= {
            "startedAt": iso(phase.started_at_ms),
            "meterState": state.value,
            "cleanSeconds": reading.clean_seconds,
        }
    elif isinstance(phase, Ended):
        windows = phase.windows
        view |= {
            "startedAt": iso(phase.started_at_ms),
            "endedAt": iso(phase.ended_at_ms),
            "meterState": MeterState.STOPPED.value,
            "cleanSeconds": phase.clean_seconds,
            "chargedMicroUsdc": str(phase.charged),
        }
    elif isinstance(phase, Closed):
        view["endedAt"] = iso(phase.closed_at_ms)
    view["windows"] = [
        {"from": iso(window.from_ms), "to": iso_or_none(window.to_ms), "reason": window.reason.value}
        for window in windows
    ]
    return view


def workspace_view(workspace: Workspace) -> View:
    """The Workspace object."""
    return {
        "id": workspace.id,
        "slug": workspace.slug,
        "name": workspace.name,
        "walletAddress": workspace.wallet_address,
        "roles": [role.value for role in workspace.roles],
        "availabilityState": workspace.availability.value,
        "coverageLat": workspace.coverage_lat,
        "coverageLng": workspace.coverage_lng,
        "coverageRadiusMeters": workspace.coverage_radius_m,
        "deviceKind": workspace.device_kind.value,
        "lastSeenAt": iso_or_none(workspace.last_seen_at_ms),
        "createdAt": iso(workspace.created_at_ms),
        "createdByWallet": workspace.created_by_wallet,
        "deletedAt": iso_or_none(workspace.deleted_at_ms),
    }


def quote_view(quote: Quote) -> View:
    """The Price quote object; factors as plain numbers, reproducible from themselves."""
    price = quote.price
    return {
        "quoteId": quote.id,
        "ratePerSecondMicroUsdc": str(price.rate),
        "estimatedTotalMicroUsdc": str(quote.estimated_total),
        "supplyFactor": price.supply_bps / BASIS_POINTS,
        "demandFactor": price.demand_bps / BASIS_POINTS,
        "corridorMultiplier": price.corridor_bps / BASIS_POINTS,
        "baseRatePerSecondMicroUsdc": str(price.base_rate),
        "expiresAt": iso(quote.expires_at_ms),
        "availableOperators": quote.available_operators,
        "lat": quote.lat,
        "lng": quote.lng,
        "durationSeconds": quote.duration_s,
    }


def effective_state(session: Session, now_ms: int) -> SessionState:
    """The state with a passed deadline allowed for, when nobody has settled it yet."""
    deadline = deadline_ms(session)
    if deadline is None or now_ms < deadline:
        return session.state
    return SessionState.ENDED if session.state is SessionState.LIVE else SessionState.EXPIRED
