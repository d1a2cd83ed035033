"""Sessions: requests, the Session object, meter, frames."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import orjson
from pydantic import AfterValidator, Field, StringConstraints

from sightline.domain.session.model import SessionState
from sightline.domain.session.status import MeterStatus, SessionStatus
from sightline.http.cursors import SESSION_CURSOR
from sightline.http.schemas.base import (
    DECIMAL_TEXT,
    INTEGER_TEXT,
    LINE_PATTERN,
    TEXT_PATTERN,
    VISIBLE_PATTERN,
    WHOLE,
    Flag,
    Input,
    Instant,
    InstantMs,
    Latitude,
    Longitude,
    Money,
    Output,
    Query,
    Uuid,
    decimal_parameter,
    iso,
    iso_or_none,
    labelled,
)
from sightline.http.schemas.escrow import PaymentBody
from sightline.ports.identity import ApiKeyRecord

PlayUrl: TypeAlias = Callable[[str], str]
"""Makes the play URL of the caller from that of an input."""
METADATA_BYTES_MAX: Final = 2_048
_FPS: Final = decimal_parameter(0.1, 30, 5, "Frames per second")

ACCRUED: Final = "Cost so far: cleanSeconds x rate, at most the hold. It never falls, and at the end it is the charge"

State: TypeAlias = Literal["REQUESTED", "ASSIGNED", "LIVE", "ENDED", "CANCELLED", "EXPIRED"]
EndReason: TypeAlias = Literal[
    "CONSUMER_ENDED",
    "OPERATOR_ENDED",
    "MAX_DURATION",
    "LOCATION_STALE",
    "GEOFENCE_EXIT",
    "MEDIA_LOST",
    "FUNDS_LOST",
    "CONSUMER_LOST",
    "CONSUMER_CANCELLED",
    "OPERATOR_CANCELLED",
    "WAIT_TIMEOUT",
    "START_TIMEOUT",
    "PLATFORM_ENDED",
]
FundsState: TypeAlias = Literal["RESERVED", "HELD", "RELEASED", "SETTLED"]
MeterState: TypeAlias = Literal["RUNNING", "PAUSED", "STOPPED"]
PauseReason: TypeAlias = Literal["LOCATION_STALE", "GEOFENCE_EXIT", "MEDIA_LOST"]


def _is_small(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    if metadata is not None and len(orjson.dumps(metadata)) > METADATA_BYTES_MAX:
        raise labelled("session:metadata", "metadata holds at most 2048 bytes of JSON")
    return metadata


class CreateSessionBody(Input):
    """Ask for live video of a place."""

    AREA = "session"
    REFUSES_MISSPELT = True
    LABELS: ClassVar[Mapping[str, str]] = {
        "lat": "session:location",
        "lng": "session:location",
        "maxDurationSeconds": "session:duration",
        "radiusMeters": "session:radius",
        "waitTimeoutSeconds": "session:waitTimeout",
        "consumerLeaseSeconds": "session:consumerLease",
        "maxHoldMicroUsdc": "pricing:maximum",
    }

    lat: Latitude
    lng: Longitude
    max_duration_seconds: Annotated[int, Field(ge=1, le=14_400), WHOLE] = 600
    wait_timeout_seconds: Annotated[int, Field(ge=5, le=3_600), WHOLE] = 300
    quote_id: Uuid | None = Field(default=None, description="A quote of the caller's own; locks its rate")
    workspace_id: Uuid | None = Field(default=None, description="If given, the caller's own workspace")
    radius_meters: Annotated[int, Field(ge=50, le=10_000), WHOLE] = Field(
        default=500, description="Radius of the session's geofence"
    )
    instructions: Annotated[str, StringConstraints(max_length=500, pattern=TEXT_PATTERN)] | None = Field(
        default=None, description="Shown to the operator", examples=["North gate, look at the queue"]
    )
    consumer_lease_seconds: Annotated[int, Field(ge=15, le=600), WHOLE] | None = Field(
        default=None,
        description="End the LIVE session (CONSUMER_LOST) when the consumer has not read it, its frames or its events, "
        "and nobody on its side has watched it by WHEP, for this many seconds",
    )
    require_coverage: bool = Field(
        default=False,
        description="Dispatch only operators whose coverage contains the place; 503 UNAVAILABLE while there is none",
    )
    max_hold_micro_usdc: Money | None = Field(
        default=None, description="The largest hold that the caller agrees to. A larger one is refused with 409"
    )
    payment: PaymentBody | None = Field(
        default=None, description="What the payer has signed, where the service holds the amount in escrow"
    )
    metadata: Annotated[dict[str, Any] | None, AfterValidator(_is_small)] = Field(
        default=None, description="At most 2 KB of JSON, echoed to the consumer", examples=[{"order": "A-17"}]
    )


class ExtendSessionBody(Input):
    """More time for a LIVE session."""

    AREA = "session"
    REFUSES_MISSPELT = True
    LABELS: ClassVar[Mapping[str, str]] = {"seconds": "session:duration", "maxHoldMicroUsdc": "pricing:maximum"}

    seconds: Annotated[int, Field(ge=1, le=14_400), WHOLE] = Field(description="Added to maxDurationSeconds")
    max_hold_micro_usdc: Money | None = Field(
        default=None,
        description="The largest hold of the whole session that the caller agrees to. A larger one is refused with 409",
    )
    payment: PaymentBody | None = Field(
        default=None, description="What the payer has signed, where the contract holds the session's amount"
    )


class MessageBody(Input):
    """A short text for the operator."""

    AREA = "session"
    REFUSES_MISSPELT = True
    LABELS: ClassVar[Mapping[str, str]] = {"text": "session:message"}

    text: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=LINE_PATTERN),
        Field(
            description="One line, shown to the operator at once",
            json_schema_extra={"examples": ["turn left"], "pattern": VISIBLE_PATTERN},
        ),
    ]


class MessagesShownBody(Input):
    """What the operator's device has shown."""

    AREA = "session"
    REFUSES_MISSPELT = True
    LABELS: ClassVar[Mapping[str, str]] = {"number": "session:message"}

    number: Annotated[int, Field(ge=1, le=200), WHOLE] = Field(
        description="Number of the newest message that it has shown; those before it are taken as shown too",
        json_schema_extra={"examples": [1]},
    )


