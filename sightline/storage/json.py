"""Stored JSON. Integers above 64 bits are refused, not rounded."""

from typing import Any

import orjson


def dump(value: object) -> str:
    """The JSON text of a JSON-ready value.

    Raises:
        TypeError: It is not JSON-ready.
    """
    return orjson.dumps(value).decode()


def load(text: str) -> Any:
    """The value of a stored JSON text."""
    return orjson.loads(text)
