"""JSON as RFC 8259 with nothing left to chance: one meaning, or refused.

Refused are invalid UTF-8, NaN and Infinity, lone surrogates, numbers beyond a double, deep nesting, and an object
that names a field twice, since two readers would read two things.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

import orjson

from sightline.domain.refusal import Code
from sightline.http.pipeline.errors import ApiError

_DEPTH_MAX: Final = 32
_KEY_END: Final = re.compile(rb'"[ \t\r\n]*:')
_BAD = "body:json"


def parse_json(raw: bytes) -> object:
    """The value of a JSON text.

    Raises:
        ApiError: INVALID_INPUT `body:json`.
    """
    try:
        value: object = orjson.loads(raw)  # refuses NaN, Infinity, and numbers beyond a double
    except orjson.JSONDecodeError as error:
        raise ApiError(Code.INVALID_INPUT, _BAD, "The body is not valid JSON") from error
    # A key's closing quote and colon may also stand inside a string, never the other way round. So equal counts
    # prove that no key came twice, and only the rest pays for the slow reading.
    if _count_keys(value, 0) != len(_KEY_END.findall(raw)):
        _refuse_duplicates(raw)
    return value


def _count_keys(value: object, depth: int) -> int:
    if depth > _DEPTH_MAX:
        raise ApiError(Code.INVALID_INPUT, _BAD, "The body is nested too deeply")
    count = 0
    items: Iterable[object]
    if isinstance(value, dict):
        count = len(value)
        items = value.values()
    elif isinstance(value, list):
        items = value
    else:
        items = (value,)
    for each in items:
        kind = type(each)  # orjson makes no subclasses
        if kind is dict or kind is list:
            count += _count_keys(each, depth + 1)
    return count


def _refuse_duplicates(raw: bytes) -> None:
    def collect(pairs: list[tuple[str, object]]) -> None:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ApiError(Code.INVALID_INPUT, _BAD, "The body names a field twice")

    json.loads(raw, object_pairs_hook=collect)
