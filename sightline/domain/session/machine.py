"""The session's state machine: `step(session, message, now)` returns the next session and what to do, or a refusal.

Every change of a session's state happens in this file; what a LIVE session learns between two changes is in `evidence`.
A step has no side effects: it returns events to record and effects to carry out after the commit. Deadlines are decided
by timestamp inside every step, before the message is handled, so a late call is refused whether or not a timer fired.
Every phase lists every message: a new message fails the type check at each phase until it is handled there.

Time never goes back: a step at an instant before the newest one that the session knows happens at that newest instant.
A heartbeat or a media event is judged by the time at which it was received, so one that was received before a deadline
counts even if it is handled after it.
"""

from collections.abc import Sequence
from typing import assert_never, overload

from sightline.domain.conduct import PROVED_SECONDS
from sightline.domain.geofence import DeviceKind, Fence
from sightline.domain.metering import (
    Evidence,
    Reading,
    Window,
    charge,
    next_check_ms,
    open_pause,
    pause_end,
    read_final,
    read_live,
)
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.evidence import has_new_gap, recovered, with_fix, with_media
from sightline.domain.session.messages import (
    Assign,
    BeginExtending,
    BeginFunding,
    Cancel,
    CancelAssignment,
    ChargeHold,
    CloseVideo,
    ConsumerActive,
    Decline,
    Effect,
    End,
    Event,
    EventKind,
    Extend,
    ExtensionRefused,
    FixReported,
    FundsReported,
    GoLive,
    MarkShown,
    MediaBroke,
    MediaProved,
    Message,
    Party,
    RecordNoShow,
    RecordProof,
    ReleaseHold,
    ReleaseOperator,
    Say,
    Settle,
    SettlementMined,
    Step,
    Tick,
    Withdraw,
)
from sightline.domain.session.model import (
    Assigned,
    Closed,
    ConsumerMessage,
    Delivery,
    Ended,
    EndReason,
    Live,
    LocationState,
    MediaCheckpoint,
    Operator,
    Requested,
    Session,
    SessionExtension,
    SessionLimits,
    SessionState,
    Terms,
)
from sightline.domain.settlement import SettlementPayload, fee_of
from sightline.domain.units import MINUTE_MS, SECOND_MS, MicroUsdc
from sightline.domain.value import replace

EXPIRED = Refusal(
    Code.INVALID_STATE, "session:expired", "The session's deadline has passed", state=SessionState.EXPIRED
)

NOT_AGAIN = Refusal(
    Code.INVALID_STATE,
    "session:notStarted",
    "The operator was assigned to this session before, and declined it or did not start it",
    state=SessionState.REQUESTED,
)
NOT_ENDED = "The session is REQUESTED, and has no operator yet: cancel it with DELETE instead of POST .../end"
NOT_ACKNOWLEDGED = "NOT_ACKNOWLEDGED"
"""Reason of a REOPENED event: the dispatched operator did not acknowledge in time."""
DECLINED = "DECLINED"
"""Reason of a REOPENED event: the operator declined the assignment."""
DECLINE_WITHIN_MS = 20 * SECOND_MS
"""An operator that declines within this time after its assignment is no no-show."""
UNSTARTED_MAX = 100
"""Operators that may decline or fail to start one request before it expires; bounds what is stored of it."""

DURATION_MAX_S = 14_400
"""Seconds that a session may last, extensions included. The escrow contract holds an amount for no longer."""
EXTENSIONS_MAX = 100
"""Extensions of one session; bounds what is stored of it."""

MESSAGES_MAX = 200
"""Messages of the consumer in one session; bounds its recorded events."""
MESSAGES_PER_MINUTE = 10
"""Messages in any minute. As many of the newest are kept with the session."""

END_REASONS = {
    Party.CONSUMER: EndReason.CONSUMER_ENDED,
    Party.OPERATOR: EndReason.OPERATOR_ENDED,
    Party.PLATFORM: EndReason.PLATFORM_ENDED,
}

REPORTS = (
    FixReported, MediaProved, MediaBroke, ConsumerActive, FundsReported, Tick, SettlementMined, ExtensionRefused,
)  # fmt: skip


