"""`sightline listen --forward-to`: sends the workspace's events to a local program as signed webhooks.

The messages are made from the event stream and the recorded events of each session, so that no public address is needed
and no event between two states is missed. `wallet.deposit` is not on the stream, and `data` shows the session as it is
now; everything else is as a webhook endpoint gets it.
"""

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, final

import httpx2

from sightline_client import Event, Sightline
from sightline_client.models import MeterEvent, Session, Workspace
from sightline_client.runtime import unix_s
from sightline_client.webhooks import signed_headers

TIMEOUT_S: Final = 15.0
"""Seconds for one delivery; equal to the timeout of the server's own deliveries."""
TYPES: Final = {
    "CREATED": "session.requested",
    "ASSIGNED": "session.assigned",
    "REOPENED": "session.requested",
    "STARTED": "session.live",
    "PAUSED": "session.paused",
    "RESUMED": "session.resumed",
    "EXTENDED": "session.extended",
    "MESSAGE": "session.message",
    "ENDED": "session.ended",
    "CANCELLED": "session.cancelled",
    "EXPIRED": "session.expired",
    "SETTLED": "settlement.confirmed",
}
"""Type of the message, by the kind of the recorded event."""


@final
class Forwarder:
    """Sends each event that is recorded from now on once."""

    def __init__(self, sl: Sightline, url: str, secret: str) -> None:
        """`url`: of the local program; `secret`: `whsec_...`, which the program verifies with."""
        self._sl = sl
        self._url = url
        self._secret = secret
        self._http = httpx2.Client(timeout=TIMEOUT_S)
        started = sl.transport.send("GET", "/health").json()["timestamp"]  # the server's clock, as in the events
        self._since_ms = round(datetime.fromisoformat(started).timestamp() * 1_000)
        self._sent: dict[str, int] = {}
        self._availability: str | None = None

    def forward(self, event: Event) -> Iterator[dict[str, object]]:
        """Send the messages of an event of the stream; yields type, id, and the program's status or the error."""
        match event.value:
            case Session() if event.name in ("session", "assignment"):
                yield from self._session(event.value.id, event.data, is_operator=event.name == "assignment")
            case Workspace(availability_state=availability):
                if self._availability not in (None, availability):
                    at = datetime.fromtimestamp(unix_s(), UTC)
                    yield self._send("workspace.availability", at, event.data | {"sequence": event.id})
                self._availability = availability
            case _:
                return

    def _session(self, session_id: str, data: dict[str, Any], *, is_operator: bool) -> Iterator[dict[str, object]]:
        for recorded in self._sl.sessions.meter_events(session_id):
            kind = TYPES.get(recorded.kind)
            is_new = recorded.sequence > self._sent.get(session_id, 0) and recorded.at_ms >= self._since_ms
            if kind is None or not is_new or (is_operator and kind == "session.requested"):
                continue
            self._sent[session_id] = recorded.sequence
            at = datetime.fromtimestamp(recorded.at_ms / 1_000, UTC)
            yield self._send(kind, at, self._data(recorded, session_id, data))

    def _data(self, recorded: MeterEvent, session_id: str, data: dict[str, Any]) -> dict[str, Any]:
        if recorded.kind == "SETTLED":
            shown = self._sl.sessions.settlement(session_id).model_dump(mode="json", by_alias=True)
        else:
            shown = {name: value for name, value in data.items() if name not in ("whepUrl", "whipUrl")}
        return shown | {"sequence": recorded.sequence}

    def _send(self, kind: str, at: datetime, data: dict[str, Any]) -> dict[str, object]:
        timestamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        body = json.dumps({"type": kind, "timestamp": timestamp, "data": data}, default=str).encode()
        subject = data.get("id") or data.get("sessionId")
        message_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{subject}/{data['sequence']}"))
        headers = {"content-type": "application/json", **signed_headers(message_id, body, self._secret)}
        sent: dict[str, object] = {"type": kind, "id": message_id}
        try:
            return sent | {"status": self._http.post(self._url, content=body, headers=headers).status_code}
        except httpx2.TransportError as error:
            return sent | {"status": None, "error": f"{type(error).__name__}: {error}"}
