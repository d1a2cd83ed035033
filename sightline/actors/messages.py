"""Messages to the actors: commands, asked for the answer that their class declares, and facts, told.

Facts about a session are the domain's own: `FixReported`, `MediaProved`, `MediaBroke` and `Tick`.
"""

from enum import Enum
from typing import TypeAlias, final

from sightline.actors.kernel.message import Command
from sightline.actors.types import Answer, BatchVerdict, Caller, HeartbeatReport, NewWorkspace, OperatorPlace
from sightline.domain.conduct import Conduct
from sightline.domain.operator.coverage_map import CoverageCells
from sightline.domain.operator.machine import ClaimByAccept, ClaimByDispatch, Patch
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Refusal
from sightline.domain.session.messages import (
    ConsumerActive,
    FixReported,
    FundsReported,
    MediaBroke,
    MediaProved,
    Party,
    SettlementMined,
    Step,
    Tick,
)
from sightline.domain.session.model import Operator, Session, SessionExtension, Terms, VideoInput
from sightline.domain.session.status import SessionStatus
from sightline.domain.value import Value
from sightline.ports.relations import Staged
from sightline.ports.store import Committed, IdempotencyKey, KeySpending, Rejected, SessionWrite

# To a session.


@final
class CreateSession(Value, Command["CreateSession", Answer[SessionStatus]]):
    """Create the session."""

    terms: Terms
    caller: Caller
    is_hold_enforced: bool
    spending: KeySpending | None = None


@final
class DispatchSession(Value, Command["DispatchSession", Answer[SessionStatus]]):
    """Find an operator. Answered once the operator is assigned."""

    caller: Caller


@final
class AcceptSession(Value, Command["AcceptSession", Answer[SessionStatus]]):
    """Assign the caller's own workspace."""

    caller: Caller


@final
class StartSession(Value, Command["StartSession", Answer[SessionStatus]]):
    """Start the session: it becomes LIVE."""

    caller: Caller


@final
class DeclineSession(Value, Command["DeclineSession", Answer[SessionStatus]]):
    """Refuse the assignment on behalf of its operator."""

    caller: Caller


@final
class EndSession(Value, Command["EndSession", Answer[SessionStatus]]):
    """End the session on behalf of one of `sides`, the parties that the credential may act for."""

    caller: Caller
    sides: frozenset[Party]
    credential: str | None = None
    """What ends it, as `credential_of` names it."""


@final
class EndByPlatform(Value, Command["EndByPlatform", Answer[SessionStatus]]):
    """End the session for an administrator. Answered with the session as its consumer sees it."""


@final
class CancelSession(Value, Command["CancelSession", Answer[SessionStatus]]):
    """Cancel the request."""

    caller: Caller


@final
class ExtendSession(Value, Command["ExtendSession", Answer[SessionStatus]]):
    """Add time to the LIVE session. With escrow, answered when the contract has taken the amount."""

    extension: SessionExtension
    caller: Caller
    is_hold_enforced: bool = False
    spending: KeySpending | None = None


@final
class SendToOperator(Value, Command["SendToOperator", Answer[SessionStatus]]):
    """Send a short text of the consumer to the operator of the LIVE session."""

    text: str
    caller: Caller


@final
class MarkMessagesShown(Value, Command["MarkMessagesShown", Answer[SessionStatus]]):
    """Record that the operator's device has shown the messages up to a number."""

    number: int
    caller: Caller


@final
class DropAssignment(Value, Command["DropAssignment", bool]):
    """Cancel the operator's assignment. Answered False if the operator is no longer assigned."""

    workspace_id: str
    mark: IdempotencyKey | None = None
    """Recorded with the cancellation, so that a repeated call knows which assignments it cancelled itself."""


@final
class GetSession(Value, Command["GetSession", Session | None]):
    """Apply passed deadlines and read the session. Answered None for an unknown id."""


class ClaimState(Enum):
    """How a session stands to an operator's claim on it."""

    ASSIGNED = "ASSIGNED"
    LIVE = "LIVE"
    PENDING = "PENDING"
    """An operation in progress may make the claim true."""
    GONE = "GONE"
    NEVER = "NEVER"
    """The workspace was never the session's operator: a dispatch was interrupted after the claim."""