class AcceptSessionBody(Input):
    """Claim a session for the caller's own workspace."""

    AREA = "session"

    operator_workspace_id: Uuid


class ListSessionsQuery(Query):
    """Which sessions, newest first."""

    AREA = "session"
    LABELS: ClassVar[Mapping[str, str]] = {"limit": "pagination:limit", "cursor": "pagination:cursor"}

    view: Literal["consumer", "operator", "open"] | None = Field(
        default=None, description="Default: every session the workspace is party to"
    )
    state: tuple[State, ...] = Field(default=(), description="May be repeated")
    created_after: InstantMs | None = None
    created_before: InstantMs | None = None
    limit: Annotated[int, Field(ge=1, le=100), INTEGER_TEXT] = 20
    cursor: str | None = Field(default=None, pattern=SESSION_CURSOR, description="nextCursor of the page before")


FrameWidth: TypeAlias = Annotated[int, Field(ge=16, le=1920), INTEGER_TEXT]
FrameQuality: TypeAlias = Annotated[int, Field(ge=1, le=95), INTEGER_TEXT]
FrameAge: TypeAlias = Annotated[int, Field(ge=250, le=10_000), INTEGER_TEXT]


class FrameQueryString(Query):
    """Which frame, and how it is encoded."""

    AREA = "frame"

    width: FrameWidth | None = Field(default=None, description="Pixels; never enlarged. Default: the source's")
    quality: FrameQuality = 80
    max_age_ms: FrameAge = 10_000
    after: Annotated[int, Field(ge=0, le=9_007_199_254_740_991), INTEGER_TEXT] | None = Field(
        default=None, description="Only a frame with a greater sequence"
    )
    wait_ms: Annotated[int, Field(ge=0, le=10_000), INTEGER_TEXT] = Field(
        default=0, description="How long to wait for it"
    )
    signed: Flag = Field(default=False, description="Sign the frame by C2PA content credentials")


class ClipQueryString(Query):
    """How long a clip is."""

    AREA = "clip"

    seconds: Annotated[int, Field(ge=1, le=30), INTEGER_TEXT] = Field(
        default=10, description="The last seconds; fewer if the server has kept fewer"
    )
    signed: Flag = Field(default=False, description="Sign the clip by C2PA content credentials")


