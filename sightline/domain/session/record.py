"""The hash chain over a session's recorded events: it shows any later change of what was metered."""

import hashlib
import json
from collections.abc import Sequence

from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import Session
from sightline.domain.value import replace


def event_hash(previous: str, session_id: str, sequence: int, event: Event) -> str:
    """Return the hash of an event: SHA-256, in hex, over the previous hash and the event as canonical JSON.

    Canonical JSON: an array `[previous, sessionId, sequence, kind, atMs, [[name, value], ...]]` without spaces, with
    every character outside ASCII written as a lower-case `\\uXXXX` escape. `previous` is "" for the first event.
    """
    body = [previous, session_id, sequence, event.kind.value, event.at_ms, event.facts]
    return hashlib.sha256(json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()


def chain(session: Session, events: Sequence[Event]) -> tuple[Session, list[tuple[int, Event, str]]]:
    """Append events to the session's chain.

    Returns:
        The session with its new head, and (sequence, event, hash) for each event.
    """
    head, count, ended_head = session.head_hash, session.events, session.ended_head_hash
    recorded: list[tuple[int, Event, str]] = []
    for event in events:
        count += 1
        head = event_hash(head, session.id, count, event)
        recorded.append((count, event, head))
        if event.kind is EventKind.ENDED:
            ended_head = head
    return replace(session, head_hash=head, events=count, ended_head_hash=ended_head), recorded
