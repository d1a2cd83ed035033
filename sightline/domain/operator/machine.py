"""The operator workspace's machine: availability, claims, heartbeats' order. Pure: a new workspace or a refusal.

House rules. BUSY is set here and nowhere else: by a dispatch claim, also one that is restored, and by a start. It
ends when the last claim is released, and gives back the availability from before it. A claim is keyed by its session,
so that every message may be repeated. `accept` makes a claim and leaves availability as it is.
"""

from typing import TypeAlias, assert_never, final

from sightline.domain.geofence import DeviceKind
from sightline.domain.operator.model import MAX_START_TIMEOUTS, MIN_CONSUMERS, Availability, Claim, Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.value import Value, replace


@final
class Patch(Value, kw_only=True):
    """Change what the caller may change; None leaves a field as it is."""

    name: str | None = None
    availability: Availability | None = None
    coverage_lat: float | None = None
    coverage_lng: float | None = None
    coverage_radius_m: float | None = None
    device_kind: DeviceKind | None = None


@final
class ClaimByDispatch(Value):
    """The dispatcher takes the operator for a session: ONLINE to BUSY."""

    session_id: str


@final
class AcceptPolicy(Value, kw_only=True):
    """What an operator must be to accept a session itself.

    Args:
        assignments_max: Sessions that it may have been assigned and not started.
        is_verified: Whether it must be ONLINE, have sent a heartbeat within `seen_within_ms`, and cover the point.
    """

    assignments_max: int = 3
    is_verified: bool = False
    seen_within_ms: int = 60_000


@final
class ClaimByAccept(Value):
    """The operator takes a session at a point itself; availability stays."""

    session_id: str
    lat: float = 0.0
    lng: float = 0.0
    policy: AcceptPolicy = AcceptPolicy()


@final
class Occupy(Value):
    """A session of this operator is being started: BUSY, and no other session may be live."""

    session_id: str


@final
class Vacate(Value):
    """The start failed: the session is assigned still, not live."""

    session_id: str


@final
class Restore(Value):
    """Recreate the claim of a session that is still assigned to this operator. Never refused."""

    session_id: str
    is_dispatched: bool = False


@final
class Release(Value):
    """The session is over for this operator."""

    session_id: str
    start_timed_out: bool = False
    funded_consumer: str | None = None
    """With `start_timed_out`: the consumer, if it is funded. A START_TIMEOUT of an unfunded one does not count."""


@final
class ResetSequence(Value):
    """Let the device count its heartbeats from any number again."""


OperatorMessage: TypeAlias = (
    ResetSequence | Patch | ClaimByDispatch | ClaimByAccept | Occupy | Vacate | Restore | Release
)

NOT_ONLINE = Refusal(Code.UNAVAILABLE, "dispatch:notOnline", "No operator available", retry_after_s=5)
BUSY = Refusal(
    Code.INVALID_STATE, "workspace:busy", "Availability cannot change while the workspace is BUSY", state="BUSY"
)
NO_CLAIM = Refusal(Code.INVALID_STATE, "session:state", "The workspace is not reserved for the session any more")
OTHER_LIVE = Refusal(
    Code.INVALID_STATE, "session:operatorLive", "The operator is live in another session", state="ASSIGNED"
)
OFFLINE = Refusal(Code.INVALID_STATE, "operator:offline", "The workspace is not ONLINE")
NOT_SEEN = Refusal(Code.INVALID_STATE, "operator:notSeen", "The workspace has sent no heartbeat lately")
NOT_COVERING = Refusal(
    Code.INVALID_STATE, "operator:notCovering", "The workspace's coverage does not contain the point"
)
COVERAGE_PAIR = Refusal(Code.INVALID_INPUT, "workspace:coverage", "coverageLat and coverageLng are set together")


def step(workspace: Workspace, message: OperatorMessage, now_ms: int) -> Workspace | Refusal:
    """Take one step. Returns the same object when the message changes nothing."""
    match message:
        case Patch():
            return _patch(workspace, message, now_ms)
        case ClaimByDispatch(session_id=session_id):
            return _claim_by_dispatch(workspace, session_id, now_ms)
        case ClaimByAccept():
            return _claim_again(workspace, message.session_id, now_ms) or _claim_by_accept(workspace, message, now_ms)
        case Occupy(session_id=session_id):
            return _occupy(workspace, session_id)
        case Vacate(session_id=session_id):
            return _vacate(workspace, session_id)
        case Restore():
            return _restore(workspace, message, now_ms)
        case Release():
            return _release(workspace, message, now_ms)
        case ResetSequence():
            base = workspace.last_sequence + 1
            return workspace if base == workspace.sequence_base else replace(workspace, sequence_base=base)
        case _:
            assert_never(message)


def _with_claim(workspace: Workspace, claim: Claim) -> Workspace:
    return replace(workspace, claims={**workspace.claims, claim.session_id: claim})


def _claim_again(workspace: Workspace, session_id: str, now_ms: int) -> Workspace | None:
    """A repeated claim is granted and made young, so that a doubt about the old one does not undo it."""
    claim = workspace.claims.get(session_id)
    return None if claim is None else _with_claim(workspace, replace(claim, at_ms=now_ms))