def wrong_state(session: Session) -> Refusal:
    """The refusal of a command that the session's state does not allow."""
    if session.state is SessionState.EXPIRED:
        return EXPIRED
    message = f"Operation not allowed while the session is {session.state}"
    return Refusal(Code.INVALID_STATE, "session:state", message, state=session.state)


def not_live_yet(session: Session) -> Refusal:
    """The refusal of a command that a session allows when it is LIVE."""
    refusal = wrong_state(session)
    if session.state not in (SessionState.REQUESTED, SessionState.ASSIGNED):
        return refusal
    return replace(refusal, message=f"The session is {session.state}: wait until it is LIVE")


def create(terms: Terms) -> Step:
    """A new session in REQUESTED. Its first event holds the terms that a receipt is verified by."""
    session = Session(terms=terms, phase=Requested())
    facts: tuple[tuple[str, str | int | None], ...] = (
        ("consumerWorkspaceId", terms.consumer_workspace_id),
        ("payerAddress", terms.payer_address),
        ("ratePerSecondMicroUsdc", str(terms.rate)),
        ("holdMicroUsdc", str(terms.hold)),
        ("maxDurationSeconds", terms.max_duration_s),
        ("platformFeeBps", terms.platform_fee_bps),
        ("requestedLat", f"{terms.lat:.6f}"),
        ("requestedLng", f"{terms.lng:.6f}"),
        ("radiusMeters", terms.radius_m),
    )
    if terms.minimum_s:
        facts += (("minimumSeconds", terms.minimum_s),)
    return Step(session=session, events=(Event(EventKind.CREATED, terms.created_at_ms, facts),))


def step(session: Session, message: Message, now_ms: int, limits: SessionLimits) -> Step | Refusal:
    """Take one step.

    A fact that changes nothing leaves the session as it is (a Step without events). A command after a deadline is
    refused as expired; `settle_deadline` returns what the passed deadline made of the session.
    """
    newest_ms = session.newest_ms
    now_ms = max(now_ms, newest_ms)
    at_ms = max(newest_ms, min(now_ms, _received_ms(message, now_ms)))
    late = settle_deadline(session, at_ms, limits)
    if late is not None:
        if isinstance(message, REPORTS):
            return late
        return EXPIRED if late.session.is_terminal else _then(late, step(late.session, message, now_ms, limits))
    match session.phase:
        case Requested():
            return _in_requested(session, session.phase, message, now_ms, limits)
        case Assigned():
            return _in_assigned(session, session.phase, message, now_ms, limits)
        case Live():
            return _in_live(session, session.phase, message, at_ms, now_ms, limits)
        case Ended():
            return _in_ended(session, session.phase, message, now_ms)
        case Closed():
            return _in_closed(session, message)


def _received_ms(message: Message, now_ms: int) -> int:
    """When a message was received: for evidence its own time, for all else now."""
    match message:
        case FixReported(fix=fix):
            return fix.at_ms
        case MediaProved(at_ms=at_ms) | MediaBroke(at_ms=at_ms):
            return at_ms
        case _:
            return now_ms


def recover(
    session: Session,
    media: MediaCheckpoint | None,
    heartbeats: Sequence[FixReported],
    now_ms: int,
    limits: SessionLimits,
) -> Step:
    """Bring a stored session up to date with what was recorded after its row, then settle its deadlines.

    Args:
        media: The newest checkpoint of its media, or None.
        heartbeats: The operator's recorded heartbeats that the row does not know yet, by sequence.
    """
    if isinstance(session.phase, Live):
        live = recovered(session.phase, None if media is None else media.proved_at_ms, heartbeats, limits)
        if session.terms.consumer_lease_s is not None:
            # The consumer could not call while the server was down: its lease starts anew.
            live = replace(live, consumer_seen_ms=max(live.consumer_seen_ms, now_ms))
        session = replace(session, phase=live)
        if media is not None:
            # Each has what the one before it has: the newest has everything.
            known = [each for each in (session.delivery, media.delivery) if each is not None]
            session = replace(session, delivery=max(known, key=lambda each: each.last_at_ms, default=None))
    now_ms = max(now_ms, session.newest_ms)
    if not isinstance(session.phase, Live):
        return settle_deadline(session, now_ms, limits) or Step(session=session)
    ended = _live_deadline(session, session.phase, now_ms, limits)
    return ended if ended is not None else _announce_pause(session, session.phase, now_ms, now_ms, limits)


