"""A session as data: the terms fixed at creation, and one frozen class per phase with what that phase knows."""

from enum import StrEnum
from typing import TypeAlias, final

from msgspec import field

from sightline.domain.escrow import ConsentKind, PayerConsent
from sightline.domain.geofence import DeviceKind, Fence, FenceLimits, Fix, Track
from sightline.domain.metering import Evidence, MeterLimits, PauseReason, Window
from sightline.domain.units import MINUTE_MS, SECOND_MS, MicroUsdc
from sightline.domain.value import Value, hiding


class SessionState(StrEnum):
    """The states a caller sees."""

    REQUESTED = "REQUESTED"
    ASSIGNED = "ASSIGNED"
    LIVE = "LIVE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class EndReason(StrEnum):
    """Why a session is over."""

    CONSUMER_ENDED = "CONSUMER_ENDED"
    OPERATOR_ENDED = "OPERATOR_ENDED"
    MAX_DURATION = "MAX_DURATION"
    LOCATION_STALE = "LOCATION_STALE"
    GEOFENCE_EXIT = "GEOFENCE_EXIT"
    MEDIA_LOST = "MEDIA_LOST"
    FUNDS_LOST = "FUNDS_LOST"
    CONSUMER_LOST = "CONSUMER_LOST"
    CONSUMER_CANCELLED = "CONSUMER_CANCELLED"
    OPERATOR_CANCELLED = "OPERATOR_CANCELLED"
    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    START_TIMEOUT = "START_TIMEOUT"
    PLATFORM_ENDED = "PLATFORM_ENDED"
    """An administrator ended it, or suspended one of its workspaces."""


class MeterState(StrEnum):
    """What the meter of a session is doing."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@final
class SessionLimits(Value, kw_only=True):
    """The numbers of a session's life; every one is a setting."""

    start_timeout_ms: int = 120 * SECOND_MS
    drone_start_timeout_ms: int = 5 * MINUTE_MS
    funding_timeout_ms: int = MINUTE_MS
    """How long the start of a session may wait for its hold, beyond its own deadline."""
    funds_reserve_s: int = 30
    """Seconds of the rate that must be left beside what is charged so far while a session is LIVE."""
    meter: MeterLimits = field(default_factory=MeterLimits)
    fence: FenceLimits = field(default_factory=FenceLimits)


@final
class Terms(Value, kw_only=True):
    """What was agreed when the session was created. Only extensions change it: `max_duration_s` and `hold` grow."""

    id: str
    consumer_workspace_id: str
    payer_address: str
    lat: float
    lng: float
    radius_m: int
    max_duration_s: int
    wait_timeout_s: int
    rate: MicroUsdc
    hold: MicroUsdc
    platform_fee_bps: int
    quote_id: str | None
    instructions: str | None
    metadata_json: str | None
    created_at_ms: int
    consumer_lease_s: int | None = None
    """Seconds without a call of the consumer side after which a LIVE session ends; None: no lease."""
    consent: PayerConsent | None = None
    """The payer's consent to a hold by the escrow contract, which then opens it before the session starts."""
    minimum_s: int = 0
    """Least seconds that are charged if any time was clean; 0 in rows of older versions."""
    requires_coverage: bool = False
    """Whether dispatch takes only operators that cover the place."""

    @property
    def wait_deadline_ms(self) -> int:
        """When an unassigned request expires."""
        return self.created_at_ms + self.wait_timeout_s * SECOND_MS

    @property
    def is_authorized(self) -> bool:
        """Whether the payer signed an authorization, with which the token moves the amount without an allowance."""
        return self.consent is not None and self.consent.kind is ConsentKind.AUTHORIZATION


@final
class SessionExtension(Value, kw_only=True):
    """More time for a LIVE session at its rate. A session takes each id once, so that a repeat adds nothing."""

    id: str
    seconds: int
    amount: MicroUsdc
    """What the time costs at most: by so much the hold grows."""
    consent: PayerConsent | None = None
    """The payer's consent to the larger hold, where the escrow contract holds it; `open_by_s` is its last second."""
    tx_hash: str | None = None
    """The transaction by which the escrow contract took the amount; None before, and without escrow."""


