"""The session's machine: `step(session, message, now)` gives the next session and what to do, or a refusal.

House rules. Every movement of a session's state happens in this file; what a LIVE session learns between them is in
`evidence`. A step never acts: it returns events to record and effects to carry out after the commit. Deadlines are
decided by timestamp inside every step, before the message is looked at, so a late call is refused whether or not a
timer has fired. Every phase lists every message; a new message breaks the build at each phase until someone decides.
"""

from dataclasses import replace
from typing import assert_never

from sightline.domain.geofence import Fence
from sightline.domain.metering import (
    Evidence,
    PauseReason,
    Window,
    charge,
    open_pause,
    pause_end_ms,
    read_final,
)
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.evidence import with_fix, with_media
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    CancelAssignment,
    ChargeHold,
    CloseVideo,
    Effect,
    End,
    Event,
    EventKind,
    FixReported,
    GoLive,
    MediaBroke,
    MediaProved,
    Message,
    Party,
    ReleaseHold,
    ReleaseOperator,
    Settle,
    SettlementMined,
    Step,
    Tick,
)
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Ended,
    EndReason,
    Live,
    LocationState,
    Operator,
    Requested,
    Session,
    SessionLimits,
    SessionState,
    Terms,
    VideoInput,
)
from sightline.domain.settlement import SettlementPayload, fee_of
from sightline.domain.units import SECOND_MS, MicroUsdc

WRONG_STATE = Refusal(Code.INVALID_STATE, "session:state")
EXPIRED = Refusal(Code.INVALID_STATE, "session:expired", "The session's deadline has passed")

FACTS = (FixReported, MediaProved, MediaBroke, Tick, SettlementMined)


def wrong_state(session: Session) -> Refusal:
    """The refusal of a command that the session's state does not allow."""
    return EXPIRED if session.state is SessionState.EXPIRED else WRONG_STATE


def create(terms: Terms) -> Step:
    """A new session in REQUESTED."""
    session = Session(terms=terms, phase=Requested())
    return Step(session=session, events=(Event(EventKind.CREATED, terms.created_at_ms),))


def step(session: Session, message: Message, now_ms: int, limits: SessionLimits) -> Step | Refusal:
    """Take one step.

    A fact that is no news leaves the session as it is (a Step without events). A command after a deadline is
    refused as expired; `settle_deadline` says what the passed deadline made of the session.
    """
    late = settle_deadline(session, now_ms, limits)
    if late is not None:
        if isinstance(message, FACTS):
            return _record_late_media(late, session, message, now_ms, limits)
        return EXPIRED
    match session.phase:
        case Requested():
            return _in_requested(session, message, now_ms, limits)
        case Assigned():
            return _in_assigned(session, session.phase, message, now_ms, limits)
        case Live():
            return _in_live(session, session.phase, message, now_ms, limits)
        case Ended():
            return _in_ended(session, session.phase, message, now_ms)
        case Closed():
            return _in_closed(session, message)


def _record_late_media(late: Step, session: Session, message: Message, now_ms: int, limits: SessionLimits) -> Step:
    """Evidence of before the deadline that arrives after it still counts: apply it, then the deadline."""
    live = session.phase
    if not isinstance(live, Live) or not isinstance(message, MediaProved | MediaBroke):
        return late
    if not isinstance(late.session.phase, Ended) or message.at_ms >= late.session.phase.ended_at_ms:
        return late
    live = replace(live, evidence=with_media(live.evidence, message, limits))
    again = settle_deadline(replace(session, phase=live), now_ms, limits)
    return again if again is not None else _announce_pause(session, live, now_ms, limits)


# Deadlines.


def settle_deadline(session: Session, now_ms: int, limits: SessionLimits) -> Step | None:
    """What a passed deadline makes of the session; None while no deadline has passed."""
    phase = session.phase
    if isinstance(phase, Requested) and now_ms >= session.terms.wait_deadline_ms:
        return _close(
            session,
            SessionState.EXPIRED,
            EndReason.WAIT_TIMEOUT,
            session.terms.wait_deadline_ms,
            EventKind.EXPIRED,
        )
    if isinstance(phase, Assigned) and now_ms >= phase.start_deadline_ms:
        return _close(
            session, SessionState.EXPIRED, EndReason.START_TIMEOUT, phase.start_deadline_ms, EventKind.EXPIRED
        )
    if isinstance(phase, Live):
        until_ms = min(now_ms, phase.ends_at_ms)
        paused_out_ms = pause_end_ms(phase.evidence, until_ms, limits.meter)
        if paused_out_ms is not None and paused_out_ms <= until_ms:
            pause = open_pause(phase.evidence, paused_out_ms, limits.meter)
            reason = pause.reason if pause is not None else PauseReason.LOCATION_STALE
            return _end(session, phase, EndReason(reason.value), paused_out_ms, limits)
        if now_ms >= phase.ends_at_ms:
            return _end(session, phase, EndReason.MAX_DURATION, phase.ends_at_ms, limits)
    return None


