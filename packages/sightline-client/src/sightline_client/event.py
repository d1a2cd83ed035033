"""Values of the event streams."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sightline_client.models import AssignmentClosed, Meter, RequestClosed, Session, SessionLocation, Workspace

Value: TypeAlias = Session | Meter | SessionLocation | Workspace | AssignmentClosed | RequestClosed

MODELS: Final[Mapping[str, type[Value]]] = {
    "session": Session,
    "assignment": Session,
    "assignmentClosed": AssignmentClosed,
    "meter": Meter,
    "location": SessionLocation,
    "workspace": Workspace,
    "request": Session,
    "requestClosed": RequestClosed,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        id: Number of the event; it continues after a lost connection.
        name: For a session `session`, `meter` or `location`; for a workspace `workspace`, `session`, `assignment`,
            `assignmentClosed`, `request` or `requestClosed`. A newer server may send others.
        value: The value after the change; None if the name is unknown to this version.
        data: The value as JSON.
    """

    id: int
    name: str
    value: Value | None
    data: dict[str, Any] = field(repr=False)
