"""A session and its meter as one workspace sees them at one instant."""

from functools import partial
from typing import Final, final

from sightline.domain.geofence import Fix
from sightline.domain.metering import PauseReason, Reading, Window, charge
from sightline.domain.session.machine import deadline_ms, live_reading
from sightline.domain.session.messages import Party
from sightline.domain.session.model import (
    Assigned,
    Closed,
    ConsumerMessage,
    Delivery,
    Ended,
    EndReason,
    Live,
    MeterState,
    Requested,
    Session,
    SessionLimits,
    SessionState,
    Terms,
)
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value, hiding, replace

NOTHING: Final = MicroUsdc(0)


@final
class SessionStatus(Value):
    """A session at one instant, as a party, or an operator that may accept it, is allowed to see it."""

    terms: Terms
    state: SessionState
    expires_at_ms: int | None
    """The current deadline; None in a terminal state."""
    operator_workspace_id: str | None
    metadata_json: str | None
    """None for everyone but the consumer."""
    assigned_at_ms: int | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    end_reason: EndReason | None = None
    meter_state: MeterState | None = None
    pause_reason: PauseReason | None = None
    clean_seconds: int = 0
    charged: MicroUsdc = NOTHING
    settlement_tx_hash: str | None = None
    video_ref: str | None = None
    whep_url: str | None = None
    """While LIVE, for both parties."""
    whip_url: str | None = None
    """While LIVE, for the operator only. Embeds a secret."""
    hold_tx_hash: str | None = None
    """The transaction by which the escrow contract took the hold."""
    operator_distance_m: int | None = None
    """In the answer of an assignment: how far from the place the operator was. None: not known."""
    is_place_covered: bool | None = None
    """In the answer of an assignment: whether the operator's coverage contained the place. None: not known."""
    extension_tx_hash: str | None = None
    """The transaction by which the escrow contract took the amount of the newest extension."""
    ended_by: str | None = None
    """Which credential ended it, for the side whose it is: see `Session.ended_by`."""
    messages: tuple[ConsumerMessage, ...] = ()
    """While LIVE and afterwards: the newest messages of the consumer to the operator, oldest first."""
    messages_shown: int = 0
    """Number of the newest message that the operator's device has shown; see `Session.messages_shown`."""
    delivery: Delivery | None = None
    """See `Session.delivery`."""

    __repr__ = hiding("whep_url", "whip_url")

    @property
    def accrued(self) -> MicroUsdc:
        """The charge if the session ended with the present clean seconds. It never falls."""
        return charge(self.clean_seconds, self.terms.rate, self.terms.hold)


@final
class MeterStatus(Value, kw_only=True):
    """The meter of a session at one instant, with the windows that are not charged."""

    session_id: str
    rate: MicroUsdc
    hold: MicroUsdc
    head_hash: str
    ended_head_hash: str | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    state: MeterState | None = None
    clean_seconds: int = 0
    charged: MicroUsdc = NOTHING
    windows: tuple[Window, ...] = ()

    @property
    def accrued(self) -> MicroUsdc:
        """See `SessionStatus.accrued`."""
        return charge(self.clean_seconds, self.rate, self.hold)


@final
class LocationStatus(Value, kw_only=True):
    """The last plausible position of the operator's device in a LIVE session."""

    session_id: str
    fix: Fix
    is_in_geofence: bool | None
    """None while the position proves neither."""


def parties_of(session: Session, workspace_id: str) -> frozenset[Party]:
    """The sides of the session that a workspace is on; both when it is consumer and operator."""
    sides = set()
    if session.terms.consumer_workspace_id == workspace_id:
        sides.add(Party.CONSUMER)
    if session.operator is not None and session.operator.workspace_id == workspace_id:
        sides.add(Party.OPERATOR)
    return frozenset(sides)


_OWN_END: Final = {
    EndReason.CONSUMER_ENDED: Party.CONSUMER,
    EndReason.CONSUMER_CANCELLED: Party.CONSUMER,
    EndReason.OPERATOR_ENDED: Party.OPERATOR,
}


