"""The `sightline device` command: acts as an operator's device, with one API key.

It sends heartbeats, starts the sessions that are assigned to its workspace, and publishes video by WHIP.
"""

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import httpx
import structlog
import trio

from sightline.client import Api, ApiError

HEARTBEAT_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 0.5
AVAILABILITY_EVERY_S: Final = 5.0
ACCURACY_M: Final = 8

log = structlog.get_logger("sightline.device")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Server, credential, position and video file of a device."""

    api_url: str
    api_key: str = field(repr=False)
    lat: float
    lng: float
    clip: Path


@final
class DeviceClient:
    """One device of one operator workspace."""

    def __init__(self, options: DeviceOptions, api: Api, workspace_id: str) -> None:
        self._options = options
        self._api = api
        self._workspace_id = workspace_id
        self._sequence = 0

    async def send_heartbeats(self) -> None:
        """Send heartbeats until cancelled. A failed one is not retried: the next one has a newer position."""
        deadline = trio.current_time()
        while True:
            self._sequence += 1
            try:
                await self._api.post(
                    f"/workspaces/{self._workspace_id}/location",
                    lat=self._options.lat,
                    lng=self._options.lng,
                    accuracyMeters=ACCURACY_M,
                    sequence=self._sequence,
                    source="GPS",
                )
            except ApiError as error:
                log.warning("heartbeat_refused", code=error.code, message=error.message)
                self._sequence = max(self._sequence, _last_sequence(error))
            except httpx.TransportError as error:
                log.warning("heartbeat_lost", error=type(error).__name__)
            deadline = max(deadline + HEARTBEAT_EVERY_S, trio.current_time())
            await trio.sleep_until(deadline)

    async def serve_assignments(self) -> None:
        """Start assigned sessions, and publish while a session is LIVE, until cancelled."""
        while True:
            try:
                found = await self._api.get("/sessions", view="operator", state=["ASSIGNED", "LIVE"], limit=1)
                for session in found["items"]:
                    await self._film(session)
            except ApiError as error:
                log.warning("assignment_refused", code=error.code, message=error.message)
            except httpx.TransportError as error:
                log.warning("server_not_reached", error=type(error).__name__)
            await trio.sleep(LOOK_EVERY_S)

    async def _film(self, session: dict[str, Any]) -> None:
        if session["state"] == "ASSIGNED":
            started = await self._api.post(f"/sessions/{session['id']}/start")
            session = started["session"]
            log.info("session_started", session_id=session["id"])
        command = [
            sys.executable,
            "-m",
            "sightline.video.publish",
            str(self._options.clip),
            "--whip",
            session["whipUrl"],
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_over, session["id"], nursery.cancel_scope)
            await trio.run_process(command, check=False, stdout=sys.stderr.fileno())
            nursery.cancel_scope.cancel()

    async def report_availability(self) -> None:
        """Print a line when the workspace is not ONLINE, so that no session is assigned to it, and when it is again."""
        told: str | None = None
        while True:
            try:
                workspace = await self._api.get(f"/workspaces/{self._workspace_id}")
            except (ApiError, httpx.TransportError):
                await trio.sleep(AVAILABILITY_EVERY_S)
                continue
            state = workspace["availabilityState"]
            if state != told:
                told = state
                _print_availability(workspace, state)
            await trio.sleep(AVAILABILITY_EVERY_S)

    async def _stop_when_over(self, session_id: str, scope: trio.CancelScope) -> None:
        while True:
            await trio.sleep(LOOK_EVERY_S)
            try:
                session = await self._api.get(f"/sessions/{session_id}")
            except (ApiError, httpx.TransportError):
                continue
            if session["state"] != "LIVE":
                log.info("session_over", session_id=session_id, state=session["state"])
                scope.cancel()


def _last_sequence(error: ApiError) -> int:
    """Read the last accepted sequence number from the error of a refused heartbeat."""
    numbers = [int(word) for word in error.message.replace(".", " ").split() if word.isdigit()]
    return max(numbers) if error.detail == "location:sequence" and numbers else 0


def _print_availability(workspace: dict[str, Any], state: str) -> None:
    if state == "OFFLINE":
        sys.stderr.write(
            f"Workspace {workspace['slug']} is OFFLINE: it gets no sessions. Set it ONLINE with "
            f'PATCH /api/v1/workspaces/{workspace["id"]} {{"availabilityState": "ONLINE"}}.\n'
        )
    else:
        sys.stderr.write(f"Workspace {workspace['slug']} is {state}.\n")
    sys.stderr.flush()


async def run_device(options: DeviceOptions) -> int:
    """Run a device until SIGTERM or SIGINT; publishing stops with it.

    Returns:
        The exit code: 0 after a signal, 1 when the server cannot be reached or refuses the key (one line on stderr).
    """
    async with Api(options.api_url, key=options.api_key) as api:
        try:
            me = await api.get("/me")
        except ApiError as error:
            return _fail(f"{options.api_url} refuses the API key: {error.message} Check SIGHTLINE_API_KEY.")
        except httpx.HTTPError as error:
            return _fail(f"Cannot reach {options.api_url}: {str(error) or type(error).__name__}. Check --api.")
        except ValueError:
            return _fail(f"{options.api_url} does not answer like a Sightline server. Check --api.")
        if "workspaceId" not in me:
            return _fail("The key belongs to no workspace. Set SIGHTLINE_API_KEY to a key of the operator's workspace.")
        device = DeviceClient(options, api, me["workspaceId"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.send_heartbeats)
            nursery.start_soon(device.serve_assignments)
            nursery.start_soon(device.report_availability)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                await anext(signals)
            nursery.cancel_scope.cancel()
    return 0


def _fail(line: str) -> int:
    sys.stderr.write(" ".join(line.split()) + "\n")
    return 1
