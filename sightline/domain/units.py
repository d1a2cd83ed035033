"""Units and limits that every room shares. Amounts are whole micro-USDC, instants are epoch milliseconds."""

from typing import Final, NewType

MicroUsdc = NewType("MicroUsdc", int)
"""Millionths of a USDC; one base unit of the token."""

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

SEQUENCE_MAX: Final = 9_007_199_254_740_991
"""Largest heartbeat sequence: 2**53 - 1, the largest integer every JSON reader keeps exact."""


def usdc_text(micro: int) -> str:
    """Micro-USDC as USDC for people, without zeros at the end: 1,234.5."""
    return usdc_decimals(micro).rstrip("0").rstrip(".")


def usdc_decimals(micro: int) -> str:
    """Micro-USDC as USDC with all six decimals, for columns of amounts: 1,234.500000."""
    whole, rest = divmod(micro, 1_000_000)
    return f"{whole:,}.{rest:06}"


def floor_div(numerator: int, denominator: int) -> int:
    """Divide non-negative integers, rounding down."""
    assert numerator >= 0
    assert denominator > 0
    return numerator // denominator


def ceil_div(numerator: int, denominator: int) -> int:
    """Divide non-negative integers, rounding up."""
    assert numerator >= 0
    assert denominator > 0
    return -(-numerator // denominator)


def round_half_up_div(numerator: int, denominator: int) -> int:
    """Divide non-negative integers, rounding halves up."""
    assert numerator >= 0
    assert denominator > 0
    return (2 * numerator + denominator) // (2 * denominator)
