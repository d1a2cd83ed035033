"""The port through which actors read and write durable state.

Every write of an actor's state is one transaction: it checks that the shard is held at the writer's epoch and that the
row has the version that the writer read, then stores the new state at version + 1 together with its events, hold,
settlement, quote, relation tuples and idempotency record.

Every method may raise `StoreUnavailableError` (nothing was written) and, if it writes, `OutcomeUnknownError` (the
commit was sent and its answer was lost). A write that the store refuses returns `Rejected`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, final

from sightline.domain.access import KeyLimits
from sightline.domain.conduct import Conduct
from sightline.domain.errors import RefusedError, StoreUnavailableError
from sightline.domain.geofence import Fix
from sightline.domain.operator.model import Workspace
from sightline.domain.pricing import Quote
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.messages import Event
from sightline.domain.session.model import MediaCheckpoint, Session, SessionState
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import DAY_MS, MINUTE_MS, MicroUsdc
from sightline.domain.value import Value
from sightline.ports.relations import TupleUpdate

SHARDS: Final = 256

DEMAND_DURATION_MIN_S: Final = 60
"""Requests of shorter sessions do not raise the price: their hold costs next to nothing."""
DEMAND_ONCE_MS: Final = 10 * MINUTE_MS
DEMAND_PAID_MS: Final = DAY_MS
"""See `Store.demand_near`."""

IN_PROGRESS: Final = Refusal(
    Code.CONFLICT, "idempotency:inProgress", "The first call with this key is still running", retry_after_s=1
)


@final
class ShardLease(Value):
    """The right to write a shard's rows: valid while the stored epoch equals `epoch`."""

    shard: int
    epoch: int


@final
class ShardLostError(StoreUnavailableError):
    """Another server holds a shard of the rows; nothing was written."""


@final
class IdempotencyKey(Value, kw_only=True):
    """Identifies a call: two calls with equal workspace, method, path and key are the same call."""

    workspace_id: str
    method: str
    path: str
    key: str
    body_hash: str


@final
class IdempotencyRecord(Value, kw_only=True):
    """The recorded answer to a call, kept for 24 hours. `result` is JSON-ready."""

    key: IdempotencyKey
    result: Mapping[str, object]
    at_ms: int
    revision: int | None = None
    """Revision of the relations graph after the call wrote its own tuples; set by the store."""


@final
class CallRecordedError(RefusedError):
    """A call with this idempotency key is recorded already; nothing was written."""

    def __init__(self) -> None:
        super().__init__(IN_PROGRESS)


@final
class KeySpending(Value):
    """A hold counts against the limits of the API key that requested it."""

    key_id: str
    limits: KeyLimits


@final
class HoldRequest(Value, kw_only=True):
    """Reserve an amount of the payer's funds for a session.

    Rejected while the charge of an earlier session of the payer cannot be collected. `is_enforced`: rejected if the
    funds do not cover it. `unfunded_max`: rejected if they do not cover it and the payer has that many open sessions;
    0: no limit.
    """

    payer_address: str
    amount: MicroUsdc
    is_enforced: bool
    spending: KeySpending | None = None
    unfunded_max: int = 0


@final
class HoldGrowth(Value, kw_only=True):
    """Add to the hold of a session, under the rules that `HoldRequest` has for a hold of the whole amount."""

    payer_address: str
    amount: MicroUsdc
    is_enforced: bool = False
    unfunded_max: int = 0
    spending: KeySpending | None = None
    is_trial: bool = False
    """Check only: the hold grows when the escrow contract has taken the amount."""
    is_taken: bool = False
    """The escrow contract has taken the amount, so nothing is checked."""


@final
class RecordedEvent(Value):
    """An event with its place in the session's hash chain. `sequence` counts from 1."""

    sequence: int
    event: Event
    hash: str


@final
class SessionWrite(Value, kw_only=True):
    """One transaction of a session actor. `session.version` is the version read; the row becomes version + 1."""

    lease: ShardLease
    session: Session
    at_ms: int
    due_at_ms: int | None
    """When the session wants to be woken next; None when terminal."""
    events: tuple[RecordedEvent, ...] = ()
    take_hold: HoldRequest | None = None
    charge_hold: MicroUsdc | None = None
    release_hold: bool = False
    settle: SettlementPayload | None = None
    consume_quote: str | None = None
    tuples: tuple[TupleUpdate, ...] = ()
    idempotency: IdempotencyRecord | None = None
    grow_hold: HoldGrowth | None = None


@final
class WorkspaceWrite(Value, kw_only=True):
    """One transaction of a workspace actor."""

    lease: ShardLease
    workspace: Workspace
    at_ms: int
    tuples: tuple[TupleUpdate, ...] = ()
    idempotency: IdempotencyRecord | None = None