# Deadlines.


def settle_deadline(session: Session, now_ms: int, limits: SessionLimits) -> Step | None:
    """Return the step that a passed deadline causes; None while no deadline has passed."""
    phase = session.phase
    if isinstance(phase, Requested) and now_ms >= (deadline := wait_deadline_ms(session, phase)):
        return _close(session, SessionState.EXPIRED, EndReason.WAIT_TIMEOUT, deadline, EventKind.EXPIRED)
    if isinstance(phase, Assigned) and now_ms >= phase.start_deadline_ms:
        late = _reopen(session, phase, phase.start_deadline_ms, EndReason.START_TIMEOUT.value)
        following = settle_deadline(late.session, now_ms, limits)
        return late if following is None else _then(late, following)
    if isinstance(phase, Live):
        now_ms = max(now_ms, phase.evidence.newest_ms)
        # Without an open window the pauses cannot have reached a limit since the step before.
        if now_ms >= _live_end(session, phase)[0] or open_pause(phase.evidence, now_ms, limits.meter) is not None:
            return _live_deadline(session, phase, now_ms, limits)
    return None


def _live_deadline(session: Session, phase: Live, now_ms: int, limits: SessionLimits) -> Step | None:
    """End a LIVE session whose pauses reached a limit, or whose time is over, whichever happened first."""
    ends_at_ms, end_reason = _live_end(session, phase)
    paused_out = pause_end(phase.evidence, min(now_ms, ends_at_ms), limits.meter)
    if paused_out is not None:
        reason = EndReason(paused_out.reason.value)
        return _end(session, phase, reason, paused_out.ended_at_ms, limits, decided_at_ms=paused_out.decided_at_ms)
    if now_ms >= ends_at_ms:
        return _end(session, phase, end_reason, ends_at_ms, limits)
    return None


def _live_end(session: Session, phase: Live) -> tuple[int, EndReason]:
    """When a LIVE session ends by itself whatever its meter shows, and why."""
    lease_s = session.terms.consumer_lease_s
    if lease_s is not None:
        lost_ms = max(phase.started_at_ms, phase.consumer_seen_ms) + lease_s * SECOND_MS
        if lost_ms < phase.ends_at_ms:
            return lost_ms, EndReason.CONSUMER_LOST
    return phase.ends_at_ms, EndReason.MAX_DURATION


def next_due_ms(session: Session, now_ms: int, limits: SessionLimits) -> int | None:
    """Return when the session must be looked at again; None in a terminal state."""
    phase = session.phase
    if not isinstance(phase, Live):
        return deadline_ms(session)
    now_ms = max(now_ms, phase.evidence.newest_ms)
    return min(_live_end(session, phase)[0], next_check_ms(phase.evidence, now_ms, limits.meter))


def wait_deadline_ms(session: Session, phase: Requested) -> int:
    """Return when a request expires. The time during which an operator was assigned does not count as waiting."""
    return session.terms.wait_deadline_ms if phase.deadline_ms is None else phase.deadline_ms


def deadline_ms(session: Session) -> int | None:
    """Return the deadline that callers see as expiresAt; None in a terminal state."""
    match session.phase:
        case Requested():
            return wait_deadline_ms(session, session.phase)
        case Assigned(start_deadline_ms=deadline):
            return deadline
        case Live(ends_at_ms=deadline):
            return deadline
        case Ended() | Closed():
            return None


# One function per phase.


