"""Where a device is against where it should be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.geofence import (
    EARTH_RADIUS_M,
    DeviceKind,
    Fence,
    FenceLimits,
    Fix,
    Ring,
    Track,
    distance_m,
    is_implausible,
)
from sightline.domain.session.machine import fence_of
from sightline.domain.value import replace
from tests.domain.builders import LAT, LIMITS, LNG, T0, a_fix, an_operator, terms

NUMBERS = FenceLimits()
HERE = a_fix(T0)

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)


@pytest.mark.parametrize(
    ("ends", "metres"),
    [
        ((0, 0, 0, 0), 0.0),
        ((0, 0, 0, 1), 111_195.08),
        ((0, 0, 1, 0), 111_195.08),
        ((60, 0, 60, 1), 55_597.0),
        ((0, 179.5, 0, -179.5), 111_195.08),
        ((90, 0, -90, 0), 20_015_114.4),
    ],
)
def test_distance_is_the_haversine_on_the_mean_radius(ends, metres):
    assert distance_m(*ends) == pytest.approx(metres, rel=1e-4, abs=0.01)


@given(latitudes, longitudes, latitudes, longitudes)
def test_distance_agrees_with_the_angle_between_unit_vectors(lat_a, lng_a, lat_b, lng_b):
    def vector(lat, lng):
        phi, lam = math.radians(lat), math.radians(lng)
        return (math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi))

    a, b = vector(lat_a, lng_a), vector(lat_b, lng_b)
    chord = math.dist(a, b)
    expected = 2 * EARTH_RADIUS_M * math.asin(min(1.0, chord / 2))
    assert distance_m(lat_a, lng_a, lat_b, lng_b) == pytest.approx(expected, abs=0.5)


@given(latitudes, longitudes, latitudes, longitudes)
def test_distance_is_symmetric_and_at_most_half_the_globe(lat_a, lng_a, lat_b, lng_b):
    there, back = distance_m(lat_a, lng_a, lat_b, lng_b), distance_m(lat_b, lng_b, lat_a, lng_a)
    assert there == pytest.approx(back, abs=1e-6)
    assert 0 <= there <= 20_015_115


@pytest.mark.parametrize(
    ("radius_m", "away_m", "accuracy_m", "ring"),
    [
        (500, 0, 5, Ring.INSIDE),
        (500, 499.9, 5, Ring.INSIDE),
        (500, 500.1, 5, Ring.BETWEEN),
        # Exit ring: d - min(accuracy, 50) > R + max(20, 0.1 R) = 550.
        (500, 554.9, 5, Ring.BETWEEN),
        (500, 555.1, 5, Ring.OUTSIDE),
        (500, 599.9, 50, Ring.BETWEEN),
        (500, 600.1, 50, Ring.OUTSIDE),
        # Accuracy counts for 50 m at most.
        (500, 600.1, 100, Ring.OUTSIDE),
        # A small fence has a margin of 20 m.
        (50, 74.9, 5, Ring.BETWEEN),
        (50, 75.1, 5, Ring.OUTSIDE),
        # Over 100 m of accuracy nothing is proved.
        (500, 0, 100.1, Ring.UNKNOWN),
        (500, 5000, 100.1, Ring.UNKNOWN),
    ],
)
def test_the_rings_of_the_fence(radius_m, away_m, accuracy_m, ring):
    fence = Fence(lat=LAT, lng=LNG, radius_m=radius_m)
    assert fence.ring(a_fix(T0, north_m=away_m, accuracy_m=accuracy_m), NUMBERS) is ring


def test_a_position_that_is_no_proof_says_nothing_about_the_fence():
    fence = Fence(lat=LAT, lng=LNG, radius_m=500)
    assert fence.ring(a_fix(T0, is_proof=False), NUMBERS) is Ring.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "centre", "radius_m"),
    [
        (DeviceKind.PHONE, (LAT, LNG), 500),
        (DeviceKind.LAPTOP, (LAT, LNG), 500),
        (DeviceKind.DRONE, (LAT, LNG), 500),
        (DeviceKind.OTHER, (LAT, LNG), 500),
        (DeviceKind.PTZ, (10.0, 20.0), 100),
        (DeviceKind.FIXED, (10.0, 20.0), 100),
    ],
)
def test_mobile_devices_stay_at_the_requested_point_and_mounted_ones_at_their_coverage(kind, centre, radius_m):
    operator = an_operator(kind, coverage_lat=10.0, coverage_lng=20.0)
    fence = fence_of(terms(), operator, LIMITS)
    assert ((fence.lat, fence.lng), fence.radius_m) == (centre, radius_m)


@pytest.mark.parametrize(
    ("kind", "limit_mps"),
    [
        (DeviceKind.PHONE, 70),
        (DeviceKind.LAPTOP, 70),
        (DeviceKind.OTHER, 70),
        (DeviceKind.DRONE, 40),
        (DeviceKind.FIXED, 3),
        (DeviceKind.PTZ, 3),
    ],
)
def test_the_speed_limit_of_each_device(kind, limit_mps):
    limit = NUMBERS.speed_limit_mps(kind)
    assert limit == limit_mps
    start = a_fix(T0)
    assert not is_implausible(start, a_fix(T0 + 2_000, north_m=2 * limit_mps - 0.5), limit)
    assert is_implausible(start, a_fix(T0 + 2_000, north_m=2 * limit_mps + 0.5), limit)


def test_fixes_of_one_instant_count_as_a_second_apart():
    assert not is_implausible(a_fix(T0), a_fix(T0, north_m=69), 70)
    assert is_implausible(a_fix(T0), a_fix(T0, north_m=71), 70)


def follow(*fixes: Fix) -> Track:
    track = Track()
    for fix in fixes:
        track = track.follow(fix, 70, 3)
    return track


def test_a_jump_is_suspect_and_not_adopted():
    home, jump = a_fix(T0), a_fix(T0 + 2_000, north_m=5_000)
    assert follow(home, jump).adopted is home


def test_three_consistent_fixes_adopt_again():
    home = a_fix(T0)
    away = [a_fix(T0 + 2_000 * step, north_m=5_000 + step) for step in range(1, 4)]
    assert follow(home, *away[:2]).adopted is home
    assert follow(home, *away).adopted is away[2]


def test_suspects_that_disagree_do_not_add_up():
    home = a_fix(T0)
    jumps = [a_fix(T0 + 2_000 * step, north_m=5_000 * step) for step in range(1, 6)]
    assert follow(home, *jumps).adopted is home


def test_a_fix_near_home_clears_the_suspects():
    home, jump = a_fix(T0), a_fix(T0 + 2_000, north_m=5_000)
    back = a_fix(T0 + 4_000, north_m=3)
    track = follow(home, jump, back)
    assert track == Track(adopted=back)


@given(
    radius_m=st.integers(50, 10_000),
    away_m=st.floats(0, 20_000),
    accuracy_m=st.floats(0, 100),
)
def test_whoever_is_inside_is_never_outside_with_a_better_accuracy_or_a_wider_fence(radius_m, away_m, accuracy_m):
    fix = a_fix(T0, north_m=away_m, accuracy_m=accuracy_m)
    fence = Fence(lat=LAT, lng=LNG, radius_m=radius_m)
    if fence.ring(fix, NUMBERS) is Ring.INSIDE:
        assert fence.ring(replace(fix, accuracy_m=0.0), NUMBERS) is Ring.INSIDE
        assert replace(fence, radius_m=radius_m * 2).ring(fix, NUMBERS) is Ring.INSIDE


def test_a_quarter_of_a_great_circle_has_the_length_that_the_mean_radius_gives():
    # A quarter of 2 pi times 6,371,008.8 m.
    assert abs(distance_m(0, 0, 90, 0) - 10_007_557.22) < 0.1


def test_the_edge_of_the_fence_is_inside_and_the_edge_of_the_exit_ring_is_not_outside():
    fix = replace(HERE, lat=HERE.lat + 0.01, accuracy_m=5.0)
    away_m = distance_m(HERE.lat, HERE.lng, fix.lat, fix.lng)
    no_margin = FenceLimits(exit_margin_m=0.0, exit_margin_ratio=0.0)
    edge = Fence(lat=HERE.lat, lng=HERE.lng, radius_m=away_m)
    assert edge.ring(fix, no_margin) is Ring.INSIDE
    assert replace(edge, radius_m=away_m - 5.0).ring(fix, no_margin) is Ring.BETWEEN
    assert replace(edge, radius_m=away_m - 5.001).ring(fix, no_margin) is Ring.OUTSIDE


def test_a_device_may_move_as_fast_as_its_limit():
    away_m = distance_m(HERE.lat, HERE.lng, HERE.lat + 0.01, HERE.lng)
    later = replace(HERE, lat=HERE.lat + 0.01, taken_at_ms=HERE.taken_at_ms + 2_000)
    assert not is_implausible(HERE, later, away_m / 2)
    assert is_implausible(HERE, later, away_m / 2 - 0.001)


@pytest.mark.parametrize("lat", [-82.0, -12.0, -8.0, 0.0, 8.0, 12.0])
def test_opposite_points_of_the_earth_are_half_its_circumference_apart(lat):
    assert distance_m(lat, 0.0, -lat, 180.0) == pytest.approx(math.pi * EARTH_RADIUS_M)


@pytest.mark.parametrize("seconds", [1, 3, 7, 11, 64, 3_600])
@pytest.mark.parametrize("since_ms", [0, 1, 999, 512_345])
def test_the_time_between_two_fixes_decides_how_far_a_device_may_have_moved(seconds, since_ms):
    start = a_fix(T0 + since_ms)
    reached = a_fix(T0 + since_ms + seconds * 1_000, north_m=70 * seconds * 0.99)
    beyond = a_fix(T0 + since_ms + seconds * 1_000, north_m=70 * seconds * 1.01)
    assert not is_implausible(start, reached, 70)
    assert is_implausible(start, beyond, 70)
