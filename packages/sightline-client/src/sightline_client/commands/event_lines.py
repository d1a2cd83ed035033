"""One line of text for each event of `sightline listen`: what happened, and to which session."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sightline_client.commands.printing import end_text, pause_text, time_text
from sightline_client.models import Meter, Session, SessionLocation, Workspace

if TYPE_CHECKING:
    from sightline_client import Event

SESSIONS_KEPT: Final = 1_000
"""Sessions of the newest events whose state before is known; also of those that are over, which are paid later."""
LINES_KEPT: Final = 1_000
"""Newest lines that are compared with the next one about the same thing."""


class EventLines:
    """Describes events. An event has the state after a change; what changed is found by the session's state before."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()
        """The line that was made last, by the event's name and what it is about."""

    def line(self, event: "Event") -> str | None:
        """Return the line of an event; None if nothing that the line shows changed."""
        named = str(event.data.get("sessionId", event.data.get("id", "")))
        before = self._known.get(named) if isinstance(event.value, Session) else None
        said = list(self._said(event))
        line = "  ".join(part for part in (f"{event.name:<9}", named, ", ".join(said)) if part).rstrip()
        last, self._last[event.name, named] = self._last.pop((event.name, named), None), line
        if len(self._last) > LINES_KEPT:
            self._last.popitem(last=False)
        says_only_the_state = before is not None and said == [str(before.state)]
        return None if line == last or says_only_the_state else line

    def _said(self, event: "Event") -> Iterator[str]:
        match event.value:
            case Session() as session:
                yield from self._changes(session)
            case Meter() as meter:
                if meter.meter_state is not None:
                    yield str(meter.meter_state)
                yield f"{meter.clean_seconds} s"
                yield f"{meter.accrued_micro_usdc.usdc} USDC"
            case SessionLocation() as place:
                yield f"{place.lat} {place.lng}"
                if place.in_geofence is not None:
                    yield "inside the geofence" if place.in_geofence else "outside of the geofence"
            case Workspace() as workspace:
                yield workspace.slug
                if "SUPPLIER" in workspace.roles:
                    yield str(workspace.availability_state)
            case _:
                return

    def _changes(self, session: Session) -> Iterator[str]:
        before = self._known.pop(session.id, None)
        self._known[session.id] = session
        if len(self._known) > SESSIONS_KEPT:
            self._known.popitem(last=False)
        yield str(session.state)
        if session.end_reason is not None:
            yield end_text(session)
        if session.state.is_over and session.settlement_tx_hash is not None:
            yield f"{'paid' if session.charged_micro_usdc else 'settled'} in {session.settlement_tx_hash}"
        if session.pause_reason is not None:
            yield f"paused: {pause_text(str(session.pause_reason))}"
        elif before is not None and before.pause_reason is not None and not session.state.is_over:
            yield "no longer paused"
        if before is not None and session.max_duration_seconds > before.max_duration_seconds:
            until = "" if session.expires_at is None else f", until {time_text(session.expires_at)}"
            yield f"extended to {session.max_duration_seconds} s{until}"
        if before is None and session.state.is_over:
            return  # what was said and shown is not news
        earlier = {} if before is None else {message.number: message for message in before.messages}
        last = max(earlier, default=0)
        for message in session.messages:
            if message.number > last:
                yield f"message {message.number}: {message.text}"
            if message.shown and not (message.number in earlier and earlier[message.number].shown):
                yield f"the operator's device has shown message {message.number}"