@final
class Operator(Value, kw_only=True):
    """The operator workspace as the session needs it, frozen when it was assigned."""

    workspace_id: str
    wallet_address: str
    device_kind: DeviceKind
    coverage_lat: float | None
    coverage_lng: float | None


@final
class VideoInput(Value, kw_only=True):
    """The live input that the video backend made for a session. The URLs are the same for its whole life."""

    ref: str
    whip_url: str
    """Where the operator publishes. Embeds a secret: never log it, never show it to a viewer."""
    whep_url: str

    __repr__ = hiding("whip_url", "whep_url")


@final
class Requested(Value, kw_only=True):
    """Waiting for an operator, for the first time or again after one declined or did not start."""

    reopened_at_ms: int | None = None
    """When the last assignment ended; None: there was none."""
    deadline_ms: int | None = None
    """When the request expires, after an assignment; None: `Terms.wait_deadline_ms`."""
    unstarted_by: tuple[str, ...] = ()
    """Operators that were assigned and declined, or did not start in time. They are not assigned again."""


@final
class Assigned(Value, kw_only=True):
    """An operator has it and may start."""

    operator: Operator
    assigned_at_ms: int
    start_deadline_ms: int
    is_dispatched: bool = False
    """Whether the dispatcher chose the operator, who is BUSY from then on; else the operator accepted."""
    wait_left_ms: int | None = None
    """Wait time that was left at the assignment; None in rows of older versions: until `Terms.wait_deadline_ms`."""
    unstarted_by: tuple[str, ...] = ()
    """See `Requested`."""
    funding_at_ms: int | None = None
    """When a start first asked for the hold, which names this operator: no other can take the session any more."""


@final
class LocationState(Value, kw_only=True):
    """Where the operator's device is, as the geofence of one LIVE session knows it."""

    fence: Fence
    device_kind: DeviceKind
    track: Track = field(default_factory=Track)
    is_inside: bool | None = None
    outside_in_row: int = 0
    coarse_in_row: int = 0
    last_fix: Fix | None = None
    last_sequence: int = -1
    """Sequence of the newest heartbeat taken in; what is recorded after it is taken in again by recovery."""


@final
class ConsumerMessage(Value):
    """A short text of the consumer to the operator, such as "turn left"."""

    number: int
    """Counts the messages of the session from 1."""
    at_ms: int
    text: str


@final
class Live(Value, kw_only=True):
    """Filming, metered."""

    operator: Operator
    assigned_at_ms: int
    started_at_ms: int
    ends_at_ms: int
    video: VideoInput
    evidence: Evidence
    location: LocationState
    pause_reason: PauseReason | None = None
    """The pause that callers were last told of; None while RUNNING."""
    consumer_seen_ms: int = 0
    """When the consumer side last called; kept in memory, and renewed by recovery."""
    hold_tx_hash: str | None = None
    """The transaction by which the escrow contract took the hold; None without escrow."""
    messages: tuple[ConsumerMessage, ...] = ()
    """The newest messages, oldest first. All of them are recorded events."""


@final
class Ended(Value, kw_only=True):
    """Over after having been LIVE; the charge is fixed."""

    operator: Operator
    assigned_at_ms: int
    started_at_ms: int
    ended_at_ms: int
    reason: EndReason
    video_ref: str
    clean_seconds: int
    charged: MicroUsdc
    windows: tuple[Window, ...]
    settlement_tx_hash: str | None = None
    hold_tx_hash: str | None = None
    """See `Live`."""
    messages: tuple[ConsumerMessage, ...] = ()
    """The newest messages as they were at the end; none in rows of older versions."""


