"""The contract of every video backend: embedded, that of another server, on a real MediaMTX, and on stand-ins for
MediaMTX and Cloudflare."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import final

import orjson
import pytest
import trio

from sightline.actors.ownership.routes import Routes
from sightline.actors.remote.peers import Peers
from sightline.actors.remote.video_peers import RemoteVideoPeers
from sightline.bus.memory import MemoryNetwork
from sightline.domain.errors import VideoUnavailableError
from sightline.ports.video import FrameMissing, FrameMissingReason, FrameQuery, MediaKind, SignalRequest, VideoBackend
from sightline.system.clock import SystemClock
from sightline.video.cluster.backend import ClusterBackend, open_cluster_backend
from sightline.video.embedded import open_embedded
from sightline.video.external.cloudflare import Cloudflare, CloudflareOptions
from sightline.video.external.engine import Engine, ExternalBackend, open_external
from sightline.video.external.mediamtx import MediaMtx, MediaMtxOptions
from sightline.video.options import Options
from tests.video.support.engines import FakeCloudflare, FakeMediaMtx
from tests.video.support.harness import (
    SECRET,
    Middle,
    Recorder,
    a_frame,
    a_rig,
    a_session_id,
    counter_of,
    play_json,
    publishing,
    signal_handler,
)
from tests.video.support.http_server import Reply, listen, serve
from tests.video.support.real_engines import a_mediamtx, hooks_of

OPTIONS = Options(secret=SECRET, public_url="http://unused", workers=1, takeover_grace_ms=1000)


@dataclass
class Setup(Recorder):
    """A backend under test and the engine that it uses."""

    engine: FakeMediaMtx | FakeCloudflare | None = None
    adapter: Engine | None = None


@asynccontextmanager
async def embedded() -> AsyncIterator[Setup]:
    async with a_rig(OPTIONS) as rig:
        yield Setup(backend=rig.backend, events=rig.events, _more=rig._more)


@final
class AtAnotherServer:
    """A session of one server whose publishers, viewers and pollers use another one. Implements `VideoBackend`."""

    def __init__(self, home: ClusterBackend, other: ClusterBackend) -> None:
        self.create_input, self.events = home.create_input, home.events
        self.reopen_input, self.describe_input = other.reopen_input, other.describe_input
        self.frame, self.signal, self.close_input = other.frame, other.signal, other.close_input


@asynccontextmanager
async def cluster() -> AsyncIterator[Setup]:
    listeners, public_url = await listen()
    internal_listeners, internal_url = await listen()
    options = replace(OPTIONS, public_url=public_url)
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        backends = []
        for name in ("home", "other"):
            own = await stack.enter_async_context(open_embedded(options, clock=SystemClock()))
            peers = Peers(network.join(name), Routes(name))
            peers.routes.read({"home": (), "other": ()})
            await nursery.start(peers.run)
            port = RemoteVideoPeers(peers, lambda _: False)
            opened = open_cluster_backend(own, port, url=internal_url, secret=SECRET, clock=SystemClock())
            backends.append(await stack.enter_async_context(opened))
        home, other = backends

        async def frames(_method: str, target: str, headers: dict[str, str], _body: bytes) -> Reply:
            reply = await home.answer_frame(target.rpartition("/")[2], headers)
            return reply.status, list(reply.headers), reply.body

        serve(nursery, internal_listeners, frames)
        serve(nursery, listeners, signal_handler(other, public_url, Middle()))
        setup = Setup(backend=AtAnotherServer(home, other))
        nursery.start_soon(setup.record)
        yield setup
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _external(adapter: Engine, engine: FakeMediaMtx | FakeCloudflare | None) -> AsyncIterator[Setup]:
    async with open_external(adapter, OPTIONS, clock=SystemClock()) as backend, trio.open_nursery() as nursery:
        setup = Setup(backend=backend, engine=engine, adapter=adapter)
        nursery.start_soon(setup.record)
        yield setup
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def mediamtx() -> AsyncIterator[Setup]:
    listeners, url = await listen()
    async with a_rig(OPTIONS) as rig, trio.open_nursery() as nursery:
        adapter = MediaMtx(MediaMtxOptions(media_url=url, api_url=url, secret=SECRET, poll_ms=200), clock=SystemClock())
        engine = FakeMediaMtx(rig, url, adapter)
        serve(nursery, listeners, engine.handle)
        async with _external(adapter, engine) as setup:
            yield setup
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def cloudflare() -> AsyncIterator[Setup]:
    listeners, url = await listen()
    async with a_rig(OPTIONS) as rig, trio.open_nursery() as nursery:
        engine = FakeCloudflare(rig, url)
        serve(nursery, listeners, engine.handle)
        options = CloudflareOptions(
            account_id="acc", api_token=engine.token, api_url=f"{url}/client/v4", webhook_secret="hook"
        )
        adapter = Cloudflare(options)
        async with _external(adapter, engine) as setup:
            yield setup
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def real_mediamtx() -> AsyncIterator[Setup]:
    listeners, hook_url = await listen()
    async with a_mediamtx(hook_url) as running, trio.open_nursery() as nursery:
        options = MediaMtxOptions(media_url=running.media_url, api_url=running.api_url, secret=SECRET, poll_ms=200)
        adapter = MediaMtx(options, clock=SystemClock())
        async with _external(adapter, None) as setup:
            assert isinstance(setup.backend, ExternalBackend)
            serve(nursery, listeners, hooks_of(setup.backend))
            yield setup
        nursery.cancel_scope.cancel()


Opener = Callable[[], AbstractAsyncContextManager[Setup]]


OPENERS = [embedded, cluster, mediamtx, cloudflare, pytest.param(real_mediamtx, marks=pytest.mark.interop)]


@pytest.mark.parametrize("opener", OPENERS)
async def test_a_session_is_published_watched_polled_and_closed(opener: Opener):
    async with opener() as setup:
        backend: VideoBackend = setup.backend
        made = await backend.create_input(session_id := a_session_id())
        assert await backend.create_input(session_id) == made
        assert backend.describe_input(session_id) == made
        assert len({made.ref, made.whip_url, made.whep_url}) == 3
        nothing = await backend.frame(made.ref, FrameQuery())
        assert nothing == FrameMissing(reason=FrameMissingReason.NOT_DECODED)

        async with publishing(made.whip_url):
            connected = await setup.heard(MediaKind.CONNECTED)
            assert (connected.session_id, connected.ref) == (session_id, made.ref)
            frame = await a_frame(backend, made.ref)
            assert counter_of(frame.jpeg) is not None
            proof = await setup.heard(MediaKind.FRAMES)
            assert proof.at_ms >= connected.at_ms - 2000
            assert (await play_json(made.whep_url, 1.0))["frames"] > 10
        await setup.heard(MediaKind.DISCONNECTED)
        assert [event.kind for event in setup.events].count(MediaKind.CONNECTED) == 1
        assert [event.kind for event in setup.events].count(MediaKind.DISCONNECTED) == 1

        await backend.close_input(made.ref)
        await backend.close_input(made.ref)
        await backend.close_input("another backend's")
        closed = await backend.frame(made.ref, FrameQuery())
        assert isinstance(closed, FrameMissing)
        forged = SignalRequest(kind="whip", method="POST", token="x" * 48, headers={"content-type": "application/sdp"})
        assert (await backend.signal(forged)).status == 404


async def test_mediamtx_lets_in_only_who_holds_the_token_of_an_open_session():
    adapter = MediaMtx(MediaMtxOptions(media_url="http://m", api_url="http://m", secret=SECRET), clock=SystemClock())
    session_id = a_session_id()
    made = adapter.describe(session_id)
    adapter._open.add(session_id)
    publish, play = (url.partition("?")[2] for url in (made.whip_url, made.whep_url))

    def may(**changes: object) -> bool:
        asked = {"action": "publish", "path": made.ref, "query": publish, "protocol": "webrtc", "ip": "::1"} | changes
        return adapter.authorize(orjson.dumps(asked))

    assert may()
    assert may(action="read", query=play)
    assert may(query="", token=publish.removeprefix("token="))
    assert not may(query=play)
    assert not may(action="read", query=publish)
    assert not may(action="api")
    assert not may(path="live_" + "0" * 32)
    assert not may(path="other")
    assert not may(query="")
    assert not adapter.authorize(b"no json")
    adapter._open.clear()
    assert not may(), "a closed session's token is worth nothing"


async def test_mediamtx_clients_are_thrown_out_when_the_session_closes():
    async with mediamtx() as setup:
        made = await setup.backend.create_input(a_session_id())
        assert isinstance(setup.engine, FakeMediaMtx)
        async with publishing(made.whip_url):
            await setup.heard(MediaKind.CONNECTED)
            await setup.backend.close_input(made.ref)
        assert len(setup.engine.kicked) == 1


async def test_cloudflare_inputs_are_found_again_after_a_restart_and_deleted_at_the_end():
    async with cloudflare() as setup:
        engine, session_id = setup.engine, a_session_id()
        assert isinstance(engine, FakeCloudflare)
        assert isinstance(setup.adapter, Cloudflare)
        made = await setup.backend.create_input(session_id)
        again = Cloudflare(setup.adapter._options)
        assert (await again.open(session_id)).input == made
        assert len(engine.inputs) == 1
        engine.failing = True
        with pytest.raises(VideoUnavailableError):
            await setup.backend.create_input(a_session_id())
        with pytest.raises(VideoUnavailableError):
            setup.backend.describe_input(a_session_id())
        engine.failing = False
        await setup.backend.close_input(made.ref)
        assert engine.inputs == {}


async def test_cloudflare_notifications_count_only_with_the_secret_and_for_known_inputs():
    async with cloudflare() as setup:
        engine, session_id = setup.engine, a_session_id()
        assert isinstance(engine, FakeCloudflare)
        assert isinstance(setup.adapter, Cloudflare)
        assert isinstance(setup.backend, ExternalBackend)
        await setup.backend.create_input(session_id)
        (uid,) = engine.inputs
        event = {
            "name": "Live Webhook Test",
            "text": "Notification type: Stream Live Input",
            "data": {
                "notification_name": "Stream Live Input",
                "input_id": uid,
                "event_type": "live_input.connected",
                "updated_at": "2026-11-20T17:27:40.012Z",
            },
            "ts": 1795195660,
        }
        body = orjson.dumps(event)
        signed = {"cf-webhook-auth": "hook"}
        assert setup.adapter.read_notification({"cf-webhook-auth": "guess"}, body) is None
        assert setup.adapter.read_notification({}, body) is None
        assert setup.adapter.read_notification(signed, b"[]") is None
        assert setup.adapter.read_notification(signed, body.replace(uid.encode(), b"other")) is None
        told = setup.adapter.read_notification(signed, body)
        assert told is not None
        assert (told.session_id, told.connected, told.at_ms) == (session_id, True, 1795195660012)
        setup.backend.report(told.session_id, told.connected, told.at_ms)
        setup.backend.report(told.session_id, told.connected, told.at_ms)
        assert (await setup.heard(MediaKind.CONNECTED)).at_ms == told.at_ms


async def test_an_engine_that_is_down_makes_inputs_unavailable():
    adapter = MediaMtx(
        MediaMtxOptions(media_url="http://127.0.0.1:9", api_url="http://127.0.0.1:9", secret=SECRET),
        clock=SystemClock(),
    )
    with pytest.raises(VideoUnavailableError):
        await adapter.open(a_session_id())