class RejectedWhy(StrEnum):
    """Why the store rejected a write."""

    FENCED = "FENCED"
    """The shard is no longer held at this epoch."""
    VERSION = "VERSION"
    """The row is not at the version that was read (or exists already, or is gone)."""
    QUOTE_CONSUMED = "QUOTE_CONSUMED"
    FUNDS = "FUNDS"
    """The enforced hold is not covered."""
    UNFUNDED = "UNFUNDED"
    """The hold is not covered, and the payer has another open session."""
    UNPAID = "UNPAID"
    """The charge of an earlier session of the payer could not be collected."""
    KEY_LIMIT = "KEY_LIMIT"
    """The hold would exceed a limit of the API key."""
    SLUG_TAKEN = "SLUG_TAKEN"
    IDEMPOTENT = "IDEMPOTENT"
    """A record of this idempotency key exists already."""


@final
class Rejected(Value):
    """The write was refused; nothing was written."""

    why: RejectedWhy
    left: MicroUsdc | None = None
    """What the session may cost at most now by the limit that it exceeds: with KEY_LIMIT the API key's, with FUNDS and
    UNFUNDED the payer's own on the settlement contract. None with the last two: balance and allowance are too low."""
    free: MicroUsdc | None = None
    """With FUNDS and without `left`: what balance and allowance leave for the session beside the payer's other holds.
    None: they were not read from the chain lately."""


@final
class Committed(Value):
    """The write is durable. `revision` is the relations graph's, when tuples were written."""

    version: int
    revision: int | None = None


@final
class RejectedAssignment(Value):
    """An assignment was refused and nothing was written: one of the two says why."""

    session: RejectedWhy | None = None
    workspace: RejectedWhy | None = None


class Heartbeat(NamedTuple):
    """One accepted heartbeat as recorded."""

    workspace_id: str
    sequence: int
    fix: Fix
    is_fresh: bool
    session_id: str | None = None
    heading_degrees: float | None = None
    speed_mps: float | None = None
    altitude_m: float | None = None
    battery_percent: float | None = None
    source: str | None = None
    is_mock: bool | None = None


class HeartbeatWrite(NamedTuple):
    """Heartbeats of one workspace with the answers to their calls, recorded together or not at all."""

    lease: ShardLease
    """The lease under which the workspace was loaded."""
    heartbeats: tuple[Heartbeat, ...]
    """At least one."""
    answers: tuple[IdempotencyRecord, ...] = ()


@final
class SessionKey(Value):
    """Place of a session in the newest-first list."""

    created_at_ms: int
    id: str


class SessionView(StrEnum):
    """Which sessions a list is about, from the workspace's point of view."""

    PARTY = "party"
    CONSUMER = "consumer"
    OPERATOR = "operator"
    OPEN = "open"


@final
class SessionQuery(Value, kw_only=True):
    """A page of sessions, newest first by (created_at, id), strictly after `after` in that order.

    View None lists both sides.
    `SessionView.OPEN` lists REQUESTED sessions whose deadline is after `now_ms` inside the workspace's coverage
    (None counts as everywhere).
    """

    workspace_id: str
    view: SessionView | None
    now_ms: int
    limit: int
    states: frozenset[SessionState] = frozenset()
    """As stored; the caller allows for deadlines that have passed since."""
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    after: SessionKey | None = None
    coverage: tuple[float, float, float] | None = None
    """(lat, lng, radius in metres)."""


@final
class UnfinishedSession(Value, kw_only=True):
    """What recovery reads of a session that is not terminal."""

    id: str
    state: SessionState
    operator_workspace_id: str | None
    video_ref: str | None
    due_at_ms: int | None


@final
class StoredSession(Value, kw_only=True):
    """A session as stored, with evidence recorded in other tables since."""

    session: Session
    media: MediaCheckpoint | None = None
    """Newest checkpoint of media; may be newer than what the session itself has."""
    heartbeats: tuple[Heartbeat, ...] = ()
    """The operator's heartbeats received since the session went LIVE whose sequence is above the session's own
    `location.last_sequence`, by sequence; empty unless LIVE."""


@final
class ConsumerDispatches(Value):
    """What became of the sessions that were dispatched for a consumer workspace and never started."""

    unstarted: frozenset[str] = frozenset()
    """Ids of its ASSIGNED sessions whose operator the dispatcher chose."""
    abandoned_at_ms: tuple[int, ...] = ()
    """When dispatched sessions expired or were cancelled by the consumer, newest first; at most `ABANDONED_READ`."""


ABANDONED_READ: Final = 3


