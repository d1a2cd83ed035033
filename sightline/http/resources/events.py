"""Live updates as server-sent events (WHATWG HTML section 9.2).

A stream starts with the current state, so a client that reconnects is up to date at once. The ids continue after its
Last-Event-ID; states that it missed are not sent again.
"""

from typing import Final, final

import orjson
import trio

from sightline.actors.service.live_updates import ClosedAssignment, ClosedRequest, Update, Updates
from sightline.domain.access import Operation
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code
from sightline.domain.session.status import LocationStatus, MeterStatus, SessionStatus
from sightline.http.pipeline.call import Call, Emit, JsonObject, Stream
from sightline.http.pipeline.routes import Route
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.resources.signalling import play_url_of
from sightline.http.resources.streams import StreamSlots
from sightline.http.schemas.events import (
    SESSION_EVENTS,
    WORKSPACE_EVENTS,
    assignment_closed_json,
    request_closed_json,
    session_location_json,
)
from sightline.http.schemas.sessions import PlayUrl, meter_json, session_json
from sightline.http.schemas.workspaces import workspace_json
from sightline.http.services import Services

TAG: Final = "live updates"
_KEEPALIVE: Final = b":\n\n"
_NUMBER_MAX: Final = 2**53
_HEADERS: Final = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
)


def update_json(update: Update, *, shows_whip_url: bool, play_url: PlayUrl) -> JsonObject:
    """Present the value of an update as the model that `SESSION_EVENTS` or `WORKSPACE_EVENTS` names."""
    match update.value:
        case SessionStatus() as status:
            return session_json(status, shows_whip_url=shows_whip_url, play_url=play_url)
        case MeterStatus() as meter:
            return meter_json(meter)
        case LocationStatus() as location:
            return session_location_json(location)
        case Workspace() as workspace:
            return workspace_json(workspace)
        case ClosedAssignment() as closed:
            return assignment_closed_json(closed)
        case ClosedRequest() as closed:
            return request_closed_json(closed)


def event_text(number: int, name: str, data: JsonObject) -> bytes:
    """One event."""
    return f"id: {number}\nevent: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


def last_number(header: str | None) -> int:
    """Return the id after which the stream continues; 0 if the header is absent or invalid."""
    if header is None or not (header.isascii() and header.isdigit()) or len(header) > 16:
        return 0
    return min(int(header), _NUMBER_MAX)


@final
class EventResources:
    """/sessions/{id}/events and /workspaces/{id}/events."""

    def __init__(self, services: Services, slots: StreamSlots) -> None:
        self._services = services
        self._slots = slots

    @Route(
        "GET",
        "/api/v1/sessions/{id}/events",
        "watchSession",
        TAG,
        "A session and its meter, now and on every change",
        description="Sends the current state first. `location` comes at most once a second while LIVE. `id` counts per "
        "stream and continues after Last-Event-ID. A comment every 15 s keeps the stream open; it ends after an hour.",
        operation=Operation.WATCH_EVENTS,
        takes_ticket=True,
        events=SESSION_EVENTS,
        media_type="text/event-stream",
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def session_events(self, call: Call) -> Stream:
        """Send the events of a session."""
        broker, session_id = self._services.broker, call.params["id"]
        # Refused here, while an error can still be answered in the envelope.
        await broker.reads.require_session_as_party(session_id, call.workspace_id)
        return self._stream(call, broker.updates.watch_session(session_id, call.workspace_id))

    @Route(
        "GET",
        "/api/v1/workspaces/{id}/events",
        "watchWorkspace",
        TAG,
        "The caller's workspace, its sessions and open requests, now and on every change",
        description="`session` is a session that the workspace requested, `assignment` one that it operates. "
        "`assignmentClosed` says that it no longer operates it, after a decline or a withdrawal. "
        "`request` is an open request within the coverage of an operator; `requestClosed` says that it can no longer "
        "be accepted. Otherwise like a session's stream.",
        operation=Operation.WATCH_EVENTS,
        takes_ticket=True,
        events=WORKSPACE_EVENTS,
        media_type="text/event-stream",
        errors=(Code.NOT_FOUND,),
    )
    async def workspace_events(self, call: Call) -> Stream:
        """Send the events of a workspace."""
        workspace_id = await require_own_workspace(call, self._services.broker)
        return self._stream(call, self._services.broker.updates.watch_workspace(workspace_id))

    def _stream(self, call: Call, watched: Updates) -> Stream:
        number = last_number(call.headers.get("last-event-id"))
        workspace_id = call.workspace_id
        self._slots.require_free(workspace_id)

        async def write(emit: Emit) -> None:
            lifetime_s = self._services.options.stream_lifetime_ms / 1_000
            with self._slots.held(workspace_id), trio.move_on_after(lifetime_s):
                await self._write(call, emit, watched, number)

        return Stream(write=write, headers=_HEADERS)

    async def _write(self, call: Call, emit: Emit, watched: Updates, number: int) -> None:
        sender, receiver = trio.open_memory_channel[Update](0)
        play_url = play_url_of(self._services.video, call)

        async def follow() -> None:
            # A task of its own: a time-out around an async generator's step would end the generator.
            async with sender:
                try:
                    async with watched as updates:
                        async for update in updates:
                            await sender.send(update)
                except (RefusedError, SightlineError):
                    return  # the client reconnects and gets the refusal as an answer

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            async with receiver:
                while True:
                    with trio.move_on_after(self._services.options.keepalive_ms / 1_000) as silence:
                        try:
                            update = await receiver.receive()
                        except trio.EndOfChannel:
                            break
                    if silence.cancelled_caught:
                        await emit(_KEEPALIVE)
                        continue
                    number += 1
                    data = update_json(update, shows_whip_url=call.may_publish, play_url=play_url)
                    await emit(event_text(number, update.kind, data))
            nursery.cancel_scope.cancel()
