"""Sessions, workspaces and evidence as the domain's tests need them. Time starts at `T0`."""

from sightline.domain.geofence import DeviceKind, Fix
from sightline.domain.metering import Evidence, MeterLimits, Signal
from sightline.domain.operator.model import Availability, Workspace, WorkspaceRole
from sightline.domain.refusal import Refusal
from sightline.domain.session import machine
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    End,
    FixReported,
    GoLive,
    MediaProved,
    Message,
    Party,
    Step,
)
from sightline.domain.session.model import Operator, Session, SessionLimits, Terms, VideoInput
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace

T0 = 1_700_000_000_000
LIMITS = SessionLimits()
METER = MeterLimits()
CONSUMER = "0c000000-0000-4000-8000-000000000001"
OPERATOR = "0b000000-0000-4000-8000-000000000002"
SESSION = "0a000000-0000-4000-8000-000000000003"
LAT, LNG = 48.137154, 11.576124
METERS_PER_DEGREE = 111_195.08
VIDEO = VideoInput(ref="ref-1", whip_url="http://video/whip/secret", whep_url="http://video/whep/token")


def a_copy(text: str) -> str:
    """An equal text that is another object, as one that was read from a request."""
    return "".join(list(text))


def terms(**changes) -> Terms:
    """A request for ten minutes at 1000 micro-USDC a second."""
    agreed = Terms(
        id=SESSION,
        consumer_workspace_id=CONSUMER,
        payer_address="0x" + "c" * 40,
        lat=LAT,
        lng=LNG,
        radius_m=500,
        max_duration_s=600,
        wait_timeout_s=300,
        rate=MicroUsdc(1000),
        hold=MicroUsdc(600_000),
        platform_fee_bps=1500,
        quote_id=None,
        instructions=None,
        metadata_json=None,
        created_at_ms=T0,
    )
    agreed = replace(agreed, **changes)
    return replace(agreed, hold=MicroUsdc(agreed.rate * agreed.max_duration_s))


def an_operator(kind: DeviceKind = DeviceKind.PHONE, **changes) -> Operator:
    """The operator as a session freezes it."""
    operator = Operator(
        workspace_id=OPERATOR,
        wallet_address="0x" + "b" * 40,
        device_kind=kind,
        coverage_lat=None,
        coverage_lng=None,
    )
    return replace(operator, **changes)


def a_workspace(availability: Availability = Availability.ONLINE, **changes) -> Workspace:
    """An operator's workspace."""
    workspace = Workspace(
        id=OPERATOR,
        slug="operator",
        name="Operator",
        wallet_address="0x" + "B" * 40,
        roles=(WorkspaceRole.SUPPLIER,),
        created_at_ms=T0,
        created_by_wallet="0x" + "B" * 40,
        availability=availability,
        rest=availability,
        idle_since_ms=T0,
    )
    return replace(workspace, **changes)


def taken(result: Step | Refusal) -> Step:
    """The step, which must not have been refused."""
    assert isinstance(result, Step), result
    return result


def after(session: Session, message: Message, at_ms: int, limits: SessionLimits = LIMITS) -> Session:
    """The session after a message that is not refused."""
    return taken(machine.step(session, message, at_ms, limits)).session


def a_requested_session(**changes) -> Session:
    """Waiting for an operator since T0."""
    return machine.create(terms(**changes)).session


def an_assigned_session(at_ms: int = T0, operator: Operator | None = None, **changes) -> Session:
    """Assigned at `at_ms`."""
    return after(a_requested_session(**changes), Assign(operator or an_operator()), at_ms)


def a_live_session(at_ms: int = T0, operator: Operator | None = None, **changes) -> Session:
    """Started at `at_ms`, nothing proved yet."""
    return after(an_assigned_session(at_ms, operator, **changes), GoLive(VIDEO), at_ms)


def an_ended_session(at_ms: int = T0 + 5_000) -> Session:
    """Hung up by the consumer."""
    return after(a_live_session(), End(Party.CONSUMER), at_ms)


def a_cancelled_session() -> Session:
    """Withdrawn by the consumer."""
    return after(a_requested_session(), Cancel(), T0 + 1)


def a_fix(at_ms: int, *, north_m: float = 0.0, accuracy_m: float = 5.0, is_proof: bool = True) -> Fix:
    """A position some metres north of the requested point."""
    return Fix(
        lat=LAT + north_m / METERS_PER_DEGREE,
        lng=LNG,
        accuracy_m=accuracy_m,
        at_ms=at_ms,
        taken_at_ms=at_ms,
        is_proof=is_proof,
    )


class Film:
    """One LIVE session that is told facts in order of time, with the events it recorded on the way."""

    def __init__(self, session: Session | None = None, limits: SessionLimits = LIMITS) -> None:
        self.session = a_live_session() if session is None else session
        self.limits = limits
        self.stored = self.session
        """The session as its row has it: of the newest step that must be stored."""
        self.events = []
        self.sequence = 0

    def tell(self, message: Message, at_ms: int) -> "Film":
        step = taken(machine.step(self.session, message, at_ms, self.limits))
        self.session = step.session
        self.events += step.events
        if step.must_be_stored:
            self.stored = step.session
        return self

    def fix(self, at_ms: int, *, is_fresh: bool = True, **where) -> "Film":
        self.sequence += 1
        return self.tell(FixReported(a_fix(at_ms, **where), self.sequence, is_fresh), at_ms)

    def media(self, at_ms: int) -> "Film":
        return self.tell(MediaProved(at_ms), at_ms)

    def both(self, start_ms: int, end_ms: int, every_ms: int = 2_000, **where) -> "Film":
        """Heartbeats and media, from the first instant to the last."""
        for at_ms in range(start_ms, end_ms + 1, every_ms):
            self.fix(at_ms, **where).media(at_ms)
        return self

    @property
    def live(self):
        return self.session.phase


def media_until(film: Film, start_ms: int, end_ms: int) -> Film:
    """Add a proof of media each second, from the first instant to the last."""
    for at_ms in range(start_ms, end_ms + 1, 1_000):
        film.media(at_ms)
    return film


def proved(*at_ms: int, broke: tuple[int, ...] = ()) -> Signal:
    """A signal with proofs and breaks at these instants."""
    signal = Signal()
    for each in at_ms:
        signal = signal.prove(each, METER)
    for each in broke:
        signal = signal.lose(each)
    return signal


def evidence(presence: Signal, media: Signal, **changes) -> Evidence:
    """Evidence of a session that started at T0."""
    return replace(Evidence(started_at_ms=T0, presence=presence, media=media), **changes)