def deadline_ms(session: Session) -> int | None:
    """The deadline that callers see as expiresAt; None in a terminal state."""
    match session.phase:
        case Requested():
            return session.terms.wait_deadline_ms
        case Assigned(start_deadline_ms=deadline):
            return deadline
        case Live(ends_at_ms=deadline):
            return deadline
        case Ended() | Closed():
            return None


# One function per phase.


def _in_requested(session: Session, message: Message, now_ms: int, limits: SessionLimits) -> Step | Refusal:
    match message:
        case Assign():
            return _assign(session, message, now_ms, limits)
        case Cancel():
            return _close(session, SessionState.CANCELLED, EndReason.CONSUMER_CANCELLED, now_ms, EventKind.CANCELLED)
        case GoLive() | End() | CancelAssignment():
            return WRONG_STATE
        case FixReported() | MediaProved() | MediaBroke() | Tick() | SettlementMined():
            return Step(session=session)
        case _:
            assert_never(message)


def _in_assigned(
    session: Session, phase: Assigned, message: Message, now_ms: int, limits: SessionLimits
) -> Step | Refusal:
    match message:
        case GoLive(video=video):
            return _go_live(session, phase, video, now_ms, limits)
        case CancelAssignment():
            return _close(session, SessionState.CANCELLED, EndReason.OPERATOR_CANCELLED, now_ms, EventKind.CANCELLED)
        case Assign() | Cancel() | End():
            return WRONG_STATE
        case FixReported() | MediaProved() | MediaBroke() | Tick() | SettlementMined():
            return Step(session=session)
        case _:
            assert_never(message)


def _in_live(session: Session, phase: Live, message: Message, now_ms: int, limits: SessionLimits) -> Step | Refusal:
    match message:
        case End(by=by):
            reason = EndReason.CONSUMER_ENDED if by is Party.CONSUMER else EndReason.OPERATOR_ENDED
            return _end(session, phase, reason, now_ms, limits)
        case FixReported():
            return _announce_pause(session, with_fix(phase, message, limits), now_ms, limits)
        case MediaProved() | MediaBroke():
            live = phase.with_proofs(with_media(phase.evidence, message, limits), phase.location)
            return _announce_pause(session, live, now_ms, limits)
        case Tick():
            return _announce_pause(session, phase, now_ms, limits)
        case Assign() | GoLive() | Cancel() | CancelAssignment():
            return WRONG_STATE
        case SettlementMined():
            return Step(session=session)
        case _:
            assert_never(message)


def _in_ended(session: Session, phase: Ended, message: Message, now_ms: int) -> Step | Refusal:
    match message:
        case SettlementMined(tx_hash=tx_hash):
            if phase.settlement_tx_hash == tx_hash:
                return Step(session=session)
            event = Event(EventKind.SETTLED, now_ms, (("txHash", tx_hash),))
            return Step(session=replace(session, phase=replace(phase, settlement_tx_hash=tx_hash)), events=(event,))
        case Assign() | GoLive() | End() | Cancel() | CancelAssignment():
            return WRONG_STATE
        case FixReported() | MediaProved() | MediaBroke() | Tick():
            return Step(session=session)
        case _:
            assert_never(message)


def _in_closed(session: Session, message: Message) -> Step | Refusal:
    match message:
        case Assign() | GoLive() | End() | Cancel() | CancelAssignment():
            return wrong_state(session)
        case FixReported() | MediaProved() | MediaBroke() | Tick() | SettlementMined():
            return Step(session=session)
        case _:
            assert_never(message)


# The movements.


def _assign(session: Session, message: Assign, now_ms: int, limits: SessionLimits) -> Step:
    operator = message.operator
    is_drone = operator.device_kind.value == "DRONE"
    timeout_ms = limits.drone_start_timeout_ms if is_drone else limits.start_timeout_ms
    phase = Assigned(
        operator=operator,
        assigned_at_ms=now_ms,
        start_deadline_ms=now_ms + timeout_ms,
        is_dispatched=message.is_dispatched,
    )
    event = Event(EventKind.ASSIGNED, now_ms, (("operatorWorkspaceId", operator.workspace_id),))
    return Step(session=replace(session, phase=phase), events=(event,))


def fence_of(terms: Terms, operator: Operator, limits: SessionLimits) -> Fence:
    """Where the device must stay: mounted ones at their coverage centre, others at the requested point."""
    lat, lng = operator.coverage_lat, operator.coverage_lng
    if operator.device_kind.is_mounted() and lat is not None and lng is not None:
        return Fence(lat=lat, lng=lng, radius_m=limits.fence.mounted_radius_m)
    radius_m = limits.fence.mounted_radius_m if operator.device_kind.is_mounted() else terms.radius_m
    return Fence(lat=terms.lat, lng=terms.lng, radius_m=radius_m)


