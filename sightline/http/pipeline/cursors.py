"""Cursors: where a page ended, as opaque text. They name a place, not a page, so rows that come later move nothing."""

import base64
import binascii
import re
from typing import Final

import orjson

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.ports.store import SessionKey

_BAD: Final = Refusal(Code.INVALID_INPUT, "pagination:cursor", "The cursor is not one of this list")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII)
_LENGTH_MAX: Final = 256
_NUMBER_MAX: Final = 2**53
_SEQUENCE_MAX: Final = 2**31 - 1
"""Sequences of events are stored as 32-bit integers."""
_SESSIONS: Final = "s1"
_LEDGER: Final = "w1"
_DELIVERIES: Final = "d1"
_EVENTS: Final = "e1"


def session_cursor(key: SessionKey) -> str:
    """Name a place in a list of sessions."""
    return _encode([_SESSIONS, key.created_at_ms, key.id])


def read_session_cursor(text: str) -> SessionKey:
    """The place that a cursor names.

    Raises:
        RefusedError: INVALID_INPUT `pagination:cursor`.
    """
    match _decode(text):
        case [kind, int(at_ms), str(session_id)] if kind == _SESSIONS and _is_number(at_ms):
            if _UUID.fullmatch(session_id):
                return SessionKey(at_ms, session_id)
    raise _bad()


def ledger_cursor(sequence: int) -> str:
    """Name a place in a wallet's ledger."""
    return _encode([_LEDGER, sequence])


def read_ledger_cursor(text: str) -> int:
    """The place that a cursor names.

    Raises:
        RefusedError: INVALID_INPUT `pagination:cursor`.
    """
    return _read_number(_LEDGER, text)


def event_cursor(sequence: int) -> str:
    """Encode a place in the recorded events of a session."""
    return _encode([_EVENTS, sequence])


def read_event_cursor(text: str) -> int:
    """Return the sequence that a cursor names.

    Raises:
        RefusedError: INVALID_INPUT `pagination:cursor`.
    """
    return min(_read_number(_EVENTS, text), _SEQUENCE_MAX)


def delivery_cursor(number: int) -> str:
    """Name a place in the list of a webhook endpoint's deliveries."""
    return _encode([_DELIVERIES, number])


def read_delivery_cursor(text: str) -> int:
    """The place that a cursor names.

    Raises:
        RefusedError: INVALID_INPUT `pagination:cursor`.
    """
    return _read_number(_DELIVERIES, text)


def _read_number(expected: str, text: str) -> int:
    match _decode(text):
        case [kind, int(number)] if kind == expected and _is_number(number):
            return number
    raise _bad()


def _is_number(value: int) -> bool:
    return not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX


def _bad() -> RefusedError:
    return RefusedError(_BAD)


def _encode(place: list[str | int]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(place)).rstrip(b"=").decode("ascii")


def _decode(text: str) -> object:
    if len(text) > _LENGTH_MAX or not text.isascii():
        raise _bad()
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        place: object = orjson.loads(raw)
    except (binascii.Error, ValueError):
        raise _bad() from None
    return place