class FramesQueryString(Query):
    """A stream of frames."""

    AREA = "frame"

    width: FrameWidth | None = None
    quality: FrameQuality = 80
    max_age_ms: FrameAge = 10_000
    fps: Annotated[float, Field(ge=0.1, le=30), DECIMAL_TEXT, _FPS] = 5.0
    signed: Flag = Field(default=False, description="Sign each frame by C2PA content credentials")


class EndedBy(Output):
    """The credential that ended a session."""

    kind: Literal["WALLET", "API_KEY"]
    id: str = Field(description="Address of the wallet, or keyId of the API key")


class Delivery(Output):
    """Which pictures reached the consumer of a session, exact to some seconds."""

    first_at: Instant
    last_at: Instant
    longest_gap_ms: int = Field(description="Longest time between two pictures from the first to the last")


class OperatorMessage(Output):
    """A short text of the consumer to the operator."""

    number: int = Field(description="Counts the messages of the session from 1")
    sent_at: Instant
    text: str
    shown: bool = Field(
        description="Whether the operator's device has said that it has shown it. It can say so until the session ends"
    )


class Session(Output):
    """A session as the caller may see it."""

    id: Uuid
    consumer_workspace_id: Uuid
    operator_workspace_id: Uuid | None
    state: State
    max_duration_seconds: int
    wait_timeout_seconds: int
    consumer_lease_seconds: int | None
    require_coverage: bool = Field(description="Whether dispatch takes only operators that cover the place")
    rate_per_second_micro_usdc: Money
    hold_micro_usdc: Money
    started_at: Instant | None
    ended_at: Instant | None
    clean_seconds: int
    charged_micro_usdc: Money = Field(description="Computed at the end; 0 before")
    accrued_micro_usdc: Money = Field(description=ACCRUED)
    settlement_tx_hash: str | None
    video_backend_ref: str | None
    created_at: Instant
    requested_lat: float
    requested_lng: float
    authorized: bool
    whep_url: str | None = Field(description="While LIVE, for both parties")
    whip_url: str | None = Field(description="While LIVE, for the operator: sessions:operate, OWNER or ADMIN. Secret")
    end_reason: EndReason | None
    ended_by: EndedBy | None = Field(description="Which credential of your workspace ended it; null if none did")
    meter_state: MeterState | None
    pause_reason: PauseReason | None
    assigned_at: Instant | None
    expires_at: Instant | None = Field(description="The current deadline")
    radius_meters: int
    platform_fee_bps: int
    minimum_seconds: int = Field(description="Least clean seconds, once position and video were proved together")
    quote_id: Uuid | None
    instructions: str | None
    metadata: dict[str, Any] | None = Field(description="For the consumer only")
    funds_state: FundsState | None = Field(
        description="With escrow: RESERVED before the start, HELD by the contract from then on, SETTLED when the "
        "charge is paid and the rest is back with the payer; RELEASED if the session was over without an "
        "operator. Null without escrow"
    )
    hold_tx_hash: str | None = Field(description="The transaction by which the escrow contract took the hold")
    messages: list[OperatorMessage] = Field(
        description="The consumer's newest 10 messages to the operator, oldest first, also after the end. All are "
        "events of the session. Empty for a session that a server of an earlier version ended"
    )
    delivery: Delivery | None = Field(
        description="Frames and clips that were answered to the consumer or a guest of it, and video that arrived at "
        "its viewers by their own reports (RTCP). Null if none is known: an external media server does not name viewers"
    )


class AssignedSession(Session):
    """The answer of dispatch and accept."""

    distance_meters: int | None = Field(
        description="From the operator's newest position, else from the centre of its coverage, to the place; null "
        "while neither is known"
    )
    covers_place: bool | None = Field(description="Whether the operator's coverage contains the place")
    consistency_token: str = Field(description="Opaque; may be sent back as x-svc-consistency-token")


class SessionPage(Output):
    """A page of sessions."""

    items: list[Session]
    next_cursor: str | None


class StartedSession(Output):
    """The answer of start: where to publish, where to play."""

    session: Session
    video_backend_ref: str
    whip_url: str
    whep_url: str


class CancelledAssignments(Output):
    """What a bulk cancel did."""

    count: int
    cancelled: list[Uuid] = Field(description="Oldest first")


class ViewerToken(Output):
    """Where to play."""

    video_backend_ref: str
    whep_url: str


