"""A workspace as data. Consumers and operators share one record; what follows concerns operators mostly."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, final

from msgspec import field

from sightline.domain.geofence import DeviceKind, distance_m
from sightline.domain.session.model import Operator
from sightline.domain.value import Value, replace

MAX_START_TIMEOUTS: Final = 3
"""START_TIMEOUTs in a row, on requests of funded consumers, that put the operator OFFLINE."""
MIN_CONSUMERS: Final = 2
"""Different consumers among them: one consumer alone cannot put an operator OFFLINE."""


class WorkspaceRole(StrEnum):
    """What a workspace may be."""

    CONSUMER = "CONSUMER"
    SUPPLIER = "SUPPLIER"


class Availability(StrEnum):
    """Whether the dispatcher may pick an operator."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    BUSY = "BUSY"


@final
class Claim(Value, kw_only=True):
    """A session this operator is tied to. `is_live` from the moment it is being started."""

    session_id: str
    at_ms: int
    is_live: bool = False
    is_dispatched: bool = False
    """Whether the dispatcher made it. A dispatched claim keeps the operator BUSY from the start."""


@final
class Coverage(Value, kw_only=True):
    """The circle an operator serves; degrees and metres."""

    lat: float
    lng: float
    radius_m: float

    def contains(self, lat: float, lng: float) -> bool:
        """Whether the point lies inside."""
        return distance_m(self.lat, self.lng, lat, lng) <= self.radius_m


@final
class Workspace(Value):
    """One workspace and the version of its stored row (0: not stored yet).

    `rest` is the availability that comes back when BUSY is over; equal to `availability` while not BUSY.
    """

    id: str
    slug: str
    name: str
    wallet_address: str
    roles: tuple[WorkspaceRole, ...]
    created_at_ms: int
    created_by_wallet: str
    availability: Availability = Availability.OFFLINE
    rest: Availability = Availability.OFFLINE
    coverage_lat: float | None = None
    coverage_lng: float | None = None
    coverage_radius_m: float | None = None
    device_kind: DeviceKind = DeviceKind.OTHER
    idle_since_ms: int = 0
    unstarted_for: tuple[str, ...] = ()
    """The funded consumers whose sessions were not started in time, in a row; the newest ones, oldest first."""
    claims: Mapping[str, Claim] = field(default_factory=dict)
    last_sequence: int = -1
    """As stored: the reported sequence plus `sequence_base`. Never falls."""
    sequence_base: int = 0
    """Raised above `last_sequence` by each reset of the sequence."""
    last_seen_at_ms: int | None = None
    deleted_at_ms: int | None = None
    version: int = 0
    last_place: tuple[float, float] | None = None
    """Latitude and longitude of the newest heartbeat. Not part of the stored document: the heartbeats have it."""

    def seen(self, sequence: int, at_ms: int, place: tuple[float, float] | None) -> "Workspace":
        """After a heartbeat."""
        return replace(
            self,
            last_sequence=max(self.last_sequence, sequence),
            last_seen_at_ms=max(self.last_seen_at_ms or 0, at_ms),
            last_place=place if sequence >= self.last_sequence else self.last_place,
        )

    @property
    def is_supplier(self) -> bool:
        """Whether it may provide feeds."""
        return WorkspaceRole.SUPPLIER in self.roles

    @property
    def is_consumer(self) -> bool:
        """Whether it may request sessions."""
        return WorkspaceRole.CONSUMER in self.roles

    @property
    def coverage(self) -> Coverage | None:
        """The coverage circle; None (which counts as everywhere) while centre or radius is unset."""
        if self.coverage_lat is None or self.coverage_lng is None or self.coverage_radius_m is None:
            return None
        return Coverage(lat=self.coverage_lat, lng=self.coverage_lng, radius_m=self.coverage_radius_m)

    def covers(self, lat: float, lng: float) -> bool:
        """Whether the point is served; no coverage counts as everywhere."""
        coverage = self.coverage
        return coverage is None or coverage.contains(lat, lng)

    def distance_m(self, lat: float, lng: float) -> int | None:
        """The distance to a point in whole metres: from the newest heartbeat, else from the centre of the coverage."""
        coverage = self.coverage
        place = self.last_place or (None if coverage is None else (coverage.lat, coverage.lng))
        return None if place is None else round(distance_m(*place, lat, lng))

    @property
    def live_session_id(self) -> str | None:
        """The session that is live, if one is."""
        for claim in self.claims.values():
            if claim.is_live:
                return claim.session_id
        return None

    def as_operator(self) -> Operator:
        """What a session freezes of it on assignment."""
        return Operator(
            workspace_id=self.id,
            wallet_address=self.wallet_address,
            device_kind=self.device_kind,
            coverage_lat=self.coverage_lat,
            coverage_lng=self.coverage_lng,
        )
