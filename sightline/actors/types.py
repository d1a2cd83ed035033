"""What callers of the actors say and get: plain values, no HTTP in them."""

from dataclasses import dataclass
from typing import NamedTuple, final

from sightline.domain.geofence import Fix
from sightline.domain.operator.model import WorkspaceRole
from sightline.domain.session.messages import Party
from sightline.domain.session.model import Session, SessionState
from sightline.domain.views import View
from sightline.ports.store import IdempotencyKey, SessionKey, SessionView


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a command is given, and the key that makes a repeat of it the same command."""

    workspace_id: str
    idempotency: IdempotencyKey | None = None


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What a command is answered: `data` of the envelope, and its timestamp. A replay gives both again."""

    data: View
    at_ms: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A request for a session, bounds checked, coordinates rounded."""

    lat: float
    lng: float
    max_duration_s: int
    wait_timeout_s: int
    quote_id: str | None
    radius_m: int
    instructions: str | None
    metadata_json: str | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkspace:
    """A workspace to be created, its wallet proved."""

    wallet_address: str
    slug: str
    name: str
    roles: tuple[WorkspaceRole, ...]


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
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListing:
    """A page of sessions that a workspace asks for. `view` None: all it is party to."""

    view: SessionView | None
    limit: int
    states: frozenset[SessionState] = frozenset()
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    after: SessionKey | None = None


@final
@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page, newest first; `next` is None at the end."""

    items: list[View]
    next: SessionKey | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFeed:
    """A LIVE session's feed as the frame endpoint needs it."""

    session: Session
    video_ref: str
    whep_url: str
    meter_state: str
    is_in_geofence: bool | None
    last_fix: Fix | None
    sides: frozenset[Party]