def _claim_by_dispatch(workspace: Workspace, session_id: str, now_ms: int) -> Workspace | Refusal:
    claim = workspace.claims.get(session_id)
    if claim is not None and claim.is_dispatched:
        return _claim_again(workspace, session_id, now_ms) or workspace
    if workspace.availability is not Availability.ONLINE:
        return NOT_ONLINE
    claim = Claim(session_id=session_id, at_ms=now_ms, is_dispatched=True)
    claims = {**workspace.claims, session_id: claim}
    return replace(workspace, availability=Availability.BUSY, rest=Availability.ONLINE, claims=claims)


def _claim_by_accept(workspace: Workspace, message: ClaimByAccept, now_ms: int) -> Workspace | Refusal:
    policy = message.policy
    if sum(not claim.is_live for claim in workspace.claims.values()) >= policy.assignments_max:
        return Refusal(
            Code.INVALID_STATE,
            "operator:assignments",
            f"The workspace has {policy.assignments_max} assigned sessions that are not started",
        )
    if policy.is_verified:
        if workspace.availability is not Availability.ONLINE:
            return OFFLINE
        seen_ms = workspace.last_seen_at_ms
        if seen_ms is None or now_ms - seen_ms > policy.seen_within_ms:
            return NOT_SEEN
        if not workspace.covers(message.lat, message.lng):
            return NOT_COVERING
    return _with_claim(workspace, Claim(session_id=message.session_id, at_ms=now_ms))


def _occupy(workspace: Workspace, session_id: str) -> Workspace | Refusal:
    claim = workspace.claims.get(session_id)
    if claim is None:
        return NO_CLAIM
    if workspace.live_session_id not in {None, session_id}:
        return OTHER_LIVE
    if claim.is_live:
        return workspace
    busy = replace(_busy(workspace), unstarted_for=())
    return _with_claim(busy, replace(claim, is_live=True))


def _busy(workspace: Workspace) -> Workspace:
    """BUSY, whatever it was; that comes back with the release of the last claim."""
    rest = workspace.rest if workspace.availability is Availability.BUSY else workspace.availability
    return replace(workspace, availability=Availability.BUSY, rest=rest)


def _vacate(workspace: Workspace, session_id: str) -> Workspace:
    """A start that failed had no effect: an operator that accepted is as available as it was."""
    claim = workspace.claims.get(session_id)
    if claim is None or not claim.is_live:
        return workspace
    vacated = _with_claim(workspace, replace(claim, is_live=False))
    if any(claim.is_dispatched or claim.is_live for claim in vacated.claims.values()):
        return vacated
    return replace(vacated, availability=vacated.rest)


def _restore(workspace: Workspace, message: Restore, now_ms: int) -> Workspace:
    """A claim that is there keeps what it says, save that it may have been restored without its dispatch."""
    claim = workspace.claims.get(message.session_id)
    if claim is None:
        claim = Claim(session_id=message.session_id, at_ms=now_ms, is_dispatched=message.is_dispatched)
    elif claim.is_dispatched or not message.is_dispatched:
        return workspace
    restored = _with_claim(workspace, replace(claim, is_dispatched=message.is_dispatched))
    return _busy(restored) if message.is_dispatched else restored


def _unstarted_for(workspace: Workspace, message: Release) -> tuple[str, ...]:
    """The row of START_TIMEOUTs after a release. Anything but a START_TIMEOUT ends the row."""
    if not message.start_timed_out:
        return ()
    if message.funded_consumer is None:
        return workspace.unstarted_for
    return (*workspace.unstarted_for, message.funded_consumer)[-MAX_START_TIMEOUTS:]


def _release(workspace: Workspace, message: Release, now_ms: int) -> Workspace:
    if message.session_id not in workspace.claims:
        return workspace
    claims = {key: claim for key, claim in workspace.claims.items() if key != message.session_id}
    unstarted_for = _unstarted_for(workspace, message)
    freed = replace(workspace, claims=claims, unstarted_for=unstarted_for)
    if not claims and freed.availability is Availability.BUSY:
        freed = replace(freed, availability=freed.rest)
    if len(unstarted_for) == MAX_START_TIMEOUTS and len(set(unstarted_for)) >= MIN_CONSUMERS:
        freed = replace(freed, unstarted_for=(), rest=Availability.OFFLINE)
        if freed.availability is not Availability.BUSY:
            freed = replace(freed, availability=Availability.OFFLINE)
    if not claims:
        freed = replace(freed, idle_since_ms=now_ms)
    return freed


def _patch(workspace: Workspace, patch: Patch, now_ms: int) -> Workspace | Refusal:
    if (patch.coverage_lat is None) != (patch.coverage_lng is None):
        return COVERAGE_PAIR
    changed = workspace
    if patch.availability is not None:
        if workspace.availability is Availability.BUSY:
            return BUSY
        if patch.availability is not workspace.availability:
            idle = now_ms if patch.availability is Availability.ONLINE else workspace.idle_since_ms
            changed = replace(
                changed, availability=patch.availability, rest=patch.availability, idle_since_ms=idle, unstarted_for=()
            )
    named = {
        "name": patch.name,
        "coverage_lat": patch.coverage_lat,
        "coverage_lng": patch.coverage_lng,
        "coverage_radius_m": patch.coverage_radius_m,
        "device_kind": patch.device_kind,
    }
    news = {key: value for key, value in named.items() if value is not None and value != getattr(workspace, key)}
    return replace(changed, **news) if news else changed  # type: ignore[arg-type]  # keys are field names of one type each
