"""Messages of the session machine: commands (may be refused), facts (never are), and the effects of a step."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, final

from sightline.domain.geofence import Fix
from sightline.domain.session.model import Operator, Session, SessionExtension, VideoInput
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import value


class Party(StrEnum):
    """Who speaks, as seen from the session."""

    CONSUMER = "CONSUMER"
    OPERATOR = "OPERATOR"
    PLATFORM = "PLATFORM"
    """An administrator of the service; may end a session in every state that is not final."""


# Commands.


@final
@dataclass(frozen=True, slots=True)
class Assign:
    """Give the session to an operator whose workspace has claimed it."""

    operator: Operator
    is_dispatched: bool = False


@final
@dataclass(frozen=True, slots=True)
class BeginFunding:
    """Start, where the payer consented to a hold: the escrow contract is asked to open it for this operator."""


@final
@dataclass(frozen=True, slots=True)
class GoLive:
    """Start: the operator is occupied and the live input exists."""

    video: VideoInput
    hold_tx_hash: str | None = None
    """The transaction that opened the hold; None without escrow."""


@final
@dataclass(frozen=True, slots=True)
class End:
    """End the session. In ASSIGNED only consumer and platform may, in REQUESTED only the platform; both cancel it."""

    by: Party
    credential: str | None = None
    """What ended it, as `credential_of` names it."""


@final
@dataclass(frozen=True, slots=True)
class Cancel:
    """The consumer withdraws the request."""


@final
@dataclass(frozen=True, slots=True)
class CancelAssignment:
    """The operator drops the assignment."""


@final
@dataclass(frozen=True, slots=True)
class Withdraw:
    """The dispatched operator has not acknowledged the assignment in time: open the request again."""


@final
@dataclass(frozen=True, slots=True)
class Decline:
    """The operator refuses the assignment: open the request again, for others."""


@final
@dataclass(frozen=True, slots=True)
class BeginExtending:
    """Note the extension that the escrow contract is asked for, before anything is sent to it."""

    extension: SessionExtension


@final
@dataclass(frozen=True, slots=True)
class Extend:
    """Add time to the LIVE session. With escrow, the contract has taken the amount."""

    extension: SessionExtension


# Facts.


@final
@dataclass(frozen=True, slots=True)
class ExtensionRefused:
    """The escrow contract does not take the amount of an extension: it is not asked for any more."""

    extension_id: str


@final
@value
class FixReported:
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
@dataclass(frozen=True, slots=True)
class MediaProved:
    """Frames arrived at `at_ms`, or the publisher connected."""

    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class MediaBroke:
    """The backend says the publisher went away at `at_ms`."""

    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; look at the deadlines."""


@final
@dataclass(frozen=True, slots=True)
class ConsumerActive:
    """The consumer side made an authenticated call about the session, or is watching it: renews the consumer lease."""


@final
@dataclass(frozen=True, slots=True)
class FundsReported:
    """The chain shows what the payer can still pay: by balance, allowance and its limits on the contract."""

    available: MicroUsdc


@final
@dataclass(frozen=True, slots=True)
class SettlementMined:
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
    MEDIA_LOST = "MEDIA_LOST"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    SETTLED = "SETTLED"


@final
@dataclass(frozen=True, slots=True)
class Event:
    """A fact to be recorded. `facts` holds JSON scalars and lists only; it enters the hash chain."""

    kind: EventKind
    at_ms: int
    facts: tuple[tuple[str, str | int | None], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class ReleaseOperator:
    """Tell the operator's workspace that it is free of this session."""

    workspace_id: str
    start_timed_out: bool
    is_withdrawn: bool = False
    """Whether the session continues without this operator; its relation to the session is then removed."""


@final
@dataclass(frozen=True, slots=True)
class RecordNoShow:
    """Tell the dispatcher that a wallet's operator was assigned and did not start."""

    wallet_address: str
    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class RecordProof:
    """Tell the dispatcher that a wallet's operator filmed a session long enough to count as proved."""

    wallet_address: str
    at_ms: int


@final
@dataclass(frozen=True, slots=True)
class CloseVideo:
    """Tear down the live input."""

    ref: str


@final
@dataclass(frozen=True, slots=True)
class Settle:
    """Compose the settlement, in the same transaction as the end."""

    payload: SettlementPayload


@final
@dataclass(frozen=True, slots=True)
class ReleaseHold:
    """Give the hold back, in the same transaction."""


@final
@dataclass(frozen=True, slots=True)
class ChargeHold:
    """Shrink the hold to what is charged, in the same transaction."""

    charged: MicroUsdc


Effect: TypeAlias = ReleaseOperator | RecordNoShow | RecordProof | CloseVideo | Settle | ReleaseHold | ChargeHold


@final
@value
class Step:
    """A step that was taken. With no event nothing durable changed and nothing needs to be stored."""

    session: Session
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