@final
class CheckClaim(Value, Command["CheckClaim", ClaimState]):
    """Compare a workspace's claim with the session."""

    workspace_id: str


@final
class RecordSettlement(Value, Command["RecordSettlement", None]):
    """Record that the settlement is confirmed on chain. Answered once it is durable."""

    mined: SettlementMined


# How an assignment ends, and what a session sends to itself.


@final
class OperatorClaimed(Value):
    """The operator's workspace has claimed the session and the relation is staged.

    As a message: storing the assignment has failed, and the operator is released unless the session's row has it.
    """

    operator: Operator
    staged: Staged
    place: OperatorPlace


@final
class PreparedAssignment(Value):
    """The step that assigns an operator, the write that stores it, and the answer once it is stored."""

    step: Step
    write: SessionWrite
    answer: Answer[SessionStatus]


@final
class OperatorAssigned(Value):
    """The assignment is stored, together with the operator's claim."""

    prepared: PreparedAssignment
    committed: Committed


@final
class RowWritten(Value):
    """The operator's workspace has stored an assignment whose asker had given up: the session's row has moved on."""

    version: int


@final
class VideoReady(Value):
    """The operator is occupied by this start, the hold is open, and the live input exists."""

    video: VideoInput
    start_ms: int
    hold_tx_hash: str | None = None


@final
class HoldExtended(Value):
    """The contract has taken the amount of an extension."""

    extension_id: str
    tx_hash: str


@final
class ExtensionFailed(Value):
    """The amount of an extension is refused, or not taken yet."""

    extension_id: str
    error: Exception


@final
class ResumeExtending(Value):
    """A timer: ask the contract again for the extension that is not taken yet."""


@final
class OperationFailed(Value):
    """The pending start failed; the session is unchanged."""

    error: Exception


@final
class VideoReopened(Value):
    """After a restart: the live input of the LIVE session exists again."""

    video: VideoInput


@final
class ReportsMissed(Value):
    """Fixes or media events may be lost between servers: a LIVE session reads what is recorded."""


@final
class ReopenVideo(Value):
    """A timer: retry reopening the live input."""


# To a workspace.


@final
class CreateWorkspace(Value, Command["CreateWorkspace", Answer[Workspace]]):
    """Create the workspace."""

    workspace: NewWorkspace
    caller: Caller


@final
class PatchWorkspace(Value, Command["PatchWorkspace", Answer[Workspace]]):
    """Change the fields that callers may change."""

    patch: Patch
    caller: Caller


@final
class ResetLocation(Value, Command["ResetLocation", Answer[Workspace]]):
    """Reset the sequence of the heartbeats."""

    caller: Caller


@final
class GetWorkspace(Value, Command["GetWorkspace", Workspace | None]):
    """Read the workspace. Answered None for an unknown id."""


@final
class ClaimOperator(Value, Command["ClaimOperator", Operator | Refusal]):
    """Claim the operator for a session, as a write of its own. Used only with an external relations graph."""

    claim: ClaimByDispatch | ClaimByAccept


@final
class OperatorDiffers(Value):
    """The assignment was prepared for an older state of the operator; nothing was written.

    Attributes:
        idle_since_ms: The assignment may begin at this time or later.
    """

    operator: Operator
    idle_since_ms: int = 0


@final
class AssignOperator(Value, Command["AssignOperator", Committed | Rejected | OperatorDiffers | Refusal]):
    """Claim the operator for a session and store the session's assignment, in one transaction.

    Answered with the session's commit, or with why nothing was written: `Rejected` by the store because of the
    session, `Refusal` by the operator.
    """

    claim: ClaimByDispatch | ClaimByAccept
    write: SessionWrite


@final
class OccupyOperator(Value, Command["OccupyOperator", Operator | Refusal]):
    """Make the operator BUSY with a session that is being started.

    Attributes:
        start_ms: When this start began; tells it from other starts of the session.
    """

    session_id: str
    start_ms: int = 0


