"""Streams: tickets, the data of events that is not described elsewhere, and the events of each kind of stream."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel, Field

from sightline.actors.service.live_updates import ClosedAssignment, ClosedRequest
from sightline.domain.session.status import LocationStatus
from sightline.http.schemas.base import Input, Instant, Output, Uuid, coordinate, iso
from sightline.http.schemas.sessions import Meter, Session
from sightline.http.schemas.workspaces import Workspace


class SessionLocation(Output):
    """The last plausible position of the operator's device in a LIVE session."""

    session_id: Uuid
    lat: float
    lng: float
    accuracy_meters: float
    captured_at: Instant = Field(description="By the device's clock; the time of receipt if the device sent none")
    received_at: Instant
    in_geofence: bool | None = Field(description="null while the position proves neither")


class StreamTicketBody(Input):
    """Which stream the ticket is for."""

    AREA = "ticket"
    REFUSES_MISSPELT = True

    path: str = Field(
        min_length=1,
        max_length=256,
        pattern=r"^/api/v1/[!-~]+$",
        description="Path of the stream, without query",
        json_schema_extra={"examples": ["/api/v1/sessions/0a000000-0000-4000-8000-000000000003/events"]},
    )


class StreamTicket(Output):
    """A ticket for one stream."""

    ticket: str = Field(description="Add it to the URL of the stream: `?ticket=`")
    expires_at: Instant


class AssignmentClosed(Output):
    """A session that was announced as an assignment and that the workspace no longer operates."""

    session_id: Uuid


class RequestClosed(Output):
    """A request that was announced and can no longer be accepted."""

    session_id: Uuid


SESSION_EVENTS: Final[Mapping[str, type[BaseModel]]] = MappingProxyType(
    {"session": Session, "meter": Meter, "location": SessionLocation}
)
"""Event name to the model of its data, on the stream of a session."""
WORKSPACE_EVENTS: Final[Mapping[str, type[BaseModel]]] = MappingProxyType(
    {
        "workspace": Workspace,
        "assignment": Session,
        "assignmentClosed": AssignmentClosed,
        "session": Session,
        "request": Session,
        "requestClosed": RequestClosed,
    }
)
"""Event name to the model of its data, on the stream of a workspace."""


def session_location_json(status: LocationStatus) -> dict[str, object]:
    """Present a position as `SessionLocation`."""
    fix = status.fix
    return {
        "sessionId": status.session_id,
        "lat": coordinate(fix.lat),
        "lng": coordinate(fix.lng),
        "accuracyMeters": fix.accuracy_m,
        "capturedAt": iso(fix.taken_at_ms),
        "receivedAt": iso(fix.at_ms),
        "inGeofence": status.is_in_geofence,
    }


def assignment_closed_json(closed: ClosedAssignment) -> dict[str, object]:
    """Present a closed assignment as `AssignmentClosed`."""
    return {"sessionId": closed.session_id}


def request_closed_json(closed: ClosedRequest) -> dict[str, object]:
    """Present a closed request as `RequestClosed`."""
    return {"sessionId": closed.session_id}