def session_status(session: Session, now_ms: int, limits: SessionLimits, workspace_id: str) -> SessionStatus:
    """Read a session at `now_ms`, with what the workspace is allowed to see."""
    status = _status(session, now_ms, limits, workspace_id)
    is_own = status.end_reason is not None and _OWN_END.get(status.end_reason) in parties_of(session, workspace_id)
    return replace(status, ended_by=session.ended_by) if is_own and session.ended_by is not None else status


def _status(session: Session, now_ms: int, limits: SessionLimits, workspace_id: str) -> SessionStatus:
    terms, phase, operator = session.terms, session.phase, session.operator
    is_consumer = terms.consumer_workspace_id == workspace_id
    is_operator = operator is not None and operator.workspace_id == workspace_id
    operator_id = None if operator is None else operator.workspace_id
    metadata = terms.metadata_json if is_consumer else None
    match phase:
        case Requested():
            return SessionStatus(terms, SessionState.REQUESTED, deadline_ms(session), operator_id, metadata)
        case Assigned():
            return SessionStatus(
                terms, SessionState.ASSIGNED, phase.start_deadline_ms, operator_id, metadata, phase.assigned_at_ms
            )
        case Live():
            reading = live_reading(terms, phase, now_ms, limits)
            return SessionStatus(
                terms,
                SessionState.LIVE,
                phase.ends_at_ms,
                operator_id,
                metadata,
                phase.assigned_at_ms,
                started_at_ms=phase.started_at_ms,
                meter_state=meter_state(reading),
                pause_reason=None if reading.pause is None else reading.pause.reason,
                clean_seconds=reading.clean_seconds,
                video_ref=phase.video.ref,
                whep_url=phase.video.whep_url if is_consumer or is_operator else None,
                whip_url=phase.video.whip_url if is_operator else None,
                hold_tx_hash=phase.hold_tx_hash,
                extension_tx_hash=_extension_tx_hash(session),
                messages=phase.messages,
                messages_shown=session.messages_shown,
                delivery=session.delivery,
            )
        case Ended():
            return SessionStatus(
                terms,
                SessionState.ENDED,
                None,
                operator_id,
                metadata,
                phase.assigned_at_ms,
                started_at_ms=phase.started_at_ms,
                ended_at_ms=phase.ended_at_ms,
                end_reason=phase.reason,
                meter_state=MeterState.STOPPED,
                clean_seconds=phase.clean_seconds,
                charged=phase.charged,
                settlement_tx_hash=phase.settlement_tx_hash,
                video_ref=phase.video_ref,
                hold_tx_hash=phase.hold_tx_hash,
                extension_tx_hash=_extension_tx_hash(session),
                messages=phase.messages,
                messages_shown=session.messages_shown,
                delivery=session.delivery,
            )
        case Closed():
            return SessionStatus(
                terms,
                phase.state,
                None,
                operator_id,
                metadata,
                phase.assigned_at_ms,
                ended_at_ms=phase.closed_at_ms,
                end_reason=phase.reason,
            )


def _extension_tx_hash(session: Session) -> str | None:
    return session.extensions[-1].tx_hash if session.extensions else None


def meter_status(session: Session, now_ms: int, limits: SessionLimits) -> MeterStatus:
    """Read the meter at `now_ms`."""
    phase = session.phase
    status = partial(
        MeterStatus,
        session_id=session.id,
        rate=session.terms.rate,
        hold=session.terms.hold,
        head_hash=session.head_hash,
        ended_head_hash=session.ended_head_hash,
    )
    match phase:
        case Requested() | Assigned():
            return status()
        case Live():
            reading = live_reading(session.terms, phase, now_ms, limits)
            return status(
                started_at_ms=phase.started_at_ms,
                state=meter_state(reading),
                clean_seconds=reading.clean_seconds,
                windows=reading.windows,
            )
        case Ended():
            return status(
                started_at_ms=phase.started_at_ms,
                ended_at_ms=phase.ended_at_ms,
                state=MeterState.STOPPED,
                clean_seconds=phase.clean_seconds,
                charged=phase.charged,
                windows=phase.windows,
            )
        case Closed():
            return status(ended_at_ms=phase.closed_at_ms)


def meter_state(reading: Reading) -> MeterState:
    """RUNNING or PAUSED: the meter of a LIVE session."""
    return MeterState.RUNNING if reading.pause is None else MeterState.PAUSED
