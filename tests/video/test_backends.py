"""The contract of every video backend: embedded, that of another server, on a real MediaMTX, and on stand-ins for
MediaMTX and Cloudflare."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import final

import orjson
import pytest
import trio

from sightline.cluster.bus.memory import MemoryNetwork
from sightline.cluster.peers.peers import Peers
from sightline.cluster.routes import Routes
from sightline.cluster.video.backend import ClusterBackend, open_cluster_backend
from sightline.cluster.video.peers import RemoteVideoPeers
from sightline.domain.errors import VideoUnavailableError
from sightline.domain.value import replace
from sightline.ports.video import (
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    MediaKind,
    SignalRequest,
    VideoBackend,
    VideoInput,
)
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.video.embedded import open_embedded
from sightline.video.external.cloudflare import Cloudflare, CloudflareOptions
from sightline.video.external.engine import Engine, ExternalBackend, open_external
from sightline.video.external.mediamtx import MediaMtx, MediaMtxOptions
from sightline.video.options import Options
from sightline.video.worker_template import open_template
from tests.e2e.server import until
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
from tests.video.support.rights import KEY, SIGN_IN, Rights

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
        template = await stack.enter_async_context(open_template())
        for name in ("home", "other"):
            own = await stack.enter_async_context(open_embedded(options, template, clock=SystemClock()))
            peers = Peers(network.join(name), Routes(name))
            peers.routes.read({"home": (), "other": ()}, urls={"home": internal_url})
            await nursery.start(peers.run)
            port = RemoteVideoPeers(peers, lambda _: False)
            opened = open_cluster_backend(
                own, port, url=internal_url, secret=SECRET, clock=SystemClock(), ids=SystemIds()
            )
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
    async with (
        open_template() as template,
        open_external(adapter, OPTIONS, template, clock=SystemClock()) as backend,
        trio.open_nursery() as nursery,
    ):
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
            assert (await play_json(made.whep_url, 2.0))["frames"] > 3
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


def a_presence_report(session_id: str, connected: bool, at_ms: int) -> None:
    raise AssertionError(f"{session_id} {connected} {at_ms}")


async def test_mediamtx_lets_in_only_who_holds_the_token_of_an_open_session():
    adapter = MediaMtx(MediaMtxOptions(media_url="http://m", api_url="http://m", secret=SECRET), clock=SystemClock())
    session_id = a_session_id()
    made = adapter.describe(session_id)
    adapter._open.add(session_id)
    publish, play = (url.partition("?")[2] for url in (made.whip_url, made.whep_url))

    async def may(**changes: object) -> bool:
        asked = {"action": "publish", "path": made.ref, "query": publish, "protocol": "webrtc", "ip": "::1"} | changes
        return await adapter.hook({}, orjson.dumps(asked), a_presence_report) == 200

    assert await may()
    assert await may(action="read", query=play)
    assert await may(query="", token=publish.removeprefix("token="))
    assert not await may(query=play)
    assert not await may(action="read", query=publish)
    assert not await may(action="api")
    assert not await may(path="live_" + "0" * 32)
    assert not await may(path="other")
    assert not await may(query="")
    assert await adapter.hook({}, b"no json", a_presence_report) == 401
    adapter._open.clear()
    assert not await may(), "a closed session's token is worth nothing"


async def test_mediamtx_asks_who_may_watch_when_a_viewer_comes_and_while_it_watches():
    listeners, url = await listen()
    rights = Rights(KEY, SIGN_IN)
    async with a_rig(OPTIONS) as rig, trio.open_nursery() as nursery:
        options = MediaMtxOptions(media_url=url, api_url=url, secret=SECRET, poll_ms=200, recheck_ms=50)
        adapter = MediaMtx(options, clock=SystemClock(), access=rights.access)
        engine = FakeMediaMtx(rig, url, adapter)
        serve(nursery, listeners, engine.handle)
        async with _external(adapter, engine) as setup:
            made = await setup.backend.create_input(a_session_id())
            by_key, by_wallet = (setup.backend.whep_url_for(made.whep_url, each) for each in (KEY, SIGN_IN))
            async with publishing(made.whip_url):
                await setup.heard(MediaKind.CONNECTED)
                assert (await play_json(by_key, 2.0))["frames"] > 3
                assert (await play_json(by_wallet, 2.0))["frames"] > 3
                assert engine.kicked == []
                rights.allowed.discard(SIGN_IN)
                await until(lambda: _copy(engine.kicked), bool, "kicked")
                assert engine.kicked == [by_wallet.partition("?")[2]], "neither the key nor our own reader"
                assert (await play_json(by_wallet, 2.0))["frames"] == 0
                assert (await play_json(by_key, 2.0))["frames"] > 3
        nursery.cancel_scope.cancel()


async def _copy(rows: list[str]) -> list[str]:
    await trio.lowlevel.checkpoint()
    return list(rows)


async def test_mediamtx_clients_are_thrown_out_when_the_session_closes():
    async with mediamtx() as setup:
        made = await setup.backend.create_input(a_session_id())
        assert isinstance(setup.engine, FakeMediaMtx)
        async with publishing(made.whip_url):
            await setup.heard(MediaKind.CONNECTED)
            await setup.backend.close_input(made.ref)
        publishers = [each for each in setup.engine.kicked if not each.startswith("token=")]
        assert len(publishers) == 1


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


NOTIFICATION = {
    "input_id": "known",
    "event_type": "live_input.connected",
    "updated_at": "2026-11-20T17:27:40.012Z",
}


def a_notification(**changes: object) -> bytes:
    return orjson.dumps({"data": NOTIFICATION | changes})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"null",
        b"[" * 5_000,
        b'{"data": []}',
        a_notification(input_id="of another account"),
        a_notification(input_id=["known"]),
        a_notification(input_id={"a": 1}),
        a_notification(event_type=["live_input.connected"]),
        a_notification(event_type="live_input.invented"),
        a_notification(updated_at=5),
        a_notification(updated_at="soon"),
        a_notification(updated_at="0001-01-01T00:00:00+23:59"),
        a_notification(updated_at="0001-01-01T00:00:00"),
    ],
)
@pytest.mark.parametrize("secret", ["hook", "guess"])
async def test_a_notification_of_another_form_or_without_the_secret_changes_nothing(body: bytes, secret: str) -> None:
    adapter = Cloudflare(CloudflareOptions(account_id="acc", api_token="t", webhook_secret="hook"))
    adapter._inputs["a session"] = ("known", VideoInput(ref="r", whip_url="", whep_url=""))
    told: list[tuple[str, bool, int]] = []
    status = await adapter.hook({"cf-webhook-auth": secret}, body, lambda *said: told.append(said))
    assert status == (200 if secret == "hook" else 401)
    assert told == []


async def test_a_notification_that_is_late_or_repeated_says_nothing_about_the_present() -> None:
    adapter = Cloudflare(CloudflareOptions(account_id="acc", api_token="t", webhook_secret="hook"))
    adapter._inputs["a session"] = ("known", VideoInput(ref="r", whip_url="", whep_url=""))
    told: list[bool] = []

    def hear(_session_id: str, connected: bool, _at_ms: int) -> None:
        told.append(connected)

    for second, event in (
        (10, "connected"),
        (12, "disconnected"),
        (10, "connected"),
        (11, "connected"),
        (12, "errored"),
    ):
        body = a_notification(event_type=f"live_input.{event}", updated_at=f"2026-11-20T17:27:{second}Z")
        assert await adapter.hook({"cf-webhook-auth": "hook"}, body, hear) == 200
    assert told == [True, False]


ANSWERS = {
    "no JSON": b"<html>",
    "a list": b"[]",
    "null": b"null",
    "rows of another type": b'{"items": 5, "pageCount": 1, "success": true, "result": 5}',
    "pages of another type": b'{"items": [], "pageCount": "many", "success": true, "result": {"liveInputs": [5]}}',
    "too long": b'{"items": ["' + b"x" * (17 << 20) + b'"]}',
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_engine_that_answers_something_else_makes_inputs_unavailable(answer: str) -> None:
    async def answers(*_: object) -> Reply:
        return 200, [("content-type", "application/json")], ANSWERS[answer]

    listeners, url = await listen()
    async with trio.open_nursery() as nursery:
        serve(nursery, listeners, answers)
        cloudflare = Cloudflare(CloudflareOptions(account_id="acc", api_token="t", api_url=url))
        with pytest.raises(VideoUnavailableError):
            await cloudflare.open(a_session_id())
        options = MediaMtxOptions(media_url=url, api_url=url, secret=SECRET, poll_ms=1)
        mediamtx = MediaMtx(options, clock=SystemClock())
        with pytest.raises(VideoUnavailableError):
            await mediamtx._list("paths")
        with trio.move_on_after(0.2):
            await mediamtx.watch(a_presence_report)
            raise AssertionError("the poll ended")
        nursery.cancel_scope.cancel()


async def test_an_engine_that_is_down_makes_inputs_unavailable():
    adapter = MediaMtx(
        MediaMtxOptions(media_url="http://127.0.0.1:9", api_url="http://127.0.0.1:9", secret=SECRET),
        clock=SystemClock(),
    )
    with pytest.raises(VideoUnavailableError):
        await adapter.open(a_session_id())
