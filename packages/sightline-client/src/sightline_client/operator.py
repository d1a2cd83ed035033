"""An operator's device: heartbeats, assignments and publishing. Async only: it does these at the same time."""

import inspect
import json
import logging
import math
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from numbers import Real
from typing import Any, Final, Protocol, TypeAlias

import anyio
import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException

from sightline_client._async.client import AsyncSightline
from sightline_client.callbacks import Callbacks, failure_of
from sightline_client.errors import (
    DEVICE_SCOPES,
    ApiError,
    InvalidStateError,
    NotAuthenticatedError,
    NotAuthorizedError,
    NotFoundError,
    NotOperatorError,
    NotReachedError,
    OutcomeUnknownError,
    RateLimitedError,
    SightlineError,
    UnavailableError,
    first_sentence,
    is_suspension,
)
from sightline_client.models import (
    Availability,
    HeartbeatVerdict,
    Identity,
    KeyIdentity,
    OperatorMessage,
    OwnWorkspace,
    Session,
    Workspace,
)
from sightline_client.retry import NO_RETRY
from sightline_client.wire import given

EARTH_RADIUS_M: Final = 6_371_008.8
HEARTBEAT_EVERY_S: Final = 2.0
ANSWER_WITHIN_S: Final = 5.0
LOST: Final = (
    f"Trying again every {HEARTBEAT_EVERY_S:g} s until it answers or the device is stopped. The server ends a session "
    "that has no position for too long."
)
POST_FOR_S: Final = 20.0
"""How long heartbeats are posted after the WebSocket failed, before it is tried again."""
OTHER_DEVICE: Final = "Another device sends heartbeats of this workspace. Stop one of them."
KEY_REFUSED: Final = (
    "Make a new key of the workspace (`sightline keys mint`, or the console) and restart the device with it. Until "
    "then it is offered no session."
)
KEY_AGAIN_S: Final = 15.0
"""Time between two calls of a loop while the server refuses the key."""
GIVEN_AWAY: Final = "session:workspaceMismatch"
"""Detail of the refusal to start a session that is not, or is no longer, of this operator."""
LOOK_EVERY_S: Final = 0.5
PUBLISH_AGAIN_S: Final = 2.0
"""How long after it raised `publish` is called again; also the least time between two calls of one that returns."""
AVAILABILITY_EVERY_S: Final = 5.0
LEAVE_S: Final = 8.0
"""How long a program that stops waits for the server: less than the 10 s after which containers are killed."""
LEAVE_AGAIN_S: Final = 0.5
MISSING_AFTER_S: Final = 10.0
"""After so long without a position a server pauses the meter."""
SCOPES: Final = ("sessions:operate", "sessions:read")
PAUSED: Final = {
    "LOCATION_STALE": "No position of the device, or none that is accurate enough, has arrived for 10 s.",
    "GEOFENCE_EXIT": "The device is outside of the circle around the requested place: go back.",
    "MEDIA_LOST": "No video arrives: check the camera, the publisher and the network.",
}
_UNSTORED: Final = ("OUTCOME_UNKNOWN", "UNAVAILABLE")
"""Codes of the answers to a heartbeat that the server could not store, or may not have stored."""
_AGAIN: Final = (NotReachedError, UnavailableError, OutcomeUnknownError, RateLimitedError)
"""Failures of a call that may succeed soon."""
UNPAID: Final = "These seconds are not paid, and a pause of 60 s ends the session."
BEHIND_MAX: Final = 3
BEHIND_WITHIN_S: Final = 30.0
"""Times that the sequence is too low, with less than so many seconds between them, until another device is suspected;
once is usual after a start."""


