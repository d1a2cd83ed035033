"""Amounts of money: whole micro-USDC, never floats."""

from decimal import Decimal, InvalidOperation
from typing import Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from sightline_client.errors import InvalidArgumentError

MICRO = 1_000_000


class MicroUsdc(int):
    """An amount in micro-USDC (10^-6 USDC). An int in every calculation; `.usdc` is the amount in USDC."""

    @property
    def usdc(self) -> Decimal:
        """The amount in USDC, exact."""
        return Decimal(int(self)) / MICRO

    def __repr__(self) -> str:
        return f"MicroUsdc({int(self)})"

    def __str__(self) -> str:
        return str(int(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Self], handler: GetCoreSchemaHandler) -> CoreSchema:
        as_text = core_schema.to_string_ser_schema(when_used="json")  # as in the HTTP interface
        return core_schema.no_info_after_validator_function(cls, core_schema.int_schema(ge=0), serialization=as_text)


def require_whole_micro_usdc(name: str, value: object) -> None:
    """Refuse an argument that is not a whole amount of micro-USDC, such as 0.5 for half a USDC.

    Raises:
        InvalidArgumentError: It is a float or another type, or negative.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InvalidArgumentError(
            f'{name}={value!r} is not a whole number of micro-USDC. For half a USDC pass {name}=usdc("0.50").'
        )


def usdc(amount: str | int | Decimal) -> MicroUsdc:
    """Convert an amount in USDC, for example "0.50".

    Raises:
        InvalidArgumentError: It is a float, the text is no number, or the amount is negative, infinite or has more than
            six decimals.
    """
    if isinstance(amount, float):
        raise InvalidArgumentError(f'{amount} is a float, which is not exact. Write it as text: usdc("{amount}").')
    try:
        micro = Decimal(amount) * MICRO
    except InvalidOperation:
        micro = Decimal("NaN")
    if not micro.is_finite() or micro < 0 or micro != micro.to_integral_value():
        raise InvalidArgumentError(
            f"{amount} is not an amount of USDC: at least 0, with at most six decimals, such as 0.50."
        )
    return MicroUsdc(micro)
