"""Helpers of the video tests: the backend behind a small real HTTP server, publishers and viewers as processes.

The HTTP side is a few lines on h11, so that these tests import no other package of Sightline; it forwards like the real
HTTP layer.
"""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simplejpeg
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.domain.value import replace
from sightline.ports.video import (
    Frame,
    FrameMissing,
    FrameQuery,
    MediaEvent,
    MediaKind,
    SignalReply,
    SignalRequest,
    VideoBackend,
    WatchAccess,
)
from sightline.system.clock import SystemClock
from sightline.video.embedded import EmbeddedBackend, open_embedded
from sightline.video.options import Options
from sightline.video.worker_template import open_template
from sightline_client.video.assets import clip_path, read_counter
from tests.video.support.http_server import Handler, Reply, listen, serve
from tests.video.support.lossy import LossyLink, strip_candidates

SECRET = b"tests only, 32 bytes of secret.."


@dataclass
class Middle:
    """What the test HTTP server changes in media: nothing, or a lossy link for publishers or viewers."""

    nursery: trio.Nursery | None = None
    links: dict[str, LossyLink] = field(default_factory=dict)
    answered: list[tuple[str, str, int]] = field(default_factory=list)
    """Kind, method and status of each request."""

    async def signal(self, backend: VideoBackend, request: SignalRequest) -> SignalReply:
        reply = await self._signal(backend, request)
        self.answered.append((request.kind, request.method, reply.status))
        return reply

    async def _signal(self, backend: VideoBackend, request: SignalRequest) -> SignalReply:
        link = self.links.get(request.kind)
        if link is None or request.method != "POST" or self.nursery is None:
            return await backend.signal(request)
        reply = await backend.signal(replace(request, body=strip_candidates(request.body)))
        return replace(reply, body=await link.rewrite_answer(self.nursery, reply.body))


def signal_handler(backend: VideoBackend, base_url: str, middle: Middle) -> Handler:
    """Forwards every request to the backend, as the real HTTP layer does."""

    async def handle(method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        parts = target.strip("/").split("/")
        request = SignalRequest(
            kind=parts[0],
            method=method,
            token=parts[1],
            resource=parts[2] if len(parts) > 2 else None,
            headers=headers,
            body=body,
            base_url=base_url,
        )
        reply = await middle.signal(backend, request)
        return reply.status, list(reply.headers), reply.body

    return handle


@dataclass
class Recorder:
    """Records a backend's media events."""

    backend: VideoBackend
    events: list[MediaEvent] = field(default_factory=list)
    _more: trio.Condition = field(default_factory=trio.Condition)

    async def heard(self, kind: MediaKind, *, after: int = 0, within_s: float = 120) -> MediaEvent:
        """Wait for the first event of a kind at or after a position in the record."""
        with trio.fail_after(within_s):
            async with self._more:
                while True:
                    for event in self.events[after:]:
                        if event.kind is kind:
                            return event
                    await self._more.wait()

    async def record(self) -> None:
        async for event in self.backend.events():
            async with self._more:
                self.events.append(event)
                self._more.notify_all()


@dataclass
class Rig(Recorder):
    """A running embedded backend with its HTTP server."""

    backend: EmbeddedBackend
    base_url: str = ""
    answered: list[tuple[str, str, int]] = field(default_factory=list)
    """Kind, method and status of each WHIP or WHEP request."""


@asynccontextmanager
async def a_rig(
    options: Options | None = None,
    *,
    links: dict[str, LossyLink] | None = None,
    access: WatchAccess | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    public_host: str = "",
) -> AsyncIterator[Rig]:
    """Run the backend and serve its signalling, by default on a free loopback port.

    Args:
        links: By kind of request; later changes apply to later offers.
        public_host: Address by which clients reach it, if it is another than `host`.
    """
    listeners, base_url = await listen(host, port)
    base_url = base_url.replace(host, public_host or host)
    chosen = options or Options(secret=SECRET, public_url=base_url, workers=1)
    chosen = replace(chosen, public_url=base_url)
    async with (
        open_template() as template,
        open_embedded(chosen, template, clock=SystemClock(), access=access) as backend,
        trio.open_nursery() as nursery,
    ):
        rig = Rig(backend=backend, base_url=base_url)
        nursery.start_soon(rig.record)
        middle = Middle(nursery, {} if links is None else links, rig.answered)
        serve(nursery, listeners, signal_handler(backend, base_url, middle))
        try:
            yield rig
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def publishing(
    whip_url: str,
    *,
    path: str | None = None,
    extra: list[str] | None = None,
    show: bool = False,
    inside: tuple[str, ...] = (),
) -> AsyncIterator[Any]:
    """Publish the clip from a separate process; end it by SIGTERM, as a user of the command line would.

    Args:
        inside: Start of the command that runs it in a network namespace.
    """
    command = [
        *inside,
        sys.executable,
        "-m",
        "sightline_client.video.publish",
        path or str(clip_path()),
        *(extra or []),
    ]
    stderr = subprocess.PIPE if show else None
    env = os.environ | {"SIGHTLINE_WHIP_URL": whip_url}
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=stderr, env=env)
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(10):
            if process.returncode is None:
                process.terminate()
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def play_json(whep_url: str, seconds: float, *, inside: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the report of a player process."""
    command = [*inside, sys.executable, "-m", "sightline_client.video.play", "--seconds", str(seconds), "--json"]
    env = os.environ | {"SIGHTLINE_WHEP_URL": whep_url}
    result = await trio.run_process(command, capture_stdout=True, check=False, env=env)
    return json.loads(result.stdout) if result.stdout else {"frames": 0, "exit": result.returncode}


async def a_frame(backend: VideoBackend, ref: str, query: FrameQuery | None = None, *, within_s: float = 120) -> Frame:
    """Poll as an agent would and return the first frame."""
    wanted = query or FrameQuery()
    reply: Frame | FrameMissing | None = None
    with trio.move_on_after(within_s):
        while True:
            with contextlib.suppress(VideoUnavailableError):  # a worker is being replaced: poll again
                reply = await backend.frame(ref, wanted)
            if isinstance(reply, Frame):
                return reply
            await trio.sleep(0.05)  # interval of a poller, not a wait for a condition
    raise AssertionError(f"no frame within {within_s} s, last answer {reply}")


async def next_frame(backend: VideoBackend, ref: str, after: int, *, width: int | None = None) -> Frame:
    """Return a frame newer than `after`."""
    reply = await backend.frame(ref, FrameQuery(after=after, wait_ms=5000, width=width))
    assert isinstance(reply, Frame), reply
    return reply


def counter_of(jpeg: bytes) -> int | None:
    """Return the frame number drawn in a JPEG of the clip; None if that part of the picture is damaged."""
    grey = simplejpeg.decode_jpeg(jpeg, colorspace="GRAY")[:, :, 0]

    def luma_at(x: int, y: int) -> float:
        return float(np.mean(grey[max(0, y - 3) : y + 4, max(0, x - 3) : x + 4]))

    return read_counter(luma_at, grey.shape[1])


def a_session_id() -> str:
    """Return a new session id."""
    return str(uuid.uuid4())
