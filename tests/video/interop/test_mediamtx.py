"""A real MediaMTX with the settings of the manual, tested with a whole server and with the adapter alone."""

import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import simplejpeg
import trio

from sightline.domain.value import replace
from sightline.ports.video import Frame, FrameQuery, MediaKind
from sightline.system.clock import SystemClock
from sightline.video.external.engine import ExternalBackend, open_external
from sightline.video.external.mediamtx import MediaMtx, MediaMtxOptions
from sightline.video.options import Options
from sightline.video.worker_template import open_template
from sightline_client import Frame as JpegFrame
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until
from tests.groups import rest_at_night
from tests.video.interop.browser import Page, a_browser
from tests.video.support.harness import (
    SECRET,
    Recorder,
    a_frame,
    a_session_id,
    counter_of,
    next_frame,
    play_json,
    publishing,
)
from tests.video.support.http_server import listen, serve
from tests.video.support.real_engines import RealMediaMtx, a_mediamtx, free_ports, hooks_of, mediamtx_ports

OPTIONS = Options(secret=SECRET, public_url="http://unused", workers=1, takeover_grace_ms=1000)


@dataclass(kw_only=True)
class Adapted(Recorder):
    """The adapter connected to a real engine."""

    backend: ExternalBackend
    engine: RealMediaMtx
    restart: Callable[[], Awaitable[None]]


@asynccontextmanager
async def adapted(**changes: int) -> AsyncIterator[Adapted]:
    listeners, hook_url = await listen()
    ports = mediamtx_ports()
    async with AsyncExitStack() as life, trio.open_nursery() as nursery:
        engine = await life.enter_async_context(a_mediamtx(hook_url, ports))
        options = MediaMtxOptions(media_url=engine.media_url, api_url=engine.api_url, secret=SECRET, poll_ms=200)
        adapter = MediaMtx(replace(options, **changes), clock=SystemClock())
        async with (
            open_template() as template,
            open_external(adapter, OPTIONS, template, clock=SystemClock()) as backend,
        ):

            async def restart() -> None:
                await life.aclose()
                await made.heard(MediaKind.DISCONNECTED)
                await life.enter_async_context(a_mediamtx(hook_url, ports))

            made = Adapted(backend=backend, engine=engine, restart=restart)
            nursery.start_soon(made.record)
            serve(nursery, listeners, hooks_of(backend))
            yield made
        nursery.cancel_scope.cancel()


async def refusal(whip_url: str) -> str:
    """Return the error that a publisher without permission receives."""
    async with publishing(whip_url, show=True) as publisher:
        with trio.fail_after(90):
            assert await publisher.wait() == 1
        told: bytes = await publisher.stderr.receive_some(4096)
    return told.decode()


async def test_a_session_of_a_whole_server_lives_on_a_real_mediamtx(data_directory: Path) -> None:
    (internal_port,) = free_ports(socket.SOCK_STREAM)
    server = Server(data_directory, internal_port=internal_port)
    async with a_mediamtx(f"http://127.0.0.1:{internal_port}") as engine:
        server.env = {
            "SIGHTLINE_VIDEO_BACKEND": "mediamtx",
            "SIGHTLINE_VIDEO_MEDIAMTX_URL": engine.media_url,
            "SIGHTLINE_VIDEO_MEDIAMTX_API_URL": engine.api_url,
        }
        try:
            await server.start()
            await live_on(server.url, engine)
            assert await server.stop() == 0
        finally:
            server.end()


async def beat(device: Api, operator: Tenant) -> None:
    """Send heartbeats from the place once a second in an endless loop."""
    for sequence in itertools.count(1):
        await device.post(
            f"/workspaces/{operator.workspace_id}/location",
            lat=PLACE[0],
            lng=PLACE[1],
            accuracyMeters=5,
            sequence=sequence,
        )
        await trio.sleep(1)


async def live_on(url: str, engine: RealMediaMtx) -> None:
    """Bring a session from request to end over the public API."""
    consumer, operator = await a_tenant(url, "CONSUMER", "consumer"), await a_tenant(url, "SUPPLIER", "operator")
    await go_online(url, operator)
    async with Api(url, key=consumer.key) as watcher, Api(url, key=operator.key) as device:
        session_id = (await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600))["id"]
        await device.post(f"/sessions/{session_id}/accept", operatorWorkspaceId=operator.workspace_id)
        whip_url = (await device.post(f"/sessions/{session_id}/start"))["whipUrl"]
        assert whip_url.startswith(engine.media_url)
        assert "authentication failed" in await refusal(f"{whip_url.partition('?')[0]}?token=guess")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat, device, operator)
            async with publishing(whip_url) as publisher:
                whep_url = await watch(watcher, session_id)
                assert whep_url.startswith(engine.media_url)
                await watch_until_logged_out(url, consumer, session_id, engine)
                assert (await watcher.post(f"/sessions/{session_id}/end"))["state"] == "ENDED"
                nursery.cancel_scope.cancel()
                await until(lambda: engine.listing("paths"), lambda rows: rows == [], "paths")
                await until(lambda: engine.listing("webrtcsessions"), lambda rows: rows == [], "clients")
                assert publisher.returncode is None, "thrown out, not gone by itself"
            assert "authentication failed" in await refusal(whip_url)
            assert (await play_json(whep_url, 3.0))["frames"] == 0


