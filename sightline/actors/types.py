"""Arguments and answers of the broker: plain domain values."""

from typing import Generic, NamedTuple, TypeVar, final

from sightline.domain.escrow import PayerConsent
from sightline.domain.geofence import Fix
from sightline.domain.operator.model import Workspace, WorkspaceRole
from sightline.domain.refusal import Refusal
from sightline.domain.session.model import MeterState, Session, SessionState
from sightline.domain.session.status import MeterStatus, SessionStatus
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value, replace
from sightline.ports.store import IdempotencyKey, KeySpending, RecordedEvent, SessionKey, SessionView

T_co = TypeVar("T_co", covariant=True)


@final
class Caller(Value, kw_only=True):
    """The workspace that gives a command, and the idempotency key of its call."""

    workspace_id: str
    idempotency: IdempotencyKey | None = None


@final
class Answer(Value, Generic[T_co]):
    """The answer to a command, and when it was given. A replay returns the same answer again."""

    value: T_co
    at_ms: int
    token: str | None = None
    """Consistency token of an assignment, once its relations are written."""


@final
class NewSession(Value, kw_only=True):
    """A request for a session, bounds checked, coordinates rounded."""

    lat: float
    lng: float
    max_duration_s: int
    wait_timeout_s: int
    quote_id: str | None
    radius_m: int
    instructions: str | None
    metadata_json: str | None
    consumer_lease_s: int | None = None
    """Seconds without a call of the consumer after which the LIVE session ends; None: no lease."""
    max_hold: MicroUsdc | None = None
    """The largest hold that the caller agrees to; None: any."""
    requires_coverage: bool = False
    """Whether dispatch takes only operators that cover the place."""
    spending: KeySpending | None = None
    """The API key whose limits the session counts against."""
    paid: "PaidSession | None" = None
    """What was agreed for a session that is paid by x402; None: the broker chooses id and rate."""
    consent: PayerConsent | None = None
    """What the payer signed for this session, where the escrow contract holds its amount."""


@final
class NewExtension(Value, kw_only=True):
    """A request for more time of a LIVE session, bounds checked."""

    seconds: int
    max_hold: MicroUsdc | None = None
    """The largest hold of the whole session that the caller agrees to; None: any."""
    spending: KeySpending | None = None
    """The API key whose limits the session counts against from then on; None: as before."""
    consent: PayerConsent | None = None
    """What the payer signed for this extension, where the escrow contract holds the session's amount."""


@final
class PaidSession(Value, kw_only=True):
    """What was agreed for a session that is paid by x402: its id follows from the payment."""

    session_id: str
    rate: MicroUsdc


@final
class OperatorPlace(Value, kw_only=True):
    """Where an assigned operator is, seen from the requested place. None: not known."""

    distance_m: int | None = None
    """From its newest position, else from the centre of its coverage."""
    covers_place: bool | None = None

    def shown_in(self, status: SessionStatus) -> SessionStatus:
        """The status that answers the assignment of this operator."""
        return replace(status, operator_distance_m=self.distance_m, is_place_covered=self.covers_place)


@final
class NewWorkspace(Value, kw_only=True):
    """A workspace to be created, its wallet proved."""

    wallet_address: str
    slug: str
    name: str
    roles: tuple[WorkspaceRole, ...]
    id: str | None = None
    """The id of a guest workspace, which follows from its wallet; None: a new one."""


class HeartbeatReport(NamedTuple):
    """One heartbeat as the device sent it, bounds checked. Receive time is stamped by the workspace's actor.

    A tuple for the same reason as `Heartbeat` of the store.
    """

    lat: float
    lng: float
    sequence: int
    accuracy_m: float = 50.0
    heading_degrees: float | None = None
    speed_mps: float | None = None
    altitude_m: float | None = None
    battery_percent: float | None = None
    captured_at_ms: int | None = None
    session_id: str | None = None
    source: str | None = None
    is_mock: bool | None = None


@final
class HeartbeatVerdict(Value):
    """The outcome of one heartbeat of a batch; `refusal` None: accepted and durable."""

    sequence: int
    refusal: Refusal | None


@final
class BatchVerdict(Value):
    """The outcome of a batch of heartbeats, in the order of the batch."""

    items: tuple[HeartbeatVerdict, ...]
    workspace: Workspace


@final
class CancelledAssignments(Value):
    """Sessions whose assignment a call cancelled, oldest first."""

    session_ids: tuple[str, ...]


@final
class SessionListing(Value, kw_only=True):
    """A page of sessions that a workspace asks for. `view` None: all it is party to."""

    view: SessionView | None
    limit: int
    states: frozenset[SessionState] = frozenset()
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    after: SessionKey | None = None


@final
class SessionPage(Value):
    """A page, newest first; `next` is None at the end."""

    items: list[SessionStatus]
    next: SessionKey | None


@final
class SessionHistory(Value, kw_only=True):
    """A session with its meter and recorded events, which may be one page of all."""

    status: SessionStatus
    meter: MeterStatus
    events: tuple[RecordedEvent, ...]


@final
class LiveFeed(Value, kw_only=True):
    """The video input of a LIVE session, and the state of its meter and location."""

    session: Session
    video_ref: str
    whep_url: str
    meter_state: MeterState
    is_in_geofence: bool | None
    last_fix: Fix | None
