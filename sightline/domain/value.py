"""Dataclasses of values that are made for each call.

`@dataclass(frozen=True)` sets each field by `object.__setattr__`: a value of 17 fields takes 3 us, five times as long
as a plain dataclass. `value` makes a plain dataclass that only the type checker treats as frozen (ADR 0071). Use it
where a measurement shows the difference, and `dataclass(frozen=True)` everywhere else.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(made: type[T]) -> type[T]:
    """Make a dataclass with slots, equality and hash by its fields. mypy refuses to assign to a field."""
    return dataclass(slots=True, unsafe_hash=True)(made)