async def watch(watcher: Api, session_id: str) -> str:
    """Read the clip as an agent and as a viewer, check that the meter runs, and return the viewer's URL."""

    async def frame() -> JpegFrame | None:
        return await watcher.frame(session_id)

    async def meter() -> dict[str, Any]:
        return await watcher.get(f"/sessions/{session_id}/meter")

    seen = await until(frame, lambda found: found is not None, "first frame")
    assert simplejpeg.decode_jpeg(seen.jpeg).shape == (720, 1280, 3)
    assert counter_of(seen.jpeg) is not None
    await until(meter, lambda found: found["meterState"] == "RUNNING", "meter")
    whep_url = str((await watcher.get(f"/sessions/{session_id}/viewer-token"))["whepUrl"])
    played = await play_json(whep_url, 8.0)
    assert (played["width"], played["height"]) == (1280, 720)
    assert played["frames"] > 15
    return whep_url


async def watch_until_logged_out(url: str, consumer: Tenant, session_id: str, engine: RealMediaMtx) -> None:
    """A viewer of a sign-in is thrown out soon after the sign-in has ended, and is not let in again."""

    async with Api(url) as person, trio.open_nursery() as watching:
        await person.auth.sign_in(consumer.wallet, workspace_id=consumer.workspace_id)
        whep_url = str((await person.get(f"/sessions/{session_id}/viewer-token"))["whepUrl"])

        async def of_person() -> list[dict[str, Any]]:
            query = whep_url.partition("?")[2]
            return [row for row in await engine.listing("webrtcsessions") if row.get("query") == query]

        watching.start_soon(play_json, whep_url, 120.0)
        await until(of_person, lambda rows: [row["state"] for row in rows] == ["read"], "watching")
        await person.post("/auth/logout")
        await until(of_person, lambda rows: rows == [], "thrown out")
        watching.cancel_scope.cancel()
    assert (await play_json(whep_url, 3.0))["frames"] == 0


async def test_sessions_are_told_apart_over_pages_of_the_api() -> None:
    async with adapted(page_rows=1) as setup:
        ids = [a_session_id() for _ in range(3)]
        first, second, third = [await setup.backend.create_input(session_id) for session_id in ids]
        async with publishing(first.whip_url), publishing(second.whip_url), publishing(third.whip_url):
            for one in (first, second, third):
                await a_frame(setup.backend, one.ref)
            await setup.backend.close_input(second.ref)

            async def connected() -> set[str]:
                return {row["path"] for row in await setup.engine.listing("webrtcsessions")}

            await until(connected, lambda paths: paths == {first.ref, third.ref}, "the closed session's clients")
            for one in (first, third):
                frame = await a_frame(setup.backend, one.ref)
                await next_frame(setup.backend, one.ref, frame.sequence)
            kinds = [(event.session_id, event.kind) for event in setup.events]
            for session_id in (ids[0], ids[2]):
                assert kinds.count((session_id, MediaKind.CONNECTED)) == 1
                assert (session_id, MediaKind.DISCONNECTED) not in kinds


async def test_a_publisher_that_died_comes_again_and_frames_go_on() -> None:
    async with adapted() as setup:
        made = await setup.backend.create_input(a_session_id())
        async with publishing(made.whip_url) as died:
            first = await a_frame(setup.backend, made.ref)
            died.kill()
        async with publishing(made.whip_url):
            newer = await setup.backend.frame(made.ref, FrameQuery(after=first.sequence, wait_ms=10_000))
            assert isinstance(newer, Frame), newer
            assert newer.sequence > first.sequence


async def publish_plainly(page: Page, whip_url: str, codec: str) -> None:
    """Publish, and again where MediaMTX has ended the first publication to a path, which it does now and then."""
    for tries_left in (2, 1, 0):
        try:
            await page.run(f"publishPlain({whip_url!r}, {codec!r})")
        except AssertionError as error:
            if not tries_left or '400 {"error":"terminated"}' not in str(error):
                raise
            page.errors.clear()  # the browser logs the 400
        else:
            return


@pytest.mark.alone  # at a high load this happens to most publications
@pytest.mark.parametrize("codec", rest_at_night(["video/VP8", "video/H264"], gate=1))
async def test_a_browser_with_camera_and_microphone_publishes_to_it(client_script: Path, codec: str) -> None:
    async with adapted() as setup, a_browser(client_script) as (browser, url):
        made = await setup.backend.create_input(a_session_id())
        page = await browser.open(url)
        await publish_plainly(page, made.whip_url, codec)
        await setup.heard(MediaKind.FRAMES)
        frame = await a_frame(setup.backend, made.ref)
        assert simplejpeg.decode_jpeg(frame.jpeg).std() > 20, "the fake camera's picture, not a flat one"
        assert (await play_json(made.whep_url, 5.0))["frames"] > 5
        (path,) = await setup.engine.listing("paths")
        assert set(path["tracks"]) == {codec.partition("/")[2], "Opus"}
        assert page.errors == []


async def test_an_engine_that_restarts_is_published_to_and_read_again() -> None:
    async with adapted() as setup:
        made = await setup.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            first = await a_frame(setup.backend, made.ref)
            await setup.restart()
            mark = len(setup.events)
            await setup.heard(MediaKind.CONNECTED, after=mark, within_s=120)
            newer = await setup.backend.frame(made.ref, FrameQuery(after=first.sequence, wait_ms=10_000))
            assert isinstance(newer, Frame), newer
            assert counter_of(newer.jpeg) is not None