_NO_HEARTBEAT: Final[dict[str, Any]] = {}
_SeeWorkspace: TypeAlias = Callable[[Workspace], Awaitable[None] | None]
_ShowMessage: TypeAlias = Callable[[Session, OperatorMessage], Awaitable[None] | None]

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

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for what no server accepts, where the program makes it."""
        for name in ("lat", "lng", "accuracy_m", "heading_degrees", "speed_mps", "altitude_m"):
            value = getattr(self, name)
            if value is None and name not in ("lat", "lng", "accuracy_m"):
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"{name} of a Position must be a number, not {value!r}")
            limit = {"lat": 90.0, "lng": 180.0}.get(name, math.inf)
            number = float(value)
            if not math.isfinite(number) or abs(number) > limit or (name == "accuracy_m" and number < 0):
                raise ValueError(f"{name} of a Position must not be {value!r}")

    def distance_m(self, lat: float, lng: float) -> float:
        """Return the great-circle distance to a point in metres."""
        here, there = math.radians(self.lat), math.radians(lat)
        half_lat, half_lng = (there - here) / 2, math.radians(lng - self.lng) / 2
        chord = math.sin(half_lat) ** 2 + math.cos(here) * math.cos(there) * math.sin(half_lng) ** 2
        return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, chord)))


class Report(Protocol):
    """Receives what happens on the device, for a log."""

    def __call__(self, event: str, /, **fields: object) -> None:
        """Take an event: heartbeat_refused, other_device, heartbeats_by_post, position_missing, position_found,
        outside_area, session_started, session_declined, session_lost, meter_paused, meter_running, publish_failed,
        publish_ended, callback_failed, consumer_said, session_over, call_failed, key_refused, key_accepted,
        server_lost, server_back, workspace_suspended, suspension_lifted, passed_over, passed_over_ended,
        availability_changed. The level is info unless a field `level` says another."""


def log_event(event: str, /, **fields: object) -> None:
    """Write an event to the logger `sightline_client.operator`."""
    level = logging.getLevelNamesMapping()[str(fields.get("level", "info")).upper()]
    logger.log(level, "%s %s", event, fields)


class Operator:
    """A device of one operator workspace. It handles one session at a time.

    The functions that it calls may be async, and may fail: what one raises is reported as `callback_failed`, that of
    `publish` as `publish_failed`, and the device goes on.

    Args:
        client: Client with a key that has `sessions:operate` and `sessions:read`.
        position: Returns the current position, or None if there is no fix now; called once per heartbeat. No heartbeat
            is sent without a position, also when it raises. Both are reported once until there is one.
        publish: Async; publishes video to `session.whip_url`. It is cancelled when the session is over, and called
            again while the session is LIVE if it returns, and 2 s after it raised. Both are reported.
        accept: Chooses among the open sessions that this workspace can see; default: only dispatched ones. One for
            which it raises is not accepted.
        decline: Chooses which assigned sessions to refuse, before they are started; default: none. One for which it
            raises is started.
        on_availability: Called with the workspace at the start and when its availability changes.
        on_area: Called with the workspace when its area changes and its availability does not.
        on_message: Called with the session and each message of the consumer, such as "turn left", once and within a
            second. The next message, and the end of the session, wait until it returns. The consumer reads then that
            the message was shown, unless it raised.
        returns_online: Whether a workspace that was not OFFLINE before a suspension is set ONLINE when that is lifted.
        report: Receives events for a log.

    Raises:
        TypeError: An argument is no function, or cannot be called with what it would get.
    """

    def __init__(
        self,
        client: AsyncSightline,
        *,
        position: Callable[[], Position | Awaitable[Position | None] | None],
        publish: Callable[[Session], Awaitable[None]],
        accept: Callable[[Session], bool | Awaitable[bool]] | None = None,
        decline: Callable[[Session], bool | Awaitable[bool]] | None = None,
        on_availability: _SeeWorkspace | None = None,
        on_area: _SeeWorkspace | None = None,
        on_message: _ShowMessage | None = None,
        returns_online: bool = False,
        report: Report = log_event,
    ) -> None:
        _require_function("position", position)
        _require_function("publish", publish, 1)
        for name, function, count in (
            ("accept", accept, 1), ("decline", decline, 1), ("on_availability", on_availability, 1),
            ("on_area", on_area, 1), ("on_message", on_message, 2),
        ):  # fmt: skip
            if function is not None:
                _require_function(name, function, count)
        _require_function("report", report, 1, level="info")
        self._client = client
        self._position = position
        self._publish = publish
        self._accept = accept
        self._decline = decline
        self._on_availability = on_availability
        self._on_area = on_area
        self._on_message = on_message
        self._returns_online = returns_online
        self._heard: tuple[str, int] = ("", 0)
        self._answered_at_s = -math.inf
        self._filmed: str | None = None
        """The session that was filmed last, until its end is told."""
        self._report = report = _reporting(report)
        self._callbacks = Callbacks(report)
        self._sequence = 0
        self._knows_sequence = False
        self._times_behind = 0
        self._behind_at_s = -math.inf
        self._workspace_id = ""
        self._is_wanted: anyio.Event
        self._key_accepted: anyio.Event
        """Set unless the server refused the key in the last call that told."""
        self._refused_at_s = -math.inf
        """When the server refused the key or the workspace last: only calls that began later tell of an end of it."""
        self._call_failure = ""
        self._refusal: tuple[str | None, ...] = ()
        """The refusal of a heartbeat that is reported; empty since one was accepted."""
        self._fix_at_s = 0.0
        self._is_missing = False
        self._workspace: OwnWorkspace | None = None
        self._last_position: Position | None = None
        self._told_outside: _Area | None = None
        self._is_lost = False
        self._is_suspended = False

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            NotOperatorError: The credential is not the API key of a workspace with the role SUPPLIER.
            NotAuthorizedError: The key lacks a scope that a device needs.
            SightlineError: The server cannot be reached at the start, or refuses the key.
        """
        await self._begin()
        await self._work()

    async def run_until_stopped(self) -> None:
        """Work until SIGTERM, Ctrl-C or a cancellation, and `leave` then.

        For the main thread, not on Windows. Raises what `run` raises.
        """
        await self._begin()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._work)
                # A handler of its own: a shell that starts a program by `&` makes it ignore SIGINT.
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    await anext(signals)
                tasks.cancel_scope.cancel()
        finally:
            await self.leave()

    async def _begin(self) -> None:
        """Check the key once before the work begins."""
        self._workspace_id = require_operator(await self._client.me()).workspace_id
        self._is_wanted = anyio.Event()
        self._key_accepted = anyio.Event()
        self._key_accepted.set()
        self._fix_at_s = anyio.current_time()

    async def _work(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_heartbeats)
            tasks.start_soon(self._serve_assignments)
            tasks.start_soon(self._watch_availability)

    async def leave(self) -> None:
        """End what the workspace films, decline what is assigned to it, and set it OFFLINE: nobody films any more.

        For a program that stops, also in a `finally` after a cancellation. It tries for at most LEAVE_S while the
        server does not answer, and reports what fails in place of raising it.
        """
        failure: SightlineError | None = None
        with anyio.move_on_after(LEAVE_S, shield=True):
            while True:
                try:
                    await self._leave()
                except (*_AGAIN, InvalidStateError) as error:  # a session that has just ended is in a wrong state
                    failure = error
                    await anyio.sleep(LEAVE_AGAIN_S)
                except SightlineError as error:
                    if is_suspension(error):
                        return  # the service has ended its sessions and set it OFFLINE
                    failure = error
                    break
                else:
                    return
        advice = "The workspace may still be ONLINE, and is offered sessions then. Go offline in the console."
        if self._filmed is not None:
            advice = f"Session {self._filmed} may still run. It ends by itself after a pause of 60 s. {advice}"
        why = "The server did not answer" if failure is None else str(failure)
        self._report("call_failed", level="warning", error=why, advice=advice)

    async def _leave(self) -> None:
        """As `leave`; raises what fails. It may be repeated."""
        await self._client.sessions.cancel_all_assignments()
        for session in (await self._client.sessions.page(view="operator", state=["LIVE"])).items:
            self._tell_over(await self._client.sessions.end(session.id))
        if self._filmed is not None:  # it was ended by its consumer, or by itself, at the same time
            with suppress(NotFoundError, NotAuthorizedError):
                self._tell_over(await self._client.sessions.get(self._filmed))
        workspace_id = self._workspace_id or str((await self._client.me()).workspace_id)
        workspace = await self._client.workspaces.update(workspace_id, availability_state="OFFLINE")
        availability = str(workspace.availability_state)
        self._report("availability_changed", workspace=workspace.slug, availability=availability)

    def _tell_over(self, session: Session) -> None:
        if self._filmed == session.id:
            self._filmed = None
        over = given(reason=None if session.end_reason is None else str(session.end_reason))
        cost = {"clean_seconds": session.clean_seconds, "charged_usdc": str(session.charged_micro_usdc.usdc)}
        self._report("session_over", session_id=session.id, state=str(session.state), **over, **cost)

    # Heartbeats. A failed one is not repeated: the next one has a newer position.

    async def _send_heartbeats(self) -> None:
        while True:
            await self._key_accepted.wait()  # _serve_assignments asks meanwhile
            await self._beat_by_socket()
            if not self._is_lost and not self._is_suspended and self._key_accepted.is_set():
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
                if (heartbeat := await self._next_heartbeat()) is None:
                    due_s = await self._sleep_to_next(due_s)
                    continue
                await socket.send_json(heartbeat)
                with anyio.fail_after(ANSWER_WITHIN_S):
                    verdict = HeartbeatVerdict.model_validate(await socket.receive_json())
                self._note_answer()
                if verdict.ok:
                    self._take_acceptance()
                else:
                    self._take_refusal(verdict.code, verdict.hint or verdict.message, verdict.last_sequence)
                due_s = await self._sleep_to_next(due_s)

    async def _beat_by_post(self) -> None:
        """Post heartbeats until the key is refused."""
        due_s = anyio.current_time()
        while True:
            try:
                if (heartbeat := await self._next_heartbeat()) is not None:
                    with anyio.fail_after(ANSWER_WITHIN_S):  # a server that hangs keeps its connections open
                        await self._client.call("POST", f"/workspaces/{self._workspace_id}/location", heartbeat)
                    self._take_acceptance()
                    self._note_answer()
            except TimeoutError:
                if anyio.current_time() - self._answered_at_s >= ANSWER_WITHIN_S:
                    self._note_lost(f"{self._client.url} does not answer")
                else:  # other calls are answered: it cannot store now
                    self._take_refusal(_UNSTORED[0], f"no answer within {ANSWER_WITHIN_S:g} s", None)
            except ApiError as error:
                self._note_answer()
                if self._note_key_refused(error):
                    return
                if not self._note_suspension(error):
                    self._take_refusal(error.code, error.hint or error.message, error.last_sequence)
            except SightlineError as error:
                self._note_lost(first_sentence(error))
            due_s = await self._sleep_to_next(due_s)

    def _note_lost(self, error: str) -> None:
        """Report that the server does not answer, once until it does."""
        if not self._is_lost:
            self._is_lost = True
            self._report("server_lost", level="warning", error=error, advice=LOST)

    def _note_answer(self) -> None:
        self._answered_at_s = anyio.current_time()
        if self._is_lost:
            self._is_lost = False
            self._report("server_back")

    def _note_key_refused(self, error: ApiError) -> bool:
        """Report that the server refuses the key, once until it accepts it; returns whether the error says so."""
        if not isinstance(error, NotAuthenticatedError):
            return False
        self._refused_at_s = anyio.current_time()
        if self._key_accepted.is_set():
            self._key_accepted = anyio.Event()
            self._report("key_refused", level="warning", error=error.hint or error.message, advice=KEY_REFUSED)
        return True

    def _note_key_accepted(self, asked_at_s: float) -> None:
        """Report that the server accepts the key again. An open WebSocket does not tell: it outlives its key."""
        if not self._key_accepted.is_set() and asked_at_s > self._refused_at_s:
            self._key_accepted.set()
            self._report("key_accepted")

    async def _sleep(self, seconds: float) -> None:
        """Sleep before a call that asks the server for news; longer while it refuses the key."""
        await anyio.sleep(seconds if self._key_accepted.is_set() else KEY_AGAIN_S)

    def _note_suspension(self, error: ApiError) -> bool:
        """Report that the workspace is suspended, once until that is lifted; returns whether the error says so."""
        if not is_suspension(error):
            return False
        self._refused_at_s = anyio.current_time()
        if not self._is_suspended:
            self._is_suspended = True
            after = "the workspace is set ONLINE again" if self._returns_online else "set the workspace ONLINE again"
            advice = f"It gets no sessions, and those that it had were ended. When the suspension is lifted, {after}."
            self._report("workspace_suspended", level="warning", error=error.hint or error.message, advice=advice)
        return True

    def _take_acceptance(self) -> None:
        self._knows_sequence, self._refusal = True, ()

    def _take_refusal(self, code: str | None, message: str | None, last_sequence: int | None) -> None:
        """Continue after the sequence that the server accepted last; report another device if that repeats."""
        if last_sequence is not None and not self._knows_sequence:
            # No fault: this device cannot know where the run before it ended.
            self._knows_sequence, self._sequence = True, max(self._sequence, last_sequence)
            self._is_wanted.set()
            return
        refusal = (code, message if last_sequence is None else None)
        if refusal != self._refusal:
            self._refusal = refusal
            told = {"advice": "The server cannot store positions now. The next one is sent in 2 s."}
            advice = told if code in _UNSTORED else {}
            self._report("heartbeat_refused", level="warning", code=code, message=message, **advice)
        if last_sequence is None:
            return
        self._sequence = max(self._sequence, last_sequence)
        now_s = anyio.current_time()
        self._times_behind = self._times_behind + 1 if now_s - self._behind_at_s < BEHIND_WITHIN_S else 1
        self._behind_at_s = now_s
        if self._times_behind == BEHIND_MAX:
            self._report("other_device", level="warning", advice=OTHER_DEVICE)

    async def _sleep_to_next(self, due_s: float) -> float:
        """Sleep until the next heartbeat is due or wanted; heartbeats that were missed are not made up for."""
        due_s = max(due_s + HEARTBEAT_EVERY_S, anyio.current_time())
        with anyio.move_on_after(due_s - anyio.current_time()):
            await self._is_wanted.wait()
            self._is_wanted = anyio.Event()
            return anyio.current_time()
        return due_s

    async def _next_heartbeat(self) -> dict[str, Any] | None:
        """Make the next heartbeat; None without a position."""
        made = await self._callbacks.call("position", self._make_heartbeat, _NO_HEARTBEAT, is_polled=True)
        if not made:
            return None
        self._sequence += 1
        return made | {"sequence": self._sequence}

    async def _make_heartbeat(self) -> dict[str, Any]:
        """Make a heartbeat without its sequence. Raises what `position` raises, or if JSON cannot express it."""
        found = self._position()
        position = await found if isinstance(found, Awaitable) else found
        self._note_fix(position)
        if position is None:
            return _NO_HEARTBEAT
        made = given(
            lat=position.lat,
            lng=position.lng,
            accuracyMeters=position.accuracy_m,
            headingDegrees=position.heading_degrees,
            speedMps=position.speed_mps,
            altitudeMeters=position.altitude_m,
            source=position.source,
        )
        json.dumps(made, allow_nan=False)
        return made

    def _note_fix(self, position: Position | None) -> None:
        """Report that there is no position for MISSING_AFTER_S, once until there is one."""
        if not isinstance(position, Position | None):
            raise TypeError(f"position returned {type(position).__name__}. Return a Position, or None without one.")
        now_s = anyio.current_time()
        if position is not None:
            if self._is_missing:
                self._report("position_found")
            self._is_missing, self._fix_at_s, self._last_position = False, now_s, position
            self._tell_outside()
        elif not self._is_missing and now_s - self._fix_at_s >= MISSING_AFTER_S:
            self._is_missing = True
            advice = "No heartbeat is sent, and nothing that is filmed meanwhile is paid. Check the receiver."
            self._report("position_missing", level="warning", seconds=round(MISSING_AFTER_S), advice=advice)

    def _tell_outside(self) -> None:
        """Report that the device is outside of the area in which its workspace is offered sessions."""
        workspace, position = self._workspace, self._last_position
        if workspace is None or position is None:
            return
        lat, lng, radius_m = area = _area_of(workspace)
        is_offered = workspace.availability_state != "OFFLINE"
        if not is_offered or lat is None or lng is None or radius_m is None:
            self._told_outside = None
            return
        away_m = position.distance_m(lat, lng) - radius_m
        if away_m <= position.accuracy_m:
            self._told_outside = None
        elif area != self._told_outside:
            self._told_outside = area
            advice = (
                f"Its sessions are of the area at {lat}, {lng}, and only those at the device's position are paid. Move "
                "the area here: `sightline area LAT LNG`."
            )
            metres = round(away_m)
            self._report("outside_area", level="warning", workspace=workspace.slug, metres=metres, advice=advice)

    # Sessions.

    async def _serve_assignments(self) -> None:
        while True:
            asked_at_s = anyio.current_time()
            try:
                page = await self._client.sessions.page(view="operator", state=["ASSIGNED", "LIVE"], limit=1)
                self._note_answer()
                self._note_key_accepted(asked_at_s)
                for session in page.items:
                    await self._film(session)
                if not page.items and self._accept is not None:
                    await self._accept_one(self._accept)
                self._call_failure = ""
            except ApiError as error:
                self._note_answer()
                if not self._note_suspension(error) and not self._note_key_refused(error):
                    self._note_call_failure(error)
            except SightlineError as error:
                self._note_lost(first_sentence(error))
            await self._sleep(LOOK_EVERY_S)

    def _note_call_failure(self, error: ApiError) -> None:
        """Report that a call was refused, once while it is refused in the same words."""
        if str(error) != self._call_failure:
            self._call_failure = str(error)
            self._report("call_failed", level="warning", error=str(error))

    async def _accept_one(self, is_wanted: Callable[[Session], bool | Awaitable[bool]]) -> None:
        for session in (await self._client.sessions.page(view="open")).items:
            if await self._callbacks.call("accept", partial(is_wanted, session), False, session, is_polled=True):
                await self._client.sessions.accept(session.id, self._workspace_id)
                return

    async def _is_declined(self, session: Session) -> bool:
        if self._decline is None:
            return False
        # Polled: it is called again if the start of the session fails.
        return await self._callbacks.call("decline", partial(self._decline, session), False, session, is_polled=True)

    async def _film(self, session: Session) -> None:
        if session.state == "ASSIGNED":
            if await self._is_declined(session):
                await self._client.sessions.decline(session.id)
                self._report("session_declined", session_id=session.id)
                return
            try:
                session = (await self._client.sessions.start(session.id)).session
            except ApiError as error:
                if error.detail != GIVEN_AWAY:
                    raise
                advice = "It was not started in time: it was given to another operator, or is open again."
                self._report("session_lost", level="warning", session_id=session.id, advice=advice)
                return
            wish = given(instructions=session.instructions)
            self._report("session_started", session_id=session.id, **wish)
            self._is_wanted.set()  # so that the first frames have a position
        self._filmed = session.id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_publishing, session)
            await self._await_end(session.id)
            tasks.cancel_scope.cancel()

    async def _keep_publishing(self, session: Session) -> None:
        """Publish until the session is over."""
        while session.state == "LIVE":
            began_s, failure = anyio.current_time(), None
            try:
                publishing = self._publish(session)
                if not isinstance(publishing, Awaitable):
                    raise TypeError(f"publish must be an async function; it returned {publishing!r}")
                await publishing
            except Exception as error:  # noqa: BLE001  whatever a publisher raises, heartbeats and the session go on
                failure = failure_of(error, session)
                self._report("publish_failed", level="warning", **failure)
            await self._key_accepted.wait()
            with suppress(SightlineError):  # _await_end reports what is wrong
                session = await self._client.sessions.get(session.id)
                if session.state == "LIVE" and failure is None:
                    self._report("publish_ended", session_id=session.id)
            took_s = 0.0 if failure is not None else anyio.current_time() - began_s
            await anyio.sleep(max(min(LOOK_EVERY_S, PUBLISH_AGAIN_S), PUBLISH_AGAIN_S - took_s))

    async def _await_end(self, session_id: str) -> None:
        paused: str | None = None
        while True:
            await self._sleep(LOOK_EVERY_S)
            asked_at_s = anyio.current_time()
            try:
                session = await self._client.sessions.get(session_id)
                self._note_answer()
                self._note_key_accepted(asked_at_s)
                await self._hear(session)
            except ApiError as error:
                if self._note_suspension(error):
                    self._filmed = None
                    return  # a suspension ends the session
                if isinstance(error, NotFoundError | NotAuthorizedError):
                    self._filmed = None
                    advice = "The server does not know the session, or not as one of this workspace."
                    self._report(
                        "session_lost", level="warning", session_id=session_id, error=str(error), advice=advice
                    )
                    return
                self._note_key_refused(error)
            except SightlineError:
                continue
            else:
                if session.state != "LIVE":
                    self._tell_over(session)
                    return
                paused = self._tell_meter(session, paused)

    def _tell_meter(self, session: Session, told: str | None) -> str | None:
        """Report why the meter is paused, or that it runs again; returns the reason that is told then."""
        reason = str(session.pause_reason) if session.meter_state == "PAUSED" else None
        if reason == told:
            return told
        if reason is None:
            self._report("meter_running", session_id=session.id)
        else:
            advice = f"{PAUSED.get(reason, '')} {UNPAID}".lstrip()
            self._report("meter_paused", level="warning", session_id=session.id, reason=reason, advice=advice)
        return reason

    async def _hear(self, session: Session) -> None:
        """Pass on the messages that are new."""
        if session.state != "LIVE":
            return  # an ended session keeps its messages
        before = self._heard[1] if self._heard[0] == session.id else 0
        for message in session.messages:
            if message.number > before:
                self._heard = (session.id, message.number)
                self._report("consumer_said", session_id=session.id, text=message.text)
                if self._on_message is not None and await self._is_shown(self._on_message, session, message):
                    with suppress(SightlineError):
                        await self._client.sessions.mark_messages_shown(session.id, message.number)

    async def _is_shown(self, show: _ShowMessage, session: Session, message: OperatorMessage) -> bool:
        """Pass on a message; returns whether that succeeded."""

        async def show_it() -> bool:
            await _awaited(show(session, message))
            return True

        return await self._callbacks.call("on_message", show_it, False, session)

    async def _watch_availability(self) -> None:
        told: Availability | None = None
        told_area: _Area | None = None
        told_until: datetime | None = None
        while True:
            asked_at_s = anyio.current_time()
            try:
                workspace = await self._client.workspaces.get(self._workspace_id)
                self._note_key_accepted(asked_at_s)
                if self._is_suspended and asked_at_s > self._refused_at_s:
                    workspace = await self._end_suspension(workspace, told)
                self._workspace = workspace
                self._tell_outside()
                state, area = workspace.availability_state, _area_of(workspace)
                if state != told:
                    self._tell_availability(workspace)
                    await self._show("on_availability", self._on_availability, workspace)
                elif area != told_area:
                    await self._show("on_area", self._on_area, workspace)
                told_until = self._tell_passed_over(workspace, told_until)
                told, told_area = state, area
            except ApiError as error:
                is_known = self._note_suspension(error) or self._note_key_refused(error)
                if not is_known and self._is_suspended:
                    self._note_call_failure(error)
            except SightlineError:
                pass  # `_serve_assignments` reports that the server does not answer
            await self._sleep(AVAILABILITY_EVERY_S)

    def _tell_availability(self, workspace: Workspace) -> None:
        availability = str(workspace.availability_state)
        if availability == "OFFLINE":
            advice = (
                "It gets no sessions. Set it ONLINE: `sightline device --online`, workspaces.update(..., "
                "availability_state='ONLINE'), or the page Film of the console."
            )
            told = {"level": "warning", "advice": advice}
        else:
            told = {}
        self._report("availability_changed", workspace=workspace.slug, availability=availability, **told)

    async def _show(self, name: str, see: _SeeWorkspace | None, workspace: Workspace) -> None:
        if see is not None:
            await self._callbacks.call(name, partial(see, workspace), None)

    def _tell_passed_over(self, workspace: OwnWorkspace, told: datetime | None) -> datetime | None:
        """Report until when the workspace is passed over, or that it is not any more; returns what is told then."""
        until = workspace.passed_over_until
        if until == told or (until is None and workspace.availability_state == "OFFLINE"):
            return told  # the server does not tell it of a workspace that is OFFLINE
        if until is None:
            self._report("passed_over_ended", workspace=workspace.slug)
            return None
        advice = (
            "A session that was assigned to its wallet was not started. Until then it is not dispatched at all to "
            "sessions that require coverage, which is the default of clients, and to others only where no other "
            "operator is. It cannot accept sessions."
        )
        self._report(
            "passed_over",
            level="warning",
            workspace=workspace.slug,
            until=until.isoformat(timespec="seconds"),
            advice=advice,
        )
        return until

    async def _end_suspension(self, workspace: OwnWorkspace, before: Availability | None) -> OwnWorkspace:
        """Report that a suspension was lifted, and go ONLINE again if that is wanted; returns the workspace then."""
        was_online = before is not None and before != "OFFLINE"
        if self._returns_online and was_online and workspace.availability_state == "OFFLINE":
            workspace = await self._client.workspaces.update(workspace.id, availability_state="ONLINE")
        self._is_suspended = False
        self._report("suspension_lifted", workspace=workspace.slug, availability=str(workspace.availability_state))
        return workspace


