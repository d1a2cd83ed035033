"""Acts as an operator's device, with one API key.

It sends heartbeats, starts the sessions that are assigned to its workspace, and publishes video by WHIP.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import anyio
from anyio.abc import Process

from sightline_client._async.client import AsyncSightline
from sightline_client.device.gps import GpsReceiver, NoFixError
from sightline_client.device.lines import lines_of
from sightline_client.device.log import log_line
from sightline_client.device.statements import keep_statements
from sightline_client.errors import (
    ApiError,
    InvalidResponseError,
    NotAuthorizedError,
    NotOperatorError,
    NotReachedError,
    SightlineError,
)
from sightline_client.models import Session, Workspace
from sightline_client.operator import OTHER_DEVICE, Operator, Position, operator_client, require_operator

SOURCE_VARIABLE: Final = "SIGHTLINE_SOURCE"
WHIP_VARIABLE: Final = "SIGHTLINE_WHIP_URL"
"""Tell the publisher its source and where to publish: a command line would show a camera's password, and a URL with
which anybody can take over the input, to other accounts."""
PUBLISHES: Final = b"connected"
"""What a publisher prints when the server takes its video. All else that it prints is a problem."""
LISTEN_EVERY_S: Final = 0.5
LISTENS: Final = 12
"""In this time, 6 s, another device of the workspace has sent a heartbeat, which is due every 2 s."""
LISTEN_ANSWER_S: Final = 1.5
"""A server that takes longer to answer is not listened to: the time to stop is needed to set the workspace OFFLINE."""
STOP_S: Final = 5.0
"""A publisher that was told to stop is killed after this time. It ends its session at the server before it exits."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Server, credential, position and video source of a device."""

    api_url: str
    api_key: str = field(repr=False)
    source: str = field(repr=False)
    """File, URL of a camera (may hold a password), or V4L2 device."""
    place: Position | None = None
    """Fixed place; None with `gps`."""
    gps: str | None = None
    """`gpsd://HOST[:PORT]` or a serial device."""
    statements: Path | None = None
    """Directory for the meter's signed statements of sessions in escrow; None: they are not kept."""
    decline_beyond_m: float | None = None
    """Decline sessions whose place is farther away than this many metres; None: start every session."""
    is_online: bool = False
    """Whether the workspace is set ONLINE first."""


async def run_device(options: DeviceOptions) -> int:
    """Run a device until SIGTERM or SIGINT; publishing stops with it.

    Returns:
        The exit code: 0 after a signal, 1 when the server cannot be reached or refuses the key (one line on stderr),
        or the receiver gives no position.

    Raises:
        SightlineError: The workspace cannot be set ONLINE, or the server is away at the start.
    """
    async with operator_client(options.api_url, options.api_key) as client:
        if (problem := await _problem(client)) is not None:
            sys.stderr.write(" ".join(problem.split()) + "\n")
            return 1

        async def publish(session: Session) -> None:
            async with anyio.create_task_group() as tasks:
                if options.statements is not None:
                    tasks.start_soon(keep_statements, client, session.id, options.statements)
                await _publish(session.id, options.source, str(session.whip_url))
                tasks.cancel_scope.cancel()

        receiver = GpsReceiver(options.gps) if options.gps is not None else None

        def position() -> Position:
            if receiver is not None:
                return receiver.position()
            assert options.place is not None, "the command requires a place or a receiver"
            return options.place

        def is_too_far(session: Session) -> bool:
            limit_m = options.decline_beyond_m
            away_m = position().distance_m(session.requested_lat, session.requested_lng)
            return limit_m is not None and away_m > limit_m

        operator = Operator(
            client,
            position=position,
            publish=publish,
            decline=is_too_far,
            returns_online=options.is_online,
            report=log_line,
        )
        presence = _Presence(client)
        failure: NoFixError | SightlineError | None = None

        async def work() -> None:
            nonlocal failure
            try:
                if receiver is not None:
                    await receiver.await_first()  # a device without a position gets no session
                if options.is_online:
                    await presence.begin()
                await operator.run()
            except (NoFixError, SightlineError) as error:
                failure = error
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            if receiver is not None:
                tasks.start_soon(receiver.follow)
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                tasks.start_soon(work)
                await anext(signals)
            tasks.cancel_scope.cancel()
        if await presence.must_leave(has_failed=failure is not None):
            await operator.leave()
    if isinstance(failure, NoFixError):
        log_line("position_missing", level="error", error=str(failure), advice="Check --gps.")
    elif failure is not None:
        raise failure
    return 0 if failure is None else 1


