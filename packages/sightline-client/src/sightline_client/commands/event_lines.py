"""One line of text for each event of `sightline listen`: what happened, and to which session."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sightline_client.commands.printing import end_text, pause_text, time_text
from sightline_client.models import Meter, Session, SessionLocation, Workspace

if TYPE_CHECKING:
    from sightline_client import Event


class EventLines:
    """Describes events. An event has the state after a change; what changed is found by the session's state before."""

    def __init__(self) -> None:
        self._known: dict[str, Session] = {}
        self._workspaces: dict[str, str] = {}
        """The line that was returned last, by id of the workspace."""

    def line(self, event: "Event") -> str | None:
        """Return the line of an event; None for a workspace of which nothing that the line shows changed."""
        line = self._line(event)
        if isinstance(event.value, Workspace):
            before, self._workspaces[event.value.id] = self._workspaces.get(event.value.id), line
            return None if line == before else line
        return line

    def _line(self, event: "Event") -> str:
        named = event.data.get("sessionId", event.data.get("id", ""))
        return "  ".join(part for part in (f"{event.name:<9}", named, ", ".join(self._said(event))) if part).rstrip()

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
        if not session.state.is_over:
            self._known[session.id] = session
        yield str(session.state)
        if session.end_reason is not None:
            yield end_text(session)
        if session.pause_reason is not None:
            yield f"paused: {pause_text(str(session.pause_reason))}"
        elif before is not None and before.pause_reason is not None and not session.state.is_over:
            yield "no longer paused"
        if before is not None and session.max_duration_seconds > before.max_duration_seconds:
            until = "" if session.expires_at is None else f", until {time_text(session.expires_at)}"
            yield f"extended to {session.max_duration_seconds} s{until}"
        last = before.messages[-1].number if before is not None and before.messages else 0
        for message in session.messages:
            if message.number > last:
                yield f"message {message.number}: {message.text}"