_Area: TypeAlias = tuple[float | None, float | None, float | None]
"""Latitude, longitude and radius in metres."""


def require_operator(identity: Identity) -> KeyIdentity:
    """Return the identity of an operator's API key that a device can use.

    Raises:
        NotOperatorError: It is no API key, or not that of an operator.
        NotAuthorizedError: The key lacks scopes.
    """
    if identity.kind != "api_key" or "SUPPLIER" not in identity.workspace.roles:
        raise NotOperatorError(403, {"code": "NOT_OPERATOR", "message": "The key belongs to no operator."})
    missing = [scope for scope in SCOPES if scope not in identity.scopes]
    if missing:
        lacks = f"The API key lacks {' and '.join(missing)}"
        raise NotAuthorizedError(403, {"code": "NOT_AUTHORIZED", "message": lacks, "detail": DEVICE_SCOPES})
    return identity


def _area_of(workspace: Workspace) -> _Area:
    return workspace.coverage_lat, workspace.coverage_lng, workspace.coverage_radius_meters


def _require_function(name: str, function: object, count: int = 0, **fields: object) -> None:
    """Raise TypeError if it is no function, or cannot be called with `count` arguments and these fields."""
    if not callable(function):
        raise TypeError(f"{name} must be a function, not {function!r}")
    with suppress(ValueError):  # a builtin function may have no signature
        try:
            inspect.signature(function).bind(*[None] * count, **fields)
        except TypeError as error:
            raise TypeError(f"{name} cannot be called as Operator calls it: {error}") from None


def _reporting(report: Report) -> Report:
    """Keep what a program's `report` raises from the device."""

    def guarded(event: str, /, **fields: object) -> None:
        try:
            report(event, **fields)
        except Exception:
            logger.exception("report raised at the event %s", event)

    return guarded


async def _awaited(made: Awaitable[None] | None) -> None:
    """Wait for what an async function made; a plain one has returned None."""
    if made is not None:
        await made


def operator_client(url: str | None = None, key: str | None = None) -> AsyncSightline:
    """Create a client for an operator: no call is repeated, because each is made again with newer values."""
    return AsyncSightline(url, key, retry=NO_RETRY)