def _go_live(session: Session, phase: Assigned, video: VideoInput, now_ms: int, limits: SessionLimits) -> Step:
    fence = fence_of(session.terms, phase.operator, limits)
    live = Live(
        operator=phase.operator,
        assigned_at_ms=phase.assigned_at_ms,
        started_at_ms=now_ms,
        ends_at_ms=now_ms + session.terms.max_duration_s * SECOND_MS,
        video=video,
        evidence=Evidence(started_at_ms=now_ms),
        location=LocationState(fence=fence, device_kind=phase.operator.device_kind),
    )
    event = Event(EventKind.STARTED, now_ms, (("videoBackendRef", video.ref),))
    return Step(session=replace(session, phase=live), events=(event,))


def _close(session: Session, state: SessionState, reason: EndReason, at_ms: int, kind: EventKind) -> Step:
    operator = session.operator
    phase = Closed(
        state=state,
        operator=operator,
        assigned_at_ms=session.phase.assigned_at_ms if isinstance(session.phase, Assigned) else None,
        closed_at_ms=at_ms,
        reason=reason,
    )
    effects: tuple[Effect, ...] = (ReleaseHold(),)
    if operator is not None:
        effects += (ReleaseOperator(operator.workspace_id, reason is EndReason.START_TIMEOUT),)
    event = Event(kind, at_ms, (("reason", reason.value),))
    return Step(session=replace(session, phase=phase), events=(event,), effects=effects)


def _end(session: Session, phase: Live, reason: EndReason, at_ms: int, limits: SessionLimits) -> Step:
    terms = session.terms
    reading = read_final(phase.evidence, at_ms, terms.max_duration_s, limits.meter)
    charged = charge(reading.clean_seconds, terms.rate, terms.hold)
    windows = tuple(replace(window, to_ms=at_ms) if window.to_ms is None else window for window in reading.windows)
    ended = Ended(
        operator=phase.operator,
        assigned_at_ms=phase.assigned_at_ms,
        started_at_ms=phase.started_at_ms,
        ended_at_ms=at_ms,
        reason=reason,
        video_ref=phase.video.ref,
        clean_seconds=reading.clean_seconds,
        charged=charged,
        windows=windows,
    )
    dirty = "; ".join(f"{window.from_ms}-{window.to_ms} {window.reason.value}" for window in windows)
    event = Event(
        EventKind.ENDED,
        at_ms,
        (
            ("reason", reason.value),
            ("startedAtMs", phase.started_at_ms),
            ("cleanSeconds", reading.clean_seconds),
            ("chargedMicroUsdc", str(charged)),
            ("windows", dirty),
        ),
    )
    effects = (
        Settle(settlement_of(terms, phase.operator, reading.clean_seconds, charged)),
        ChargeHold(charged),
        ReleaseOperator(phase.operator.workspace_id, start_timed_out=False),
        CloseVideo(phase.video.ref),
    )
    return Step(session=replace(session, phase=ended), events=(event,), effects=effects)


def settlement_of(terms: Terms, operator: Operator, clean_seconds: int, charged: MicroUsdc) -> SettlementPayload:
    """The payload of a session's settlement."""
    fee = fee_of(charged, terms.platform_fee_bps)
    return SettlementPayload(
        session_id=terms.id,
        from_address=terms.payer_address,
        to_address=operator.wallet_address,
        to_amount=MicroUsdc(charged - fee),
        fee_amount=fee,
        rate=terms.rate,
        chargeable_seconds=clean_seconds,
        consumer_workspace_id=terms.consumer_workspace_id,
        operator_workspace_id=operator.workspace_id,
        platform_fee_bps=terms.platform_fee_bps,
    )


# Pauses.


def _announce_pause(session: Session, live: Live, now_ms: int, limits: SessionLimits) -> Step:
    """Record a pause that opened or closed; other evidence is news to nobody and is not stored by itself."""
    pause = open_pause(live.evidence, now_ms, limits.meter)
    reason = pause.reason if pause is not None else None
    if reason is live.pause_reason:
        return Step(session=session.in_phase(live))
    live = replace(live, pause_reason=reason)
    return Step(session=replace(session, phase=live), events=(_pause_event(pause, now_ms),))


def _pause_event(pause: Window | None, now_ms: int) -> Event:
    if pause is None:
        return Event(EventKind.RESUMED, now_ms)
    return Event(EventKind.PAUSED, now_ms, (("reason", pause.reason.value), ("fromMs", pause.from_ms)))
