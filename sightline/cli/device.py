"""An operator's device: sends heartbeats, takes the assignments of its workspace, publishes a clip by WHIP.

What a phone or a drone would do, as a program: `sightline device`. One process, one API key.
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
ACCURACY_M: Final = 8

log = structlog.get_logger("sightline.device")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Where it is, whom it serves, what it films."""

    api_url: str
    api_key: str = field(repr=False)
    lat: float
    lng: float
    clip: Path


@final
class Device:
    """One device of one operator workspace."""

    def __init__(self, options: DeviceOptions, api: Api, workspace_id: str) -> None:
        self._options = options
        self._api = api
        self._workspace_id = workspace_id
        self._sequence = 0

    async def send_heartbeats(self) -> None:
        """Say where we are, for ever. A heartbeat that fails is not repeated: the next one says more."""
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
        """Start what is assigned and publish while it is LIVE, for ever."""
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
    """The last accepted sequence, which a refused heartbeat's message names."""
    numbers = [int(word) for word in error.message.replace(".", " ").split() if word.isdigit()]
    return max(numbers) if error.detail == "location:sequence" and numbers else 0


async def run_device(options: DeviceOptions) -> None:
    """Run a device until SIGTERM or SIGINT; what it publishes stops with it."""
    async with Api(options.api_url, key=options.api_key) as api:
        me = await api.get("/me")
        device = Device(options, api, me["workspaceId"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.send_heartbeats)
            nursery.start_soon(device.serve_assignments)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                await anext(signals)
            nursery.cancel_scope.cancel()