def check_source(source: str) -> int:
    """Open a file or look for a V4L2 device, in a process of its own, because the libraries of video need memory.

    Returns:
        0 if it can be published, or if it is a camera's URL, which may answer later; else 1, with the reason on stderr.
    """
    command = [sys.executable, "-m", "sightline_client.video.publish", "--check"]
    env = os.environ | {SOURCE_VARIABLE: source}
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=False).returncode  # noqa: S603  own command


async def _publish(session_id: str, source: str, whip_url: str) -> None:
    """Run a publisher until it ends, and log what it prints.

    When this is cancelled, it gets SIGTERM, and SIGKILL after STOP_S. When this process dies, its stdin ends, and it
    stops: it must not film unattended.
    """
    with anyio.CancelScope(shield=True):  # asyncio kills a process whose pipe it is still opening
        publisher = await anyio.open_process(
            [sys.executable, "-m", "sightline_client.video.publish", "--until-stdin-ends"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {SOURCE_VARIABLE: source, WHIP_VARIABLE: whip_url},
        )
    assert publisher.stdout is not None, "it is a pipe"
    try:
        async for line in lines_of(publisher.stdout):
            level = "info" if line == PUBLISHES else "warning"
            log_line("publisher_said", level=level, session_id=session_id, text=line.decode(errors="replace"))
        await publisher.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(publisher)
            await publisher.aclose()


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    with anyio.move_on_after(STOP_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _problem(client: AsyncSightline) -> str | None:
    """Check the key once before the work begins. Returns why the device cannot work."""
    try:
        require_operator(await client.me())
    except NotOperatorError:
        return "The key belongs to no operator. Set SIGHTLINE_API_KEY to a key of the operator's workspace."
    except NotAuthorizedError as error:
        return str(error)
    except ApiError as error:
        return (
            f"{client.url} refuses the API key: {(error.hint or error.message).rstrip('.')}. Check SIGHTLINE_API_KEY."
        )
    except NotReachedError as error:
        return f"Cannot reach {client.url}: {error.__cause__}. Check --api."
    except InvalidResponseError:
        return f"{client.url} does not answer like a Sightline server. Check --api."
    return None


@final
@dataclass(slots=True)
class _Presence:
    """Sets a workspace ONLINE, and knows whether it must be OFFLINE when the device stops."""

    client: AsyncSightline
    is_online: bool = False
    """Whether it is ONLINE, or has a session and is ONLINE after it."""
    was_offline: bool = False
    may_be_shared: bool = False
    """Whether another device may work for it too."""

    async def begin(self) -> None:
        """Set the workspace ONLINE if it is OFFLINE; else listen for another device, which is then logged."""
        workspace = await self._read()
        if workspace.coverage_lat is None:
            advice = (
                "It has no area, so it is offered sessions of every place in the world, and only those at its position "
                "are paid. Set an area: `sightline area LAT LNG`, or the page Film of the console; or decline others "
                "by --decline-beyond METRES."
            )
            log_line("no_area", level="warning", workspace=workspace.slug, advice=advice)
        self.was_offline = workspace.availability_state == "OFFLINE"
        self.is_online, self.may_be_shared = True, not self.was_offline
        if self.was_offline:
            await self.client.workspaces.update(workspace.id, availability_state="ONLINE")
        elif workspace.availability_state == "ONLINE":  # a BUSY one may have a session that needs positions now
            with suppress(SightlineError, TimeoutError):
                self.may_be_shared = await self._hears_another() is not None
                if self.may_be_shared:
                    log_line("other_device", level="warning", advice=OTHER_DEVICE)

    async def must_leave(self, *, has_failed: bool) -> bool:
        """Whether nobody works for the workspace from now on. That another device goes on is logged.

        A device that failed at its start leaves a workspace as it found it: its next start goes on with a session.
        """
        if not self.is_online or (has_failed and not self.was_offline):
            return False
        if not self.may_be_shared:
            return True
        with suppress(SightlineError, TimeoutError):
            if (kept := await self._hears_another()) is not None:
                availability, advice = str(kept.availability_state), "Another device of the workspace goes on."
                log_line("availability_kept", workspace=kept.slug, availability=availability, advice=advice)
                return False
        return True

    async def _read(self) -> Workspace:
        return await self.client.workspaces.get(str((await self.client.me()).workspace_id))

    async def _hears_another(self) -> Workspace | None:
        """Return the workspace if heartbeats arrive for it while this device sends none.

        Raises:
            SightlineError, TimeoutError: It is not known.
        """
        with anyio.fail_after(LISTEN_ANSWER_S):
            before = await self._read()
        for _ in range(LISTENS):
            await anyio.sleep(LISTEN_EVERY_S)
            with anyio.fail_after(LISTEN_ANSWER_S):
                workspace = await self.client.workspaces.get(before.id)
            if workspace.last_seen_at != before.last_seen_at:
                return workspace
        return None
