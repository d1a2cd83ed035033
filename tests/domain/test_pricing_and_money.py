"""What a second costs, and how a charge is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.addresses import parse_address
from sightline.domain.metering import charge
from sightline.domain.pricing import Quote, price
from sightline.domain.settlement import fee_of
from sightline.domain.units import SEQUENCE_MAX, MicroUsdc, floor_div, round_half_up_div, usdc_text
from tests.domain.builders import T0

BASE = MicroUsdc(1000)


@pytest.mark.parametrize(
    ("supply", "factor_bps"),
    [(0, 12_500), (1, 11_875), (2, 11_250), (3, 10_625), (4, 10_000), (5, 9_375), (6, 8_750), (7, 8_125), (8, 8_000)],
)
def test_supply_makes_a_second_dearer_or_cheaper_in_steps_of_625(supply, factor_bps):
    assert price(BASE, supply=supply, demand=0).supply_bps == factor_bps


@pytest.mark.parametrize(
    ("demand", "supply", "factor_bps"),
    [
        (0, 0, 10_000),
        (4, 4, 10_000),
        (1, 0, 12_000),
        (2, 0, 14_000),
        (3, 0, 16_000),
        (9, 0, 16_000),
        (2, 1, 12_000),
        (3, 2, 11_000),
        # floor(2000 x 1 / 3) = 666, floored to steps of 500.
        (4, 3, 10_500),
        # 2000 x 3 / 4 = 1500.
        (7, 4, 11_500),
        # floor(2000 x 1 / 5) = 400, below one step.
        (6, 5, 10_000),
        # floor(2000 x 500 / 2001) = 499, just below one step.
        (2_501, 2_001, 10_000),
    ],
)
def test_demand_counts_only_beyond_supply_and_in_steps_of_500(demand, supply, factor_bps):
    assert price(BASE, supply=supply, demand=demand).demand_bps == factor_bps


@pytest.mark.parametrize(
    ("corridor_bps", "kept"), [(10_000, 10_000), (4_999, 5_000), (5_000, 5_000), (30_000, 30_000), (30_001, 30_000)]
)
def test_the_corridor_is_kept_within_its_bounds(corridor_bps, kept):
    assert price(BASE, supply=4, demand=0, corridor_bps=corridor_bps).corridor_bps == kept


@pytest.mark.parametrize(
    ("base", "supply", "demand", "corridor_bps", "rate"),
    [
        (1000, 4, 0, 10_000, 1000),
        (1000, 0, 0, 10_000, 1250),
        (1000, 0, 3, 30_000, 6000),
        (1000, 8, 0, 5_000, 400),
        # 1 x 1.25 x 1.2 = 1.5 rounds up, 1 x 1.1875 x 1.2 = 1.425 down.
        (1, 0, 1, 10_000, 2),
        (1, 1, 2, 10_000, 1),
        # Never free.
        (0, 4, 0, 10_000, 1),
        (1, 8, 0, 5_000, 1),
    ],
)
def test_the_rate_is_the_product_rounded_half_up_and_at_least_one(base, supply, demand, corridor_bps, rate):
    assert price(MicroUsdc(base), supply=supply, demand=demand, corridor_bps=corridor_bps).rate == rate


@given(
    base=st.integers(1, 10**9),
    supply=st.integers(0, 1000),
    demand=st.integers(0, 1000),
    corridor_bps=st.integers(0, 40_000),
    duration_s=st.integers(1, 14_400),
)
def test_a_quote_is_reproducible_from_the_factors_it_shows(base, supply, demand, corridor_bps, duration_s):
    spot = price(MicroUsdc(base), supply=supply, demand=demand, corridor_bps=corridor_bps)
    quote = Quote(
        id="q",
        workspace_id="w",
        lat=0.0,
        lng=0.0,
        duration_s=duration_s,
        price=spot,
        available_operators=supply,
        created_at_ms=T0,
        expires_at_ms=T0 + 120_000,
    )
    product = spot.base_rate * spot.supply_bps * spot.demand_bps * spot.corridor_bps
    rate = max(1, round_half_up_div(product, 10**12))
    assert spot.rate == rate
    assert quote.estimated_total == rate * duration_s


ABOVE_FLOATS = 2**53 + 1
"""The smallest whole number that a float cannot hold."""


def test_rate_charge_and_fee_are_computed_in_whole_numbers():
    neutral = price(MicroUsdc(ABOVE_FLOATS), supply=4, demand=0)
    assert neutral.rate == ABOVE_FLOATS
    assert charge(1, MicroUsdc(ABOVE_FLOATS), MicroUsdc(ABOVE_FLOATS)) == ABOVE_FLOATS
    assert charge(3, MicroUsdc(ABOVE_FLOATS), MicroUsdc(3 * ABOVE_FLOATS)) == 3 * ABOVE_FLOATS
    assert fee_of(MicroUsdc(ABOVE_FLOATS), 10_000) == ABOVE_FLOATS
    # 2 x 1.25 = 2.5: Python's round() would give the even neighbour, 2.
    assert price(MicroUsdc(2), supply=0, demand=0).rate == 3


@pytest.mark.parametrize(
    ("charged", "fee_bps", "fee"),
    [(0, 1500, 0), (1, 1500, 0), (6, 1500, 0), (7, 1500, 1), (600_000, 1500, 90_000), (999, 0, 0), (999, 10_000, 999)],
)
def test_the_fee_is_rounded_down(charged, fee_bps, fee):
    assert fee_of(MicroUsdc(charged), fee_bps) == fee


@given(st.integers(0, 10**30), st.integers(0, 10_000))
def test_fee_and_payout_make_up_the_charge(charged, fee_bps):
    fee = fee_of(MicroUsdc(charged), fee_bps)
    assert 0 <= fee <= charged


@given(st.integers(0, 14_400), st.integers(1, 10**12), st.integers(0, 14_400))
def test_a_charge_is_seconds_times_rate_within_the_hold(seconds, rate, more):
    assert charge(seconds, MicroUsdc(rate), MicroUsdc(rate * (seconds + more))) == seconds * rate


def test_a_charge_above_the_hold_is_our_own_bug():
    with pytest.raises(AssertionError):
        charge(2, MicroUsdc(10), MicroUsdc(19))


@pytest.mark.parametrize(("numerator", "floor", "half_up"), [(0, 0, 0), (4, 0, 0), (5, 0, 1), (14, 1, 1), (15, 1, 2)])
def test_roundings_are_what_their_names_say(numerator, floor, half_up):
    assert floor_div(numerator, 10) == floor
    assert round_half_up_div(numerator, 10) == half_up


@pytest.mark.parametrize("divide", [floor_div, round_half_up_div])
def test_only_non_negative_numbers_are_divided_and_only_by_positive_ones(divide):
    assert divide(0, 1) == 0
    for numerator, denominator in ((-1, 1), (1, 0), (1, -1)):
        with pytest.raises(AssertionError):
            divide(numerator, denominator)


def test_the_largest_sequence_is_the_largest_integer_that_every_json_reader_keeps():
    assert float(SEQUENCE_MAX) == SEQUENCE_MAX == 2**53 - 1


def test_a_wallet_address_is_read_in_any_case_and_shown_with_its_checksum():
    shown = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
    assert parse_address(shown.lower()) == parse_address("0x" + shown[2:].upper()) == shown
    assert parse_address(shown[:-1]) is None
    assert parse_address(shown + "0") is None


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "0"), (5_000_000, "5"), (100_000_000, "100"), (8_420, "0.00842"), (1_234_500_000, "1,234.5"), (1, "0.000001")],
)
def test_an_amount_for_people_has_no_zeros_at_its_end_but_those_of_whole_usdc(micro, text):
    assert usdc_text(micro) == text
