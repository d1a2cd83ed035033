"""Where a device is, against where it should be. One distance function for the whole of Sightline."""

import math
from enum import StrEnum
from typing import Final, final

from sightline.domain.value import Value

EARTH_RADIUS_M: Final = 6_371_008.8
"""Mean Earth radius, metres (IUGG)."""


def distance_m(lat_a: float, lng_a: float, lat_b: float, lng_b: float) -> float:
    """Great-circle distance in metres between two points given in degrees (haversine)."""
    phi_a, phi_b = math.radians(lat_a), math.radians(lat_b)
    half_phi = math.sin((phi_b - phi_a) / 2)
    half_lambda = math.sin(math.radians(lng_b - lng_a) / 2)
    chord = half_phi * half_phi + math.cos(phi_a) * math.cos(phi_b) * half_lambda * half_lambda
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, chord)))


class DeviceKind(StrEnum):
    """What an operator films with."""

    PHONE = "PHONE"
    LAPTOP = "LAPTOP"
    DRONE = "DRONE"
    PTZ = "PTZ"
    FIXED = "FIXED"
    OTHER = "OTHER"

    def is_mounted(self) -> bool:
        """Whether the device stands where it was installed."""
        return self in {DeviceKind.PTZ, DeviceKind.FIXED}


@final
class FenceLimits(Value, kw_only=True):
    """The numbers of the fence; every one is a setting."""

    accuracy_slack_m: float = 50.0
    exit_margin_m: float = 20.0
    exit_margin_ratio: float = 0.1
    accuracy_max_m: float = 100.0
    outside_fixes: int = 2
    coarse_fixes: int = 5
    mounted_radius_m: float = 100.0
    speed_max_mps: float = 70.0
    drone_speed_max_mps: float = 40.0
    mounted_speed_max_mps: float = 3.0
    consistent_fixes: int = 3

    def speed_limit_mps(self, device: DeviceKind) -> float:
        """The fastest a device of this kind moves, metres per second."""
        if device.is_mounted():
            return self.mounted_speed_max_mps
        return self.drone_speed_max_mps if device is DeviceKind.DRONE else self.speed_max_mps


@final
class Fix(Value):
    """One reported position. `at_ms` is the receive time; `taken_at_ms` the device's own, else the same."""

    lat: float
    lng: float
    accuracy_m: float
    at_ms: int
    taken_at_ms: int
    is_proof: bool = True
    """False for a position that never proves presence (typed by hand, or mocked, on a mobile device)."""


class Ring(StrEnum):
    """What one fix says about the fence."""

    INSIDE = "INSIDE"
    BETWEEN = "BETWEEN"
    OUTSIDE = "OUTSIDE"
    UNKNOWN = "UNKNOWN"


@final
class Fence(Value, kw_only=True):
    """A circle on the map: centre in degrees, radius in metres."""

    lat: float
    lng: float
    radius_m: float

    def ring(self, fix: Fix, limits: FenceLimits) -> Ring:
        """Place a fix; between the entry and the exit ring nothing changes (hysteresis)."""
        if not fix.is_proof or fix.accuracy_m > limits.accuracy_max_m:
            return Ring.UNKNOWN
        away_m = distance_m(self.lat, self.lng, fix.lat, fix.lng)
        if away_m <= self.radius_m:
            return Ring.INSIDE
        margin_m = max(limits.exit_margin_m, limits.exit_margin_ratio * self.radius_m)
        if away_m - min(fix.accuracy_m, limits.accuracy_slack_m) > self.radius_m + margin_m:
            return Ring.OUTSIDE
        return Ring.BETWEEN


def is_implausible(earlier: Fix, later: Fix, speed_limit_mps: float) -> bool:
    """Whether getting from one fix to the other would take more than the speed limit.

    Fixes of one batch may share an instant: anything under a second counts as a second.
    """
    elapsed_s = max(1.0, (later.taken_at_ms - earlier.taken_at_ms) / 1000)
    return distance_m(earlier.lat, earlier.lng, later.lat, later.lng) / elapsed_s > speed_limit_mps


@final
class Track(Value, kw_only=True):
    """A device's adopted fix, and suspect fixes that may be adopted later."""

    adopted: Fix | None = None
    suspects: tuple[Fix, ...] = ()

    def follow(self, fix: Fix, speed_limit_mps: float, consistent_fixes: int) -> "Track":
        """Take in a fix: adopt it when plausible, else keep it as a suspect.

        Suspects that agree with each other `consistent_fixes` times in a row are adopted: the device did move.
        """
        if self.adopted is None or not is_implausible(self.adopted, fix, speed_limit_mps):
            return Track(adopted=fix)
        agreeing = self.suspects
        if agreeing and is_implausible(agreeing[-1], fix, speed_limit_mps):
            agreeing = ()
        agreeing = (*agreeing, fix)
        if len(agreeing) >= consistent_fixes:
            return Track(adopted=fix)
        return Track(adopted=self.adopted, suspects=agreeing)