@final
class VacateOperator(Value):
    """Undo the `OccupyOperator` of the same start, which failed. Ignored after that of another start."""

    session_id: str
    start_ms: int = 0


@final
class FreeOperator(Value):
    """Release the operator's claim.

    Attributes:
        unstarted_for: The session's consumer, if the operator did not start in time.
        is_withdrawn: Remove the operator's relation to the session first.
        claimed_at_ms: Only if the claim still has this time.
    """

    session_id: str
    unstarted_for: str | None = None
    is_withdrawn: bool = False
    claimed_at_ms: int | None = None


@final
class RestoreClaim(Value):
    """Make sure that the claim of an assigned session exists; sent by the session after it loaded."""

    session_id: str
    is_live: bool
    is_dispatched: bool


@final
class ReportHeartbeat(Value, Command["ReportHeartbeat", Answer[Workspace]]):
    """Record one heartbeat. Answered once it is durable."""

    report: HeartbeatReport
    key: IdempotencyKey | None = None
    """Idempotency key of the call; the answer is recorded with the heartbeat."""


@final
class ReportHeartbeats(Value, Command["ReportHeartbeats", Answer[BatchVerdict]]):
    """Record several heartbeats in order. Answered with a verdict on each once all accepted ones are durable."""

    reports: tuple[HeartbeatReport, ...]
    key: IdempotencyKey | None = None


@final
class ClaimsChecked(Value):
    """Answers of the sessions whose claims were checked: (session id, the claim's at_ms, claim_state)."""

    claim_states: tuple[tuple[str, int, ClaimState], ...]
    starts: int
    """How many starts the operator's workspace had been asked for when the sessions were asked."""


@final
class ReconcileClaims(Value):
    """A timer: compare older claims with their sessions."""


# To the dispatcher.


@final
class PickOperator(Value, Command["PickOperator", Operator | None]):
    """Choose and reserve an operator for a point. Answered with None if there is no operator."""

    lat: float
    lng: float
    excluded: frozenset[str]
    requires_coverage: bool = False
    """Only an operator that covers the point."""


@final
class OperatorChanged(Value):
    """A supplier's workspace changed, was loaded, or refused a claim that the dispatcher expected to succeed."""

    workspace: Workspace
    is_loaded: bool = False
    """It was loaded. Its row may be newer than what the dispatcher knows."""


@final
class HeartbeatResumed(Value):
    """An operator sent its first heartbeat, or one after a silence."""

    workspace_id: str


@final
class SightingReport(Value):
    """When operators of another server were seen last, as (workspace id, version, instant).

    Sent every few seconds for those that sent a heartbeat. A version that the index does not have is read.
    """

    operators: tuple[tuple[str, int, int], ...]


@final
class BeginDispatch(Value, Command["BeginDispatch", frozenset[str]]):
    """Note that a dispatch is in flight. Answered with the sessions of its consumer whose dispatch began before it."""

    consumer_workspace_id: str
    session_id: str


@final
class DispatchEnded(Value):
    """A dispatch is not in flight any more."""

    consumer_workspace_id: str
    session_id: str


@final
class CountOperators(Value, Command["CountOperators", int]):
    """Count the ONLINE operators that cover a point and sent a heartbeat lately."""

    lat: float
    lng: float


@final
class HasOperator(Value, Command["HasOperator", bool]):
    """Say whether a dispatch for a point would find an operator now. Reserves nothing."""

    lat: float
    lng: float
    requires_coverage: bool


@final
class CountCells(Value, Command["CountCells", CoverageCells]):
    """Count the ONLINE operators that sent a heartbeat lately, by cell."""


# Between servers.


@final
class ShardsTaken(Value):
    """The sender owns these shards from now on."""

    shards: tuple[int, ...]


@final
class ShardsReleased(Value):
    """The sender has given shards up, or has found that another server ended: look at the database."""


@final
class Followed(Value):
    """What the streams of the sender follow: all of it (kind and id), and whether one of them reports requests."""

    watches: tuple[tuple[str, str], ...]
    has_operators: bool