class ShareBody(Input):
    """A link by which others see one view."""

    AREA = "share"
    REFUSES_MISSPELT = True

    expires_in_seconds: Annotated[int, Field(ge=60, le=86_400), WHOLE] = Field(
        default=3_600, description="For how long the link works, whether or not the view lasts as long"
    )
    label: Annotated[str, StringConstraints(strip_whitespace=True, max_length=80, pattern=TEXT_PATTERN)] = Field(
        default="", description="For the owner's list", examples=["For the site manager"]
    )


class Share(Output):
    """A link by which others see one view."""

    share_id: Uuid
    session_id: Uuid
    label: str
    created_at: Instant
    expires_at: Instant = Field(description="When the link ends, or has ended if it was revoked")
    is_open: bool
    last_used_at: Instant | None


class MadeShare(Share):
    """A new link, shown once."""

    url: str = Field(description="The page of the view, with a key in its fragment. Secret")
    url_hint: str | None = Field(description="Why another device cannot open the URL, and what to set; null if it can")
    key: str = Field(description="The same key, for programs. It reads this view and its picture only. Secret")


class ShareList(Output):
    """The newest 100 links of a session, ended ones included."""

    items: list[Share]
    next_cursor: None


class SharedView(Output):
    """What a share link shows of a session."""

    session_id: Uuid
    state: State
    meter_state: MeterState | None
    pause_reason: PauseReason | None
    end_reason: EndReason | None
    lat: float
    lng: float
    radius_meters: int
    started_at: Instant | None
    ended_at: Instant | None
    max_duration_seconds: int = Field(description="Seconds from the start after which the view ends at the latest")
    whep_url: str | None = Field(description="While LIVE")
    shared_until: Instant | None = Field(description="When the caller's link ends; null for the session's parties")


class MeterWindow(Output):
    """A stretch of time that is not charged."""

    from_: Instant = Field(alias="from")
    to: Instant | None
    reason: PauseReason


class Meter(Output):
    """The meter and its evidence."""

    session_id: Uuid
    started_at: Instant | None
    ended_at: Instant | None
    meter_state: MeterState | None
    clean_seconds: int
    windows: list[MeterWindow]
    rate_per_second_micro_usdc: Money
    charged_micro_usdc: Money = Field(description="Computed at the end; 0 before")
    accrued_micro_usdc: Money = Field(description=ACCRUED)
    head_hash: str = Field(description="SHA-256 chain over the session's recorded events")
    ended_head_hash: str | None = Field(description="The head hash at the end; a settlement changes headHash later")


def session_json(
    status: SessionStatus, *, shows_whip_url: bool = False, play_url: PlayUrl | None = None
) -> dict[str, object]:
    """Present a session as `Session`. URLs embed secrets: that to publish is null unless `shows_whip_url`, that to play
    without `play_url`."""
    terms, metadata = status.terms, status.metadata_json
    return {
        "id": terms.id,
        "consumerWorkspaceId": terms.consumer_workspace_id,
        "operatorWorkspaceId": status.operator_workspace_id,
        "state": status.state,
        "maxDurationSeconds": terms.max_duration_s,
        "waitTimeoutSeconds": terms.wait_timeout_s,
        "consumerLeaseSeconds": terms.consumer_lease_s,
        "requireCoverage": terms.requires_coverage,
        "ratePerSecondMicroUsdc": str(terms.rate),
        "holdMicroUsdc": str(terms.hold),
        "startedAt": iso_or_none(status.started_at_ms),
        "endedAt": iso_or_none(status.ended_at_ms),
        "cleanSeconds": status.clean_seconds,
        "chargedMicroUsdc": str(status.charged),
        "accruedMicroUsdc": str(status.accrued),
        "settlementTxHash": status.settlement_tx_hash,
        "videoBackendRef": status.video_ref,
        "createdAt": iso(terms.created_at_ms),
        "requestedLat": terms.lat,
        "requestedLng": terms.lng,
        "authorized": status.operator_workspace_id is not None,
        "whepUrl": _play_url(status, play_url),
        "whipUrl": status.whip_url if shows_whip_url else None,
        "endReason": status.end_reason,
        "endedBy": _ended_by(status),
        "meterState": status.meter_state,
        "pauseReason": status.pause_reason,
        "assignedAt": iso_or_none(status.assigned_at_ms),
        "expiresAt": iso_or_none(status.expires_at_ms),
        "radiusMeters": terms.radius_m,
        "platformFeeBps": terms.platform_fee_bps,
        "minimumSeconds": terms.minimum_s,
        "quoteId": terms.quote_id,
        "instructions": terms.instructions,
        "metadata": None if metadata is None else orjson.loads(metadata),
        "fundsState": _funds_state(status),
        "holdTxHash": status.hold_tx_hash,
        "messages": [
            {
                "number": each.number,
                "sentAt": iso(each.at_ms),
                "text": each.text,
                "shown": each.number <= status.messages_shown,
            }
            for each in status.messages
        ],
        "delivery": _delivery(status),
    }