def _in_requested(
    session: Session, phase: Requested, message: Message, now_ms: int, limits: SessionLimits
) -> Step | Refusal:
    match message:
        case Assign(operator=operator):
            if operator.workspace_id in phase.unstarted_by:
                return NOT_AGAIN
            return _assign(session, phase, message, now_ms, limits)
        case Cancel():
            return _close(session, SessionState.CANCELLED, EndReason.CONSUMER_CANCELLED, now_ms, EventKind.CANCELLED)
        case End(by=Party.PLATFORM):
            return _close(session, SessionState.CANCELLED, EndReason.PLATFORM_ENDED, now_ms, EventKind.CANCELLED)
        case End():
            return replace(wrong_state(session), message=NOT_ENDED)
        case (
            BeginFunding() | GoLive() | CancelAssignment() | Withdraw() | Decline()
        ):  # fmt: skip
            return wrong_state(session)
        case BeginExtending() | Extend() | Say() | MarkShown():
            return not_live_yet(session)
        case (
            FixReported()
            | MediaProved()
            | MediaBroke()
            | ConsumerActive()
            | FundsReported()
            | Tick()
            | SettlementMined()
            | ExtensionRefused()
        ):
            return Step(session=session)
        case _:
            assert_never(message)


def _in_assigned(
    session: Session, phase: Assigned, message: Message, now_ms: int, limits: SessionLimits
) -> Step | Refusal:
    match message:
        case BeginFunding():
            return _begin_funding(session, phase, now_ms, limits)
        case GoLive():
            return _go_live(session, phase, message, now_ms, limits)
        case CancelAssignment():
            return _close(session, SessionState.CANCELLED, EndReason.OPERATOR_CANCELLED, now_ms, EventKind.CANCELLED)
        case End(by=Party.CONSUMER, credential=credential):
            session = replace(session, ended_by=credential)
            return _close(session, SessionState.CANCELLED, EndReason.CONSUMER_CANCELLED, now_ms, EventKind.CANCELLED)
        case End(by=Party.PLATFORM):
            return _close(session, SessionState.CANCELLED, EndReason.PLATFORM_ENDED, now_ms, EventKind.CANCELLED)
        case Withdraw():
            return _reopen(session, phase, now_ms, NOT_ACKNOWLEDGED)
        case Decline():
            is_late = now_ms - phase.assigned_at_ms > DECLINE_WITHIN_MS
            return _reopen(session, phase, now_ms, DECLINED, is_no_show=is_late)
        case Assign() | Cancel() | End():
            return wrong_state(session)
        case BeginExtending() | Extend() | Say() | MarkShown():
            return not_live_yet(session)
        case (
            FixReported()
            | MediaProved()
            | MediaBroke()
            | ConsumerActive()
            | FundsReported()
            | Tick()
            | SettlementMined()
            | ExtensionRefused()
        ):
            return Step(session=session)
        case _:
            assert_never(message)


def _in_live(
    session: Session, phase: Live, message: Message, at_ms: int, now_ms: int, limits: SessionLimits
) -> Step | Refusal:
    """Take a step. Evidence was received at `at_ms` and is handled at `now_ms`; for all else both are the same."""
    match message:
        case End(by=by, credential=credential):
            return _end(replace(session, ended_by=credential), phase, END_REASONS[by], now_ms, limits)
        case FixReported():
            return _learn(session, phase, with_fix(phase, message, at_ms, limits), at_ms, now_ms, limits)
        case MediaProved() | MediaBroke():
            live = replace(phase, evidence=with_media(phase.evidence, message, at_ms, limits))
            step = _learn(session, phase, live, at_ms, now_ms, limits)
            return replace(step, has_evidence=has_new_gap(phase.evidence, live.evidence, limits.meter))
        case Tick():
            return _announce_pause(session, phase, now_ms, now_ms, limits)
        case ConsumerActive(workspace_id=workspace_id, picture_at_ms=picture_at_ms):
            if workspace_id not in (None, session.terms.consumer_workspace_id):
                return Step(session=session)  # the operator watches
            seen = replace(session, phase=replace(phase, consumer_seen_ms=now_ms))
            if picture_at_ms is None or picture_at_ms < phase.started_at_ms:
                return Step(session=seen)
            at_ms, known = min(picture_at_ms, now_ms), session.delivery
            return Step(session=replace(seen, delivery=known.followed_by(at_ms) if known else Delivery(at_ms, at_ms)))
        case FundsReported(available=available):
            return _check_funds(session, phase, available, now_ms, limits)
        case BeginExtending(extension=extension):
            return _begin_extending(session, extension)
        case Extend(extension=extension):
            return _extend(session, phase, extension, now_ms)
        case Say(text=text):
            return _say(session, phase, text, now_ms)
        case MarkShown(number=number):
            newest = phase.messages[-1].number if phase.messages else 0
            shown = min(number, newest)
            is_new = shown > session.messages_shown
            return Step(session=replace(session, messages_shown=shown) if is_new else session)
        case ExtensionRefused(extension_id=extension_id):
            is_asked = session.extending is not None and session.extending.id == extension_id
            return Step(session=replace(session, extending=None) if is_asked else session)
        case Assign() | BeginFunding() | GoLive() | Cancel() | CancelAssignment() | Withdraw() | Decline():
            return wrong_state(session)
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
        case (
            Assign() | BeginFunding() | GoLive() | End() | Cancel() | CancelAssignment() | Withdraw() | Decline()
            | BeginExtending() | Extend() | Say() | MarkShown()
        ):  # fmt: skip
            return wrong_state(session)
        case (
            FixReported() | MediaProved() | MediaBroke() | ConsumerActive() | FundsReported() | Tick()
            | ExtensionRefused()
        ):  # fmt: skip
            return Step(session=session)
        case _:
            assert_never(message)


