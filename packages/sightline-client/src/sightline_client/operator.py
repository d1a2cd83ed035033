"""An operator's device: heartbeats, assignments and publishing. Async only: it does these at the same time."""

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import anyio
import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException

from sightline_client._async.client import AsyncSightline
from sightline_client.errors import ApiError, NotOperatorError, SightlineError
from sightline_client.models import Availability, HeartbeatVerdict, OperatorMessage, Session, Workspace
from sightline_client.retry import NO_RETRY
from sightline_client.wire import given

EARTH_RADIUS_M: Final = 6_371_008.8
HEARTBEAT_EVERY_S: Final = 2.0
ANSWER_WITHIN_S: Final = 5.0
POST_FOR_S: Final = 20.0
"""How long heartbeats are posted after the WebSocket failed, before it is tried again."""
LOOK_EVERY_S: Final = 0.5
AVAILABILITY_EVERY_S: Final = 5.0
BEHIND_MAX: Final = 3
BEHIND_WITHIN_S: Final = 30.0
"""Times that the sequence is too low, with less than so many seconds between them, until another device is suspected;
once is usual after a start."""

logger = logging.getLogger("sightline_client.operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the device is. Units: degrees, metres, metres per second."""

    lat: float
    lng: float
    accuracy_m: float = 8.0
    heading_degrees: float | None = None
    speed_mps: float | None = None
    altitude_m: float | None = None
    source: str = "GPS"

    def distance_m(self, lat: float, lng: float) -> float:
        """Return the great-circle distance to a point in metres."""
        here, there = math.radians(self.lat), math.radians(lat)
        half_lat, half_lng = (there - here) / 2, math.radians(lng - self.lng) / 2
        chord = math.sin(half_lat) ** 2 + math.cos(here) * math.cos(there) * math.sin(half_lng) ** 2
        return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, chord)))


class Report(Protocol):
    """Receives what happens on the device, for a log."""

    def __call__(self, event: str, /, **fields: object) -> None:
        """Take an event: heartbeat_refused, other_device, heartbeats_by_post, session_started, session_declined,
        consumer_said, session_over, call_failed. The level is info unless a field `level` says another."""


def log_event(event: str, /, **fields: object) -> None:
    """Write an event to the logger `sightline_client.operator`."""
    logger.info("%s %s", event, fields)


