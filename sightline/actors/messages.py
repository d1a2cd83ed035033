"""What is sent to the actors. Commands are asked and answered; facts are told."""

from dataclasses import dataclass
from enum import Enum
from typing import final

from sightline.actors.types import Caller, HeartbeatReport, NewWorkspace
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Workspace
from sightline.domain.session.messages import Party
from sightline.domain.session.model import Operator, Terms, VideoInput
from sightline.ports.relations import Staged
from sightline.ports.store import Heartbeat, IdempotencyKey

# To a session.


@final
@dataclass(frozen=True, slots=True)
class CreateSession:
    """Bring the session into being. Answered with an `Answer`."""

    terms: Terms
    caller: Caller
    is_hold_enforced: bool


@final
@dataclass(frozen=True, slots=True)
class DispatchSession:
    """Find an operator. Answered with an `Answer`, once the operator is assigned."""

    caller: Caller


@final
@dataclass(frozen=True, slots=True)
class AcceptSession:
    """Assign the caller's own workspace. Answered with an `Answer`."""

    caller: Caller


@final
@dataclass(frozen=True, slots=True)
class StartSession:
    """Go live. Answered with an `Answer`."""

    caller: Caller


@final
@dataclass(frozen=True, slots=True)
class EndSession:
    """Hang up for one of the sides that the credential may speak for. Answered with an `Answer`."""

    caller: Caller
    sides: frozenset[Party]


@final
@dataclass(frozen=True, slots=True)
class CancelSession:
    """Withdraw the request. Answered with an `Answer`."""

    caller: Caller


@final
@dataclass(frozen=True, slots=True)
class DropAssignment:
    """The operator drops the assignment. Answered True, or False if it no longer holds one."""

    workspace_id: str
    mark: IdempotencyKey | None = None
    """Recorded with the drop, so that a repeat of the call that wants it can tell its own drops."""


@final
@dataclass(frozen=True, slots=True)
class GetSession:
    """Settle passed deadlines. Answered with the `Session`, or None for an unknown id."""


class ClaimStanding(Enum):
    """What a session says of an operator's claim on it."""

    ASSIGNED = "ASSIGNED"
    LIVE = "LIVE"
    PENDING = "PENDING"
    """An operation is under way that may make it true."""
    GONE = "GONE"
    NEVER = "NEVER"
    """The workspace has not been the session's operator: a dispatch was cut in two."""


@final
@dataclass(frozen=True, slots=True)
class CheckClaim:
    """Answered with a `ClaimStanding`."""

    workspace_id: str


@final
@dataclass(frozen=True, slots=True)
class HeartbeatTaken:
    """A fact: a heartbeat of the session's operator is durable."""

    heartbeat: Heartbeat


@final
@dataclass(frozen=True, slots=True)
class MediaArrived:
    """A fact: media was proved at `at_ms`."""

    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class MediaWentAway:
    """A fact: the publisher left at `at_ms`."""

    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class SettlementConfirmed:
    """A fact: the settlement's transaction is confirmed. Answered True once it is durable."""

    tx_hash: str


@final
@dataclass(frozen=True, slots=True)
class DeadlineDue:
    """A timer: some deadline may have passed."""


# From a session's own helpers.


@final
@dataclass(frozen=True, slots=True)
class OperatorFound:
    """The operator's workspace has claimed the session and the relation is staged."""

    operator: Operator
    staged: Staged


@final
@dataclass(frozen=True, slots=True)
class VideoReady:
    """The operator is occupied and the live input exists."""

    video: VideoInput


@final
@dataclass(frozen=True, slots=True)
class OperationFailed:
    """The pending operation failed before it changed the session."""

    error: Exception


@final
@dataclass(frozen=True, slots=True)
class VideoReopened:
    """After a restart: the live input of the LIVE session exists again."""

    video: VideoInput


@final
@dataclass(frozen=True, slots=True)
class ReopenVideo:
    """A timer: try again to reopen the live input."""


# To a workspace.


@final
@dataclass(frozen=True, slots=True)
class CreateWorkspace:
    """Bring the workspace into being. Answered with an `Answer`."""

    workspace: NewWorkspace
    caller: Caller


@final
@dataclass(frozen=True, slots=True)
class PatchWorkspace:
    """Change what callers may change. Answered with an `Answer`."""

    patch: Patch
    caller: Caller


@final
@dataclass(frozen=True, slots=True)
class GetWorkspace:
    """Answered with the `Workspace`, or None for an unknown id."""


@final
@dataclass(frozen=True, slots=True)
class ClaimOperator:
    """Claim the operator for a session. Answered with the `Operator`, or a `Refusal`."""

    session_id: str
    is_dispatch: bool


@final
@dataclass(frozen=True, slots=True)
class OccupyOperator:
    """The session is being started. Answered with the `Operator`, or a `Refusal`."""

    session_id: str


@final
@dataclass(frozen=True, slots=True)
class VacateOperator:
    """The start failed."""

    session_id: str


@final
@dataclass(frozen=True, slots=True)
class FreeOperator:
    """The session is over for the operator. With `claimed_at_ms`: only if the claim is still that one."""

    session_id: str
    start_timed_out: bool = False
    claimed_at_ms: int | None = None


@final
@dataclass(frozen=True, slots=True)
class RestoreClaim:
    """A session found itself assigned after a restart: the claim must be there."""

    session_id: str
    is_live: bool
    is_dispatched: bool


@final
@dataclass(frozen=True, slots=True)
class ReportHeartbeat:
    """One heartbeat. Answered with an `Answer`, once it is durable, or refused."""

    report: HeartbeatReport
    key: IdempotencyKey | None = None
    """Of the call; its answer is recorded with the heartbeat."""


@final
@dataclass(frozen=True, slots=True)
class ReportHeartbeats:
    """Several heartbeats in order. Answered with an `Answer`, a verdict on each, once all accepted ones are durable."""

    reports: tuple[HeartbeatReport, ...]
    key: IdempotencyKey | None = None


@final
@dataclass(frozen=True, slots=True)
class ClaimsChecked:
    """What the sessions of the doubted claims said: (session id, the claim's at_ms, standing)."""

    standings: tuple[tuple[str, int, ClaimStanding], ...]


@final
@dataclass(frozen=True, slots=True)
class HeartbeatsWritten:
    """The writer is through with heartbeats of this workspace. `error` None: they are durable."""

    ticket: int
    error: Exception | None


@final
@dataclass(frozen=True, slots=True)
class DoubtClaims:
    """A timer: ask the sessions of the older claims whether they stand."""


# To the dispatcher.


@final
@dataclass(frozen=True, slots=True)
class PickOperator:
    """Choose an operator for a point. Answered with a workspace id, or None."""

    lat: float
    lng: float
    excluded: frozenset[str]


@final
@dataclass(frozen=True, slots=True)
class OperatorChanged:
    """A workspace that the dispatcher may care about changed."""

    workspace: Workspace


@final
@dataclass(frozen=True, slots=True)
class OperatorSeen:
    """An operator that the dispatcher may have taken for silent has sent a heartbeat."""

    workspace_id: str


@final
@dataclass(frozen=True, slots=True)
class CountOperators:
    """How many ONLINE operators cover a point. Answered with a number."""

    lat: float
    lng: float