class Store(Protocol):
    """Durable storage for the actors."""

    async def write_session(self, write: SessionWrite) -> Committed | Rejected:
        """Store one session step. Version 0 inserts."""
        ...

    async def load_session(self, session_id: str) -> StoredSession | None:
        """Read one session with the evidence recorded since, or None."""
        ...

    async def list_sessions(self, query: SessionQuery) -> Sequence[Session]:
        """Read one page."""
        ...

    async def sessions_of_operator(self, workspace_id: str, state: SessionState) -> Sequence[str]:
        """Ids of the operator's sessions in a state, oldest first by (created_at, id)."""
        ...

    async def dispatches_of(self, consumer_workspace_id: str) -> ConsumerDispatches:
        """The consumer's dispatched sessions that are not started, and the newest ones that it abandoned."""
        ...

    async def unfinished_sessions(self, shard: int | None = None) -> Sequence[UnfinishedSession]:
        """Every session that is REQUESTED, ASSIGNED or LIVE; of one shard if it is given."""
        ...

    async def session_events(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> Sequence[RecordedEvent]:
        """Return the recorded events of a session whose sequence is above `after`, in order; all if `limit` is None."""
        ...

    async def checkpoint_media(self, checkpoints: Mapping[str, MediaCheckpoint]) -> None:
        """Record checkpoints by the id of their session, joined with the earlier ones: no proof moves back."""
        ...

    async def write_workspace(self, write: WorkspaceWrite) -> Committed | Rejected:
        """Store one workspace step. Version 0 inserts; a taken slug is `SLUG_TAKEN`."""
        ...

    async def write_assignment(
        self, session: SessionWrite, workspace: WorkspaceWrite
    ) -> Committed | RejectedAssignment:
        """Store a session's assignment and its operator's claim in one transaction.

        Neither moves money or consumes a quote, and the workspace records no answer and no tuples. `Committed` is the
        session's; the workspace's row becomes its version + 1 too.
        """
        ...

    async def load_workspace(self, workspace_id: str) -> Workspace | None:
        """Read one workspace, `last_sequence` and `last_seen_at_ms` as of its newest recorded heartbeat."""
        ...

    async def workspaces(self, ids: Sequence[str]) -> Sequence[Workspace]:
        """Read several workspaces by id; unknown ids are left out."""
        ...

    async def suppliers(self, shard: int | None = None) -> Sequence[Workspace]:
        """Every SUPPLIER that is ONLINE or BUSY or holds a claim; of one shard if it is given.

        For the dispatcher's index and reconciliation.
        """
        ...

    async def conducts(self, *, since_ms: int) -> Mapping[str, Conduct]:
        """The records of wallets that have ever proved themselves, or have a no-show since a time."""
        ...

    async def save_conducts(self, conducts: Mapping[str, Conduct]) -> None:
        """Record the conduct of wallets; replaces what is recorded of them."""
        ...

    async def append_heartbeats(self, batch: Sequence[HeartbeatWrite]) -> frozenset[ShardLease]:
        """Record the writes whose lease is still held; they are durable when this returns.

        A heartbeat whose workspace and sequence are recorded already on its UTC day, and an answer to a call that is
        recorded already, stay as they are. So a repetition cannot double a commit that was thought lost.

        Returns:
            The leases that another server has taken; nothing of their writes is recorded.
        """
        ...

    async def latest_heartbeat(self, workspace_id: str) -> Heartbeat | None:
        """Read the newest recorded heartbeat."""
        ...

    async def insert_quote(self, quote: Quote) -> None:
        """Record a quote."""
        ...

    async def load_quote(self, quote_id: str) -> Quote | None:
        """Read a quote."""
        ...

    async def demand_near(
        self, *, lat: float, lng: float, within_m: float, since_ms: int, now_ms: int, not_of: str
    ) -> int:
        """Count the wallets other than that of `not_of` that wait for an operator near a point, are funded, and are no
        passing request.

        A wallet waits if it has a REQUESTED (unexpired) or ASSIGNED session of at least `DEMAND_DURATION_MIN_S` that
        was created since `since_ms`. It is funded if, by its last reading, it covers the hold of that session and all
        its holds together. A wallet that paid no charge within `DEMAND_PAID_MS` counts only with a session before which
        it requested none for `DEMAND_ONCE_MS`.
        """
        ...

    async def is_funded(self, session_id: str, now_ms: int) -> bool:
        """Whether the payer's wallet, by its last reading, covers the session's hold and all its holds together."""
        ...

    async def find_idempotent(self, key: IdempotencyKey) -> IdempotencyRecord | None:
        """The record of a call with this workspace, method, path and key, whatever its body hash."""
        ...

    async def record_idempotent(self, record: IdempotencyRecord) -> bool:
        """Record the answer to a call that no actor handles; False if one is recorded already."""
        ...