def _in_closed(session: Session, message: Message) -> Step | Refusal:
    match message:
        case (
            Assign() | BeginFunding() | GoLive() | End() | Cancel() | CancelAssignment() | Withdraw() | Decline()
            | BeginExtending() | Extend() | Say() | MarkShown()
        ):  # fmt: skip
            return wrong_state(session)
        case (
            FixReported()
            | MediaProved()
            | MediaBroke()
            | ConsumerActive()
            | FundsReported()
            | Tick()
            | SettlementMined()
            | ExtensionRefused()
        ):
            return Step(session=session)
        case _:
            assert_never(message)


# The movements.


def _assign(session: Session, before: Requested, message: Assign, now_ms: int, limits: SessionLimits) -> Step:
    operator = message.operator
    is_drone = operator.device_kind is DeviceKind.DRONE
    timeout_ms = limits.drone_start_timeout_ms if is_drone else limits.start_timeout_ms
    phase = Assigned(
        operator=operator,
        assigned_at_ms=now_ms,
        start_deadline_ms=now_ms + timeout_ms,
        is_dispatched=message.is_dispatched,
        wait_left_ms=wait_deadline_ms(session, before) - now_ms,
        unstarted_by=before.unstarted_by,
    )
    facts = (("operatorWorkspaceId", operator.workspace_id), ("payeeAddress", operator.wallet_address))
    event = Event(EventKind.ASSIGNED, now_ms, facts)
    return Step(session=replace(session, phase=phase), events=(event,))


def _begin_funding(session: Session, phase: Assigned, now_ms: int, limits: SessionLimits) -> Step:
    """Note that the hold is asked for, and give the chain time beyond the deadline of the start, once."""
    if phase.funding_at_ms is not None:
        return Step(session=session)
    deadline_ms = max(phase.start_deadline_ms, now_ms + limits.funding_timeout_ms)
    funding = replace(phase, funding_at_ms=now_ms, start_deadline_ms=deadline_ms)
    return Step(session=replace(session, phase=funding))