@final
class FollowedChanged(Value):
    """A stream of the sender begins, or ends, to follow an actor."""

    kind: str
    id: str
    is_on: bool


@final
class ActorChanged(Value):
    """An actor changed that a stream of the receiver follows; see `Watchers.notify`."""

    kind: str
    id: str
    session_id: str | None = None


@final
class DeviceMoved(Value):
    """See `Watchers.notify_move`."""

    kind: str
    id: str


@final
class RequestChanged(Value):
    """See `Watchers.notify_request`."""

    session_id: str
    lat: float
    lng: float


@final
class ReadSessions(Value, Command["ReadSessions", tuple[Session, ...]]):
    """Answer with the sessions that the server has in memory; others are left out."""

    ids: tuple[str, ...]


@final
class ReadWorkspaces(Value, Command["ReadWorkspaces", tuple[Workspace, ...]]):
    """Answer with the workspaces that the server has in memory; others are left out."""

    ids: tuple[str, ...]


@final
class WakeRole(Value):
    """The server that owns this role, a `ServerRole`, looks for work now."""

    role: int


@final
class SuspensionsChanged(Value):
    """Read the suspended workspaces now."""


@final
class SignInEnded(Value):
    """A sign-in was ended: read its row before it is accepted again."""

    session_id: str


@final
class RatesSpent(Value):
    """What callers took from their rate limits at the sender: (class, key, tokens)."""

    spent: tuple[tuple[str, str, int], ...]


@final
class NoShow(Value):
    """An operator of this wallet was assigned and did not start."""

    wallet_address: str
    at_ms: int


@final
class PresenceProved(Value):
    """An operator of this wallet filmed a session for `PROVED_SECONDS`."""

    wallet_address: str
    at_ms: int


@final
class GetConduct(Value, Command["GetConduct", Conduct]):
    """Answer with the record of a wallet."""

    wallet_address: str


@final
class SaveConducts(Value):
    """Store the records that changed."""


@final
class OperatorAcknowledged(Value):
    """The dispatched operator called about the session, was told of it, or sent a heartbeat after the assignment."""

    workspace_id: str


@final
class AcknowledgementDue(Value):
    """The operator that was assigned at this time should have acknowledged it by now."""

    assigned_at_ms: int


SessionCommand: TypeAlias = (
    CreateSession
    | DispatchSession
    | AcceptSession
    | StartSession
    | DeclineSession
    | EndSession
    | EndByPlatform
    | CancelSession
    | ExtendSession
    | SendToOperator
    | MarkMessagesShown
    | DropAssignment
)
"""Commands that change a session; they wait while a start is pending."""

StartOutcome: TypeAlias = VideoReady | OperationFailed
"""How a start ended."""

SessionMessage: TypeAlias = (
    SessionCommand
    | StartOutcome
    | OperatorClaimed
    | GetSession
    | CheckClaim
    | RecordSettlement
    | FixReported
    | MediaProved
    | MediaBroke
    | ConsumerActive
    | FundsReported
    | Tick
    | VideoReopened
    | ReopenVideo
    | RowWritten
    | ReportsMissed
    | OperatorAcknowledged
    | AcknowledgementDue
    | HoldExtended
    | ExtensionFailed
    | ResumeExtending
)

WorkspaceMessage: TypeAlias = (
    CreateWorkspace
    | PatchWorkspace
    | ResetLocation
    | GetWorkspace
    | ClaimOperator
    | AssignOperator
    | OccupyOperator
    | VacateOperator
    | FreeOperator
    | RestoreClaim
    | ReportHeartbeat
    | ReportHeartbeats
    | ClaimsChecked
    | ReconcileClaims
)

DispatcherMessage: TypeAlias = (
    PickOperator
    | BeginDispatch
    | DispatchEnded
    | OperatorChanged
    | HeartbeatResumed
    | SightingReport
    | CountOperators
    | HasOperator
    | CountCells
    | NoShow
    | PresenceProved
    | GetConduct
    | SaveConducts
)
