"""What the actors are given: ports, limits, and the small services they share."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, final

from msgspec import field

from sightline.actors.kernel import KindName, Rng
from sightline.actors.messages import DispatcherMessage, SessionMessage, WorkspaceMessage
from sightline.actors.payment_hold import PaymentHold
from sightline.actors.shards import OwnedShards
from sightline.actors.watchers import Watchers
from sightline.domain.operator.machine import AcceptPolicy
from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session, SessionLimits
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value
from sightline.ports.clock import Clock
from sightline.ports.escrow import Escrow
from sightline.ports.ids import Ids
from sightline.ports.relations import Relations
from sightline.ports.store import Store
from sightline.ports.video import VideoBackend

SESSION: Final = KindName[SessionMessage, Session]("session")
WORKSPACE: Final = KindName[WorkspaceMessage, Workspace]("workspace")
DISPATCHER: Final = KindName[DispatcherMessage, int]("dispatcher")

COMMAND_TIMEOUT_S: Final = 30.0
"""How long a caller's command may take; covers the longest a start may wait for the video backend."""


@final
class ActorLimits(Value, kw_only=True):
    """The numbers of the actors; every one is a setting."""

    session: SessionLimits = field(default_factory=SessionLimits)
    platform_fee_bps: int = 1500
    minimum_s: int = 1
    """Least seconds that a session with any clean time is charged."""
    session_cap_micro: int | None = None
    """Maximum charge of one session that the settlement contract accepts; None: no maximum."""
    rate_max_micro: int | None = None
    """Maximum rate of a hold that the escrow contract opens; None: no maximum."""
    base_rate: MicroUsdc = field(default=MicroUsdc(1000))
    corridors: Mapping[str, int] = field(default_factory=dict)
    """Basis points by zone, a zone being the one-degree cell "lat,lng" of its south-west corner."""
    quote_ttl_ms: int = 120_000
    quote_radius_m: float = 50.0
    demand_radius_m: float = 5_000.0
    demand_window_ms: int = 300_000
    dispatch_mode: str = "prefer"
    """prefer: tiers A, B, C; literal: longest idle ONLINE whatever its coverage; strict: tier A."""
    seen_within_ms: int = 60_000
    unstarted_dispatches_max: int = 3
    """Dispatched sessions of one consumer that are not started; 0: no limit, and no cool-down."""
    dispatch_ack_ms: int = 10_000
    """How long a dispatched operator has to acknowledge before the session is dispatched again; 0: no limit."""
    accept: AcceptPolicy = field(default_factory=AcceptPolicy)
    funds_policy: str = "advisory"
    unfunded_sessions_max: int = 0
    """Open sessions of a payer whose wallet does not cover their holds, where holds are not enforced; 0: no limit."""
    captured_ahead_ms: int = 30_000
    captured_late_ms: int = 10_000
    claim_doubt_ms: int = 15_000
    ask_timeout_s: float = 10.0
    video_timeout_s: float = 10.0


@final
class Deps(Value, kw_only=True):
    """Everything an actor may use."""

    store: Store
    video: VideoBackend
    relations: Relations
    clock: Clock
    ids: Ids
    rng: Rng
    """Jitter of backoffs; never a secret."""
    limits: ActorLimits
    watchers: Watchers
    owned: OwnedShards
    """The shards of this process."""
    on_settlement: Callable[[], None]
    """Called after a settlement was composed."""
    escrow: Escrow | None = None
    """Opens holds before sessions start; None unless the funds policy is escrow."""
    payment_hold: PaymentHold = field(default_factory=PaymentHold)
    """Whether new sessions are held, because payments on the chain are not in the database."""
    media_proved: dict[str, None] = field(default_factory=dict)
    """Sessions of this process with media since the last checkpoint, in order of arrival."""
    event_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Recorded events of sessions since the start, by kind and reason; for metrics."""