def _reopen(session: Session, phase: Assigned, at_ms: int, reason: str, *, is_no_show: bool = True) -> Step:
    """Open the request again for the wait time that is left, or expire it if less than a second is.

    It expires too when a hold was asked for, because the hold names the operator.
    """
    left_ms = 0 if phase.funding_at_ms is not None else phase.wait_left_ms
    if left_ms is None:
        left_ms = session.terms.wait_deadline_ms - phase.assigned_at_ms
    if left_ms < SECOND_MS or len(phase.unstarted_by) >= UNSTARTED_MAX:
        expired = EndReason.START_TIMEOUT if is_no_show else EndReason.WAIT_TIMEOUT
        return _close(session, SessionState.EXPIRED, expired, at_ms, EventKind.EXPIRED)
    workspace_id = phase.operator.workspace_id
    reopened = Requested(
        reopened_at_ms=at_ms, deadline_ms=at_ms + left_ms, unstarted_by=(*phase.unstarted_by, workspace_id)
    )
    return Step(
        session=replace(session, phase=reopened),
        events=(Event(EventKind.REOPENED, at_ms, (("reason", reason), ("operatorWorkspaceId", workspace_id))),),
        effects=(
            ReleaseOperator(workspace_id, start_timed_out=is_no_show, is_withdrawn=True),
            *((RecordNoShow(phase.operator.wallet_address, at_ms),) if is_no_show else ()),
        ),
    )


@overload
def _then(first: Step, second: Step) -> Step: ...
@overload
def _then(first: Step, second: Step | Refusal) -> Step | Refusal: ...
def _then(first: Step, second: Step | Refusal) -> Step | Refusal:
    """Two steps as one; the refusal, if the second is refused."""
    if isinstance(second, Refusal):
        return second
    return Step(session=second.session, events=first.events + second.events, effects=first.effects + second.effects)


def fence_of(terms: Terms, operator: Operator, limits: SessionLimits) -> Fence:
    """Where the device must stay: mounted ones at their coverage centre, others at the requested point."""
    lat, lng = operator.coverage_lat, operator.coverage_lng
    if operator.device_kind.is_mounted() and lat is not None and lng is not None:
        return Fence(lat=lat, lng=lng, radius_m=limits.fence.mounted_radius_m)
    radius_m = limits.fence.mounted_radius_m if operator.device_kind.is_mounted() else terms.radius_m
    return Fence(lat=terms.lat, lng=terms.lng, radius_m=radius_m)


def _go_live(session: Session, phase: Assigned, message: GoLive, now_ms: int, limits: SessionLimits) -> Step:
    video, hold_tx_hash = message.video, message.hold_tx_hash
    fence = fence_of(session.terms, phase.operator, limits)
    live = Live(
        operator=phase.operator,
        assigned_at_ms=phase.assigned_at_ms,
        started_at_ms=now_ms,
        ends_at_ms=now_ms + session.terms.max_duration_s * SECOND_MS,
        video=video,
        evidence=Evidence(started_at_ms=now_ms),
        location=LocationState(fence=fence, device_kind=phase.operator.device_kind),
        hold_tx_hash=hold_tx_hash,
    )
    facts: tuple[tuple[str, str | int], ...] = (("videoBackendRef", video.ref),)
    if hold_tx_hash is not None:
        facts += (("holdTxHash", hold_tx_hash),)
    event = Event(EventKind.STARTED, now_ms, facts)
    return Step(session=replace(session, phase=live), events=(event,))


def why_not_extended(session: Session, extension: SessionExtension) -> Refusal | None:
    """Return why a LIVE session does not get more time; None if it may."""
    asked = session.extending
    if asked is not None and asked.id != extension.id:
        return Refusal(
            Code.CONFLICT,
            "session:extending",
            "Another extension of the session is waiting for the chain. Repeat later",
        )
    left_s = DURATION_MAX_S - session.terms.max_duration_s
    if extension.seconds > left_s:
        message = f"A session lasts at most {DURATION_MAX_S} seconds. This one can be extended by {left_s}"
        return Refusal(Code.INVALID_INPUT, "session:duration", message)
    if len(session.extensions) >= EXTENSIONS_MAX:
        message = f"The session was extended {EXTENSIONS_MAX} times, the most allowed"
        return Refusal(Code.INVALID_STATE, "session:extensions", message, state=session.state)
    return None


def _begin_extending(session: Session, extension: SessionExtension) -> Step | Refusal:
    asked = session.extending
    if asked is not None and asked.id == extension.id:
        return Step(session=session)
    return why_not_extended(session, extension) or Step(session=replace(session, extending=extension))