@final
class Closed(Value, kw_only=True):
    """Cancelled or expired before it was LIVE; nothing is charged."""

    state: SessionState
    operator: Operator | None
    assigned_at_ms: int | None
    closed_at_ms: int
    reason: EndReason
    is_dispatched: bool = False
    """Whether the dispatcher had chosen the operator."""


Phase: TypeAlias = Requested | Assigned | Live | Ended | Closed


@final
class Delivery(Value):
    """Which pictures of a session reached the consumer: answered frames and clips, and video that arrives at a viewer.

    What a viewer reports is told every three seconds.
    """

    first_at_ms: int
    last_at_ms: int
    longest_gap_ms: int = 0
    """Of the times between two of them. Frames that are asked for every ten seconds have gaps of ten seconds."""

    def followed_by(self, at_ms: int) -> "Delivery":
        """With one picture more. One that is older than the newest changes nothing."""
        if at_ms <= self.last_at_ms:
            return self
        return Delivery(self.first_at_ms, at_ms, max(self.longest_gap_ms, at_ms - self.last_at_ms))


@final
class MediaCheckpoint(Value, kw_only=True):
    """What is stored of a LIVE session's media between two writes of its row."""

    proved_at_ms: int
    """The newest instant at which media was proved."""
    delivery: Delivery | None = None


@final
class Session(Value):
    """One session: terms, phase, and the version of its stored row (0: not stored yet)."""

    terms: Terms
    phase: Phase
    version: int = 0
    head_hash: str = ""
    """Hash of the newest of the session's recorded events; each event's hash covers the one before."""
    events: int = 0
    """How many events are recorded."""
    ended_head_hash: str | None = None
    """Hash of the event ENDED. Later events, such as SETTLED, change `head_hash` but not this."""
    extensions: tuple[SessionExtension, ...] = ()
    """Extensions whose seconds and amount are part of `terms`, oldest first."""
    extending: SessionExtension | None = None
    """An extension that the escrow contract is asked for. It adds nothing to `terms` yet."""
    ended_by: str | None = None
    """The credential of the party that ended it, as `credential_of` names it. Not part of an event: see ADR 0250."""
    messages_shown: int = 0
    """Number of the newest message that the operator's device has shown. Not part of an event: see ADR 0257."""
    delivery: Delivery | None = None
    """None: no picture is known to have reached the consumer. Not part of an event: see ADR 0263."""

    @property
    def first_hold(self) -> MicroUsdc:
        """The hold as it was when the session was created."""
        return MicroUsdc(self.terms.hold - sum(extension.amount for extension in self.extensions))

    @property
    def id(self) -> str:
        """The session's id."""
        return self.terms.id

    @property
    def state(self) -> SessionState:
        """The state a caller sees."""
        match self.phase:
            case Requested():
                return SessionState.REQUESTED
            case Assigned():
                return SessionState.ASSIGNED
            case Live():
                return SessionState.LIVE
            case Ended():
                return SessionState.ENDED
            case Closed(state=state):
                return state

    @property
    def operator(self) -> Operator | None:
        """The assigned operator, if there is one."""
        return None if isinstance(self.phase, Requested) else self.phase.operator

    @property
    def unstarted_by(self) -> tuple[str, ...]:
        """The operators that were assigned, declined or did not start, and are not assigned again."""
        return self.phase.unstarted_by if isinstance(self.phase, Requested | Assigned) else ()

    @property
    def newest_ms(self) -> int:
        """The newest instant that the session knows. Its time never goes back before it."""
        match self.phase:
            case Requested(reopened_at_ms=at_ms):
                return self.terms.created_at_ms if at_ms is None else at_ms
            case Assigned(assigned_at_ms=at_ms) | Ended(ended_at_ms=at_ms) | Closed(closed_at_ms=at_ms):
                return at_ms
            case Live(evidence=evidence):
                return evidence.newest_ms

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more can happen to it, settlement aside."""
        return isinstance(self.phase, Ended | Closed)