class Operator:
    """A device of one operator workspace. It handles one session at a time.

    Args:
        client: Client with a key that has `sessions:operate` and `sessions:read`.
        position: Returns the current position; called once per heartbeat.
        publish: Publishes video to `session.whip_url`. It is cancelled when the session is over, and called again
            while the session is LIVE if it returns.
        accept: Chooses among the open sessions that this workspace can see; default: only dispatched ones.
        decline: Chooses which assigned sessions to refuse, before they are started; default: none.
        on_availability: Called with the workspace at the start and when its availability changes. It may be async.
        on_area: Called with the workspace when its area changes and its availability does not. It may be async.
        on_message: Called with the session and each message of the consumer, such as "turn left", once and within a
            second. It may be async; the next message, and the end of the session, wait until it returns. The consumer
            reads then that the message was shown.
        report: Receives events for a log.
    """

    def __init__(
        self,
        client: AsyncSightline,
        *,
        position: Callable[[], Position],
        publish: Callable[[Session], Awaitable[None]],
        accept: Callable[[Session], bool] | None = None,
        decline: Callable[[Session], bool] | None = None,
        on_availability: Callable[[Workspace], Awaitable[None] | None] | None = None,
        on_area: Callable[[Workspace], Awaitable[None] | None] | None = None,
        on_message: Callable[[Session, OperatorMessage], Awaitable[None] | None] | None = None,
        report: Report = log_event,
    ) -> None:
        self._client = client
        self._position = position
        self._publish = publish
        self._accept = accept
        self._decline = decline
        self._on_availability = on_availability
        self._on_area = on_area
        self._on_message = on_message
        self._heard: tuple[str, int] = ("", 0)
        self._report = report
        self._sequence = 0
        self._knows_sequence = False
        self._times_behind = 0
        self._behind_at_s = -math.inf
        self._workspace_id = ""
        self._is_wanted: anyio.Event

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            NotOperatorError: The credential is not the API key of a workspace with the role SUPPLIER.
            SightlineError: The server cannot be reached at the start, or refuses the key.
        """
        me = await self._client.me()
        if me.kind != "api_key" or "SUPPLIER" not in me.workspace.roles:
            raise NotOperatorError(403, {"code": "NOT_OPERATOR", "message": "The key belongs to no operator."})
        self._workspace_id = me.workspace_id
        self._is_wanted = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_heartbeats)
            tasks.start_soon(self._serve_assignments)
            tasks.start_soon(self._watch_availability)

    # Heartbeats. A failed one is not repeated: the next one has a newer position.

    async def _send_heartbeats(self) -> None:
        while True:
            await self._beat_by_socket()
            self._report("heartbeats_by_post", seconds=POST_FOR_S)
            with anyio.move_on_after(POST_FOR_S):
                await self._beat_by_post()

    async def _beat_by_socket(self) -> None:
        """Send heartbeats on a WebSocket until it fails or is closed."""
        transport = self._client.transport
        url = "ws" + transport.address(f"/workspaces/{self._workspace_id}/location/stream").removeprefix("http")
        # The library raises a group when its own tasks fail; which task noticed first does not matter.
        with suppress(HTTPXWSException, httpx2.TransportError, BaseExceptionGroup):
            async with transport.http.websocket(url, headers=transport.headers) as socket:
                await self._beat_on(socket)

    async def _beat_on(self, socket: AsyncWebSocketSession) -> None:
        with suppress(HTTPXWSException, httpx2.TransportError, TimeoutError):
            due_s = anyio.current_time()
            while True:
                await socket.send_json(self._next_heartbeat())
                with anyio.fail_after(ANSWER_WITHIN_S):
                    verdict = HeartbeatVerdict.model_validate(await socket.receive_json())
                if verdict.ok:
                    self._knows_sequence = True
                else:
                    self._take_refusal(verdict.code, verdict.hint or verdict.message, verdict.last_sequence)
                due_s = await self._sleep_to_next(due_s)

    async def _beat_by_post(self) -> None:
        due_s = anyio.current_time()
        while True:
            try:
                body = self._next_heartbeat()
                await self._client.call("POST", f"/workspaces/{self._workspace_id}/location", body)
                self._knows_sequence = True
            except ApiError as error:
                self._take_refusal(error.code, error.hint or error.message, error.last_sequence)
            except SightlineError as error:
                self._report("call_failed", error=str(error))
            due_s = await self._sleep_to_next(due_s)

    def _take_refusal(self, code: str | None, message: str | None, last_sequence: int | None) -> None:
        """Continue after the sequence that the server accepted last; report another device if that repeats."""
        if last_sequence is not None and not self._knows_sequence:
            # No fault: this device cannot know where the run before it ended.
            self._knows_sequence, self._sequence = True, max(self._sequence, last_sequence)
            self._is_wanted.set()
            return
        self._report("heartbeat_refused", code=code, message=message)
        if last_sequence is None:
            return
        self._sequence = max(self._sequence, last_sequence)
        now_s = anyio.current_time()
        self._times_behind = self._times_behind + 1 if now_s - self._behind_at_s < BEHIND_WITHIN_S else 1
        self._behind_at_s = now_s
        if self._times_behind == BEHIND_MAX:
            advice = "Another device sends heartbeats of this workspace. Stop one of them."
            self._report("other_device", level="warning", advice=advice)

    async def _sleep_to_next(self, due_s: float) -> float:
        """Sleep until the next heartbeat is due or wanted; heartbeats that were missed are not made up for."""
        due_s = max(due_s + HEARTBEAT_EVERY_S, anyio.current_time())
        with anyio.move_on_after(due_s - anyio.current_time()):
            await self._is_wanted.wait()
            self._is_wanted = anyio.Event()
            return anyio.current_time()
        return due_s

    def _next_heartbeat(self) -> dict[str, Any]:
        self._sequence += 1
        position = self._position()
        return given(
            lat=position.lat,
            lng=position.lng,
            accuracyMeters=position.accuracy_m,
            headingDegrees=position.heading_degrees,
            speedMps=position.speed_mps,
            altitudeMeters=position.altitude_m,
            source=position.source,
            sequence=self._sequence,
        )

    # Sessions.

    async def _serve_assignments(self) -> None:
        while True:
            try:
                page = await self._client.sessions.page(view="operator", state=["ASSIGNED", "LIVE"], limit=1)
                for session in page.items:
                    await self._film(session)
                if not page.items and self._accept is not None:
                    await self._accept_one(self._accept)
            except SightlineError as error:
                self._report("call_failed", error=str(error))
            await anyio.sleep(LOOK_EVERY_S)

    async def _accept_one(self, is_wanted: Callable[[Session], bool]) -> None:
        for session in (await self._client.sessions.page(view="open")).items:
            if is_wanted(session):
                await self._client.sessions.accept(session.id, self._workspace_id)
                return

    async def _film(self, session: Session) -> None:
        if session.state == "ASSIGNED":
            if self._decline is not None and self._decline(session):
                await self._client.sessions.decline(session.id)
                self._report("session_declined", session_id=session.id)
                return
            session = (await self._client.sessions.start(session.id)).session
            self._report("session_started", session_id=session.id)
            self._is_wanted.set()  # so that the first frames have a position
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish_and_stop, session, tasks.cancel_scope)
            await self._await_end(session.id)
            tasks.cancel_scope.cancel()

    async def _publish_and_stop(self, session: Session, scope: anyio.CancelScope) -> None:
        await self._publish(session)
        scope.cancel()

    async def _await_end(self, session_id: str) -> None:
        while True:
            await anyio.sleep(LOOK_EVERY_S)
            with suppress(SightlineError):
                session = await self._client.sessions.get(session_id)
                await self._hear(session)
                if session.state != "LIVE":
                    self._report("session_over", session_id=session_id, state=str(session.state))
                    return

    async def _hear(self, session: Session) -> None:
        """Pass on the messages that are new."""
        before = self._heard[1] if self._heard[0] == session.id else 0
        for message in session.messages:
            if message.number > before:
                self._heard = (session.id, message.number)
                self._report("consumer_said", session_id=session.id, text=message.text)
                if self._on_message is not None:
                    await _awaited(self._on_message(session, message))
                    with suppress(SightlineError):
                        await self._client.sessions.mark_messages_shown(session.id, message.number)

    async def _watch_availability(self) -> None:
        told: Availability | None = None
        told_area: _Area | None = None
        while True:
            with suppress(SightlineError):
                workspace = await self._client.workspaces.get(self._workspace_id)
                state, area = workspace.availability_state, _area_of(workspace)
                if state != told:
                    if self._on_availability is not None:
                        await _awaited(self._on_availability(workspace))
                elif area != told_area and self._on_area is not None:
                    await _awaited(self._on_area(workspace))
                told, told_area = state, area
            await anyio.sleep(AVAILABILITY_EVERY_S)


_Area: TypeAlias = tuple[float | None, float | None, float | None]
"""Latitude, longitude and radius in metres."""


def _area_of(workspace: Workspace) -> _Area:
    return workspace.coverage_lat, workspace.coverage_lng, workspace.coverage_radius_meters


async def _awaited(made: Awaitable[None] | None) -> None:
    """Wait for what an async function made; a plain one has returned None."""
    if made is not None:
        await made


def operator_client(url: str | None = None, key: str | None = None) -> AsyncSightline:
    """Create a client for an operator: no call is repeated, because each is made again with newer values."""
    return AsyncSightline(url, key, retry=NO_RETRY)
