"""Cursors: where a page ended. They name a place, not a page, so rows that come later move nothing.

Each list has a form of its own, which its query checks by the pattern: what is not one of its cursors is refused there.
"""

from typing import Final

from sightline.ports.store import SessionKey

_NUMBER: Final = "(0|[1-9][0-9]{0,14})"
SESSION_CURSOR: Final = rf"^s1-{_NUMBER}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$"
LEDGER_CURSOR: Final = rf"^w1-{_NUMBER}$"
EVENT_CURSOR: Final = rf"^e1-{_NUMBER}$"
DELIVERY_CURSOR: Final = rf"^d1-{_NUMBER}$"
_SEQUENCE_MAX: Final = 2**31 - 1
"""Sequences of events are stored as 32-bit integers."""


def session_cursor(key: SessionKey) -> str:
    """Name a place in a list of sessions."""
    return f"s1-{key.created_at_ms}-{key.id}"


def read_session_cursor(text: str) -> SessionKey:
    """The place that a cursor of the form SESSION_CURSOR names."""
    _, at_ms, session_id = text.split("-", 2)
    return SessionKey(int(at_ms), session_id)


def ledger_cursor(sequence: int) -> str:
    """Name a place in a wallet's ledger."""
    return f"w1-{sequence}"


def event_cursor(sequence: int) -> str:
    """Name a place in the recorded events of a session."""
    return f"e1-{sequence}"


def read_event_cursor(text: str) -> int:
    """Return the sequence that a cursor of the form EVENT_CURSOR names."""
    return min(read_number(text), _SEQUENCE_MAX)


def delivery_cursor(number: int) -> str:
    """Name a place in the list of a webhook endpoint's deliveries."""
    return f"d1-{number}"


def read_number(text: str) -> int:
    """The number of a cursor of the form LEDGER_CURSOR or DELIVERY_CURSOR."""
    return int(text.partition("-")[2])