def _extend(session: Session, phase: Live, extension: SessionExtension, now_ms: int) -> Step | Refusal:
    """Add time: maximum duration and hold grow together, and the end moves. An extension that is in it adds nothing."""
    if any(known.id == extension.id for known in session.extensions):
        return Step(session=session)
    refusal = why_not_extended(session, extension)
    if refusal is not None:
        return refusal
    terms = replace(
        session.terms,
        max_duration_s=session.terms.max_duration_s + extension.seconds,
        hold=MicroUsdc(session.terms.hold + extension.amount),
    )
    facts: tuple[tuple[str, str | int], ...] = (
        ("seconds", extension.seconds),
        ("maxDurationSeconds", terms.max_duration_s),
        ("holdMicroUsdc", str(terms.hold)),
    )
    if extension.tx_hash is not None:
        facts += (("holdTxHash", extension.tx_hash),)
    extended = replace(
        session,
        terms=terms,
        phase=replace(phase, ends_at_ms=phase.ends_at_ms + extension.seconds * SECOND_MS),
        extensions=(*session.extensions, extension),
        extending=None,
    )
    return Step(session=extended, events=(Event(EventKind.EXTENDED, now_ms, facts),))


def _say(session: Session, phase: Live, text: str, now_ms: int) -> Step | Refusal:
    """Record a message for the operator. It changes nothing of the meter and costs nothing."""
    newest = phase.messages
    number = newest[-1].number + 1 if newest else 1
    if number > MESSAGES_MAX:
        message = f"The session has {MESSAGES_MAX} messages, the most allowed"
        return Refusal(Code.INVALID_STATE, "session:messages", message, state=session.state)
    if len(newest) == MESSAGES_PER_MINUTE and now_ms - newest[0].at_ms < MINUTE_MS:
        return Refusal(
            Code.RATE_LIMITED,
            "session:messages",
            f"At most {MESSAGES_PER_MINUTE} messages in a minute",
            retry_after_s=-((now_ms - newest[0].at_ms - MINUTE_MS) // SECOND_MS),
        )
    said = ConsumerMessage(number, now_ms, text)
    kept = (*newest, said)[-MESSAGES_PER_MINUTE:]
    event = Event(EventKind.MESSAGE, now_ms, (("number", number), ("text", text)))
    return Step(session=replace(session, phase=replace(phase, messages=kept)), events=(event,))


def _close(session: Session, state: SessionState, reason: EndReason, at_ms: int, kind: EventKind) -> Step:
    operator, before = session.operator, session.phase
    phase = Closed(
        state=state,
        operator=operator,
        assigned_at_ms=before.assigned_at_ms if isinstance(before, Assigned) else None,
        closed_at_ms=at_ms,
        reason=reason,
        is_dispatched=isinstance(before, Assigned) and before.is_dispatched,
    )
    effects: tuple[Effect, ...] = (ReleaseHold(),)
    if operator is not None:
        is_no_show = reason is EndReason.START_TIMEOUT
        effects += (ReleaseOperator(operator.workspace_id, is_no_show),)
        effects += (RecordNoShow(operator.wallet_address, at_ms),) if is_no_show else ()
        if isinstance(before, Assigned) and before.funding_at_ms is not None:
            # The contract may hold the amount: a charge of 0 returns it.
            effects += (Settle(settlement_of(session.terms, operator, 0, MicroUsdc(0))),)
    event = Event(kind, at_ms, (("reason", reason.value),))
    return Step(session=replace(session, phase=phase), events=(event,), effects=effects)


def _end(
    session: Session,
    phase: Live,
    reason: EndReason,
    at_ms: int,
    limits: SessionLimits,
    *,
    decided_at_ms: int | None = None,
) -> Step:
    terms = session.terms
    reading = read_final(
        phase.evidence,
        at_ms,
        terms.max_duration_s,
        limits.meter,
        minimum_s=terms.minimum_s,
        decided_at_ms=decided_at_ms,
    )
    charged = charge(reading.clean_seconds, terms.rate, terms.hold)
    ended = Ended(
        operator=phase.operator,
        assigned_at_ms=phase.assigned_at_ms,
        started_at_ms=phase.started_at_ms,
        ended_at_ms=at_ms,
        reason=reason,
        video_ref=phase.video.ref,
        clean_seconds=reading.clean_seconds,
        charged=charged,
        windows=reading.windows,
        hold_tx_hash=phase.hold_tx_hash,
        messages=phase.messages,
    )
    dirty = "; ".join(f"{window.from_ms}-{window.to_ms} {window.reason.value}" for window in reading.windows)
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
    effects: tuple[Effect, ...] = (
        Settle(settlement_of(terms, phase.operator, reading.clean_seconds, charged)),
        ChargeHold(charged),
        ReleaseOperator(phase.operator.workspace_id, start_timed_out=False),
        CloseVideo(phase.video.ref),
    )
    if reading.clean_seconds >= PROVED_SECONDS:
        effects += (RecordProof(phase.operator.wallet_address, at_ms),)
    return Step(session=replace(session, phase=ended), events=(event,), effects=effects)


def _check_funds(session: Session, phase: Live, available: MicroUsdc, now_ms: int, limits: SessionLimits) -> Step:
    """End a session whose payer can no longer pay what is charged so far and a reserve of `funds_reserve_s`."""
    if available >= funds_needed(session, phase, now_ms, limits):
        return Step(session=session)
    return _end(session, phase, EndReason.FUNDS_LOST, now_ms, limits)


def funds_needed(session: Session, phase: Live, now_ms: int, limits: SessionLimits) -> MicroUsdc:
    """Return what the payer of a LIVE session must be able to pay: what is charged so far and the reserve."""
    terms, reading = session.terms, live_reading(session.terms, phase, now_ms, limits)
    return MicroUsdc(min(terms.hold, (reading.clean_seconds + limits.funds_reserve_s) * terms.rate))


def live_reading(terms: Terms, phase: Live, now_ms: int, limits: SessionLimits) -> Reading:
    """Read the meter of a LIVE session by its terms."""
    return read_live(phase.evidence, now_ms, terms.max_duration_s, limits.meter, minimum_s=terms.minimum_s)


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


def _learn(session: Session, before: Live, after: Live, at_ms: int, now_ms: int, limits: SessionLimits) -> Step:
    """Take in evidence: it may end the session, pause it or resume it.

    Evidence that is handled late pauses a running meter by what was known when it was received, so that a server that
    is behind announces no pause that other evidence in its mailbox disproves. A pause that was announced ends by what
    is known now: at an earlier time it was not known yet, and is not over.

    A pause that began before this evidence and was not announced yet is recorded as well, although the evidence closes
    it. A pause that is not the announced one makes no event, but its gap of media is stored too (ADR 0261): a row must
    show every dirty gap, or recovery would take the time between two stored proofs as proved.
    """
    ended = settle_deadline(replace(session, phase=after), at_ms, limits)
    if ended is not None:
        return ended
    if before.pause_reason is not None:
        return _announce_pause(session, after, now_ms, now_ms, limits)
    missed = open_pause(before.evidence, at_ms, limits.meter)
    if missed is None:
        return _announce_pause(session, after, at_ms, now_ms, limits)
    announced = replace(after, pause_reason=missed.reason)
    step = _announce_pause(session, announced, at_ms, now_ms, limits)
    return replace(step, events=(_pause_event(missed, now_ms), *step.events))


def _announce_pause(session: Session, live: Live, at_ms: int, now_ms: int, limits: SessionLimits) -> Step:
    """Record now a pause that is open at `at_ms`, or the end of one. Other evidence does not store the row."""
    pause = open_pause(live.evidence, at_ms, limits.meter)
    reason = pause.reason if pause is not None else None
    if reason is live.pause_reason:
        return Step(session=replace(session, phase=live))
    live = replace(live, pause_reason=reason)
    return Step(session=replace(session, phase=live), events=(_pause_event(pause, now_ms),))


def _pause_event(pause: Window | None, now_ms: int) -> Event:
    if pause is None:
        return Event(EventKind.RESUMED, now_ms)
    return Event(EventKind.PAUSED, now_ms, (("reason", pause.reason.value), ("fromMs", pause.from_ms)))