def _ended_by(status: SessionStatus) -> dict[str, str] | None:
    if status.ended_by is None:
        return None
    kind, _, name = status.ended_by.partition(":")
    return {"kind": "API_KEY", "id": name} if kind == "key" else {"kind": "WALLET", "id": name}


def share_json(record: ApiKeyRecord, now_ms: int) -> dict[str, object]:
    """Present the key of a share link as `Share`."""
    assert record.grace_ends_at_ms is not None, "the end of a link is set when it is made"
    return {
        "shareId": record.key_id,
        "sessionId": record.session_id,
        "label": record.label,
        "createdAt": iso(record.created_at_ms),
        "expiresAt": iso(record.grace_ends_at_ms),
        "isOpen": now_ms < record.grace_ends_at_ms,
        "lastUsedAt": iso_or_none(record.last_used_at_ms),
    }


def shared_view_json(status: SessionStatus, *, play_url: PlayUrl, ends_at_ms: int | None) -> dict[str, object]:
    """Present a session as `SharedView`: nothing of its money, its parties or what they wrote to each other."""
    terms = status.terms
    return {
        "sessionId": terms.id,
        "state": status.state,
        "meterState": status.meter_state,
        "pauseReason": status.pause_reason,
        "endReason": status.end_reason,
        "lat": terms.lat,
        "lng": terms.lng,
        "radiusMeters": terms.radius_m,
        "startedAt": iso_or_none(status.started_at_ms),
        "endedAt": iso_or_none(status.ended_at_ms),
        "maxDurationSeconds": terms.max_duration_s,
        "whepUrl": _play_url(status, play_url),
        "sharedUntil": iso_or_none(ends_at_ms),
    }


def _delivery(status: SessionStatus) -> dict[str, object] | None:
    known = status.delivery
    if known is None:
        return None
    return {
        "firstAt": iso(known.first_at_ms),
        "lastAt": iso(known.last_at_ms),
        "longestGapMs": known.longest_gap_ms,
    }


def _funds_state(status: SessionStatus) -> str | None:
    if status.terms.consent is None:
        return None
    if status.settlement_tx_hash is not None:
        return "SETTLED"
    if status.hold_tx_hash is not None:
        return "HELD"
    # A hold is opened only for an assigned session. It may still be mined after the session is over.
    is_over = status.state in (SessionState.CANCELLED, SessionState.EXPIRED)
    return "RELEASED" if is_over and status.assigned_at_ms is None else "RESERVED"


def started_session_json(status: SessionStatus, *, play_url: PlayUrl | None = None) -> dict[str, object]:
    """Present a session that has just gone LIVE as `StartedSession`."""
    return {
        "session": session_json(status, shows_whip_url=True, play_url=play_url),
        "videoBackendRef": status.video_ref,
        "whipUrl": status.whip_url,
        "whepUrl": _play_url(status, play_url),
    }


def _play_url(status: SessionStatus, play_url: PlayUrl | None) -> str | None:
    return None if status.whep_url is None or play_url is None else play_url(status.whep_url)


def meter_json(status: MeterStatus) -> dict[str, object]:
    """Present a meter as `Meter`."""
    return {
        "sessionId": status.session_id,
        "startedAt": iso_or_none(status.started_at_ms),
        "endedAt": iso_or_none(status.ended_at_ms),
        "meterState": status.state,
        "cleanSeconds": status.clean_seconds,
        "ratePerSecondMicroUsdc": str(status.rate),
        "chargedMicroUsdc": str(status.charged),
        "accruedMicroUsdc": str(status.accrued),
        "headHash": status.head_hash,
        "endedHeadHash": status.ended_head_hash,
        "windows": [
            {"from": iso(window.from_ms), "to": iso_or_none(window.to_ms), "reason": window.reason}
            for window in status.windows
        ],
    }
