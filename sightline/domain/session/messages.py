"""Messages of the session machine: commands (may be refused), facts (never are), and the effects of a step."""

from enum import StrEnum
from typing import TypeAlias, final

from sightline.domain.geofence import Fix
from sightline.domain.session.model import Operator, Session, SessionExtension, VideoInput
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value


class Party(StrEnum):
    """Who speaks, as seen from the session."""

    CONSUMER = "CONSUMER"
    OPERATOR = "OPERATOR"
    PLATFORM = "PLATFORM"
    """An administrator of the service; may end a session in every state that is not final."""


# Commands.


@final
class Assign(Value):
    """Give the session to an operator whose workspace has claimed it."""

    operator: Operator
    is_dispatched: bool = False


@final
class BeginFunding(Value):
    """Start, where the payer consented to a hold: the escrow contract is asked to open it for this operator."""


@final
class GoLive(Value):
    """Start: the operator is occupied and the live input exists."""

    video: VideoInput
    hold_tx_hash: str | None = None
    """The transaction that opened the hold; None without escrow."""


@final
class End(Value):
    """End the session. In ASSIGNED only consumer and platform may, in REQUESTED only the platform; both cancel it."""

    by: Party
    credential: str | None = None
    """What ended it, as `credential_of` names it."""


@final
class Cancel(Value):
    """The consumer withdraws the request."""


@final
class CancelAssignment(Value):
    """The operator drops the assignment."""


@final
class Withdraw(Value):
    """The dispatched operator has not acknowledged the assignment in time: open the request again."""


@final
class Decline(Value):
    """The operator refuses the assignment: open the request again, for others."""


@final
class BeginExtending(Value):
    """Note the extension that the escrow contract is asked for, before anything is sent to it."""

    extension: SessionExtension


@final
class Extend(Value):
    """Add time to the LIVE session. With escrow, the contract has taken the amount."""

    extension: SessionExtension


@final
class Say(Value):
    """Send a short text of the consumer to the operator of the LIVE session."""

    text: str


@final
class MarkShown(Value):
    """Record that the operator's device has shown the messages up to a number."""

    number: int


# Facts.


@final
class ExtensionRefused(Value):
    """The escrow contract does not take the amount of an extension: it is not asked for any more."""

    extension_id: str


@final
class FixReported(Value):
    """A durable heartbeat of the operator. `is_fresh` is False when the device sent it late.

    `previous` is the sequence of the heartbeat that was accepted before it, at `previous_at_ms`. A session that does
    not know that heartbeat has missed a report.
    """

    fix: Fix
    sequence: int
    is_fresh: bool = True
    previous: int | None = None
    previous_at_ms: int | None = None


@final
class MediaProved(Value):
    """Frames arrived at `at_ms`, or the publisher connected."""

    at_ms: int


@final
class MediaBroke(Value):
    """The backend says the publisher went away at `at_ms`."""

    at_ms: int


@final
class Tick(Value):
    """Time has passed; look at the deadlines."""


@final
class ConsumerActive(Value):
    """The consumer side made an authenticated call about the session, or is watching it: renews the consumer lease."""

    workspace_id: str | None = None
    """Who made the call or watches. It changes nothing unless that is the consumer; None: checked by the sender."""
    picture_at_ms: int | None = None
    """When a picture was answered to it, or when its viewer reported that video arrives; None: no picture."""


@final
class FundsReported(Value):
    """The chain shows what the payer can still pay: by balance, allowance and its limits on the contract."""

    available: MicroUsdc


@final
class SettlementMined(Value):
    """The settlement's transaction is confirmed."""

    tx_hash: str


Message: TypeAlias = (
    Assign
    | BeginFunding
    | GoLive
    | End
    | Cancel
    | CancelAssignment
    | Withdraw
    | Decline
    | BeginExtending
    | Extend
    | Say
    | MarkShown
    | ExtensionRefused
    | FixReported
    | MediaProved
    | MediaBroke
    | ConsumerActive
    | FundsReported
    | Tick
    | SettlementMined
)


# Recorded events and effects.


class EventKind(StrEnum):
    """Kinds of a session's recorded events."""

    CREATED = "CREATED"
    ASSIGNED = "ASSIGNED"
    REOPENED = "REOPENED"
    STARTED = "STARTED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    EXTENDED = "EXTENDED"
    MESSAGE = "MESSAGE"
    MEDIA_LOST = "MEDIA_LOST"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    SETTLED = "SETTLED"


@final
class Event(Value):
    """A fact to be recorded. `facts` holds JSON scalars and lists only; it enters the hash chain."""

    kind: EventKind
    at_ms: int
    facts: tuple[tuple[str, str | int | None], ...] = ()


@final
class ReleaseOperator(Value):
    """Tell the operator's workspace that it is free of this session."""

    workspace_id: str
    start_timed_out: bool
    is_withdrawn: bool = False
    """Whether the session continues without this operator; its relation to the session is then removed."""


@final
class RecordNoShow(Value):
    """Tell the dispatcher that a wallet's operator was assigned and did not start."""

    wallet_address: str
    at_ms: int


@final
class RecordProof(Value):
    """Tell the dispatcher that a wallet's operator filmed a session long enough to count as proved."""

    wallet_address: str
    at_ms: int


@final
class CloseVideo(Value):
    """Tear down the live input."""

    ref: str


@final
class Settle(Value):
    """Compose the settlement, in the same transaction as the end."""

    payload: SettlementPayload


@final
class ReleaseHold(Value):
    """Give the hold back, in the same transaction."""


@final
class ChargeHold(Value):
    """Shrink the hold to what is charged, in the same transaction."""

    charged: MicroUsdc


Effect: TypeAlias = ReleaseOperator | RecordNoShow | RecordProof | CloseVideo | Settle | ReleaseHold | ChargeHold


@final
class Step(Value):
    """A step that was taken.

    `has_evidence`: the row needs the step although no event says so, because recovery would count the time otherwise.
    """

    session: Session
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    has_evidence: bool = False

    @property
    def must_be_stored(self) -> bool:
        """Whether a fact that led to this step changed something that is stored nowhere else."""
        return bool(self.events) or self.has_evidence
