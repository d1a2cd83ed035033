"""Attacks by callbacks of external media servers, and by what such a server answers."""

import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.attack.catalogue import Kind, attack
from tests.attack.rows.service.on_servers import a_service, internal
from tests.attack.target import Target, honest_calls
from tests.video.support.http_server import Reply, listen, serve

SECRET = "hook-secret-of-the-account"
JSON = [("content-type", "application/json")]
FLOOD = 3_000
P50_MAX_MS = 200.0


class FakeApi:
    """MediaMTX's API, as far as a server asks it."""

    def __init__(self) -> None:
        self.garbled: bytes | None = None

    async def answer(self, _method: str, _path: str, _headers: object, _body: bytes) -> Reply:
        return 200, JSON, self.garbled or b'{"items": [], "pageCount": 1}'


@asynccontextmanager
async def with_engine(backend: str, **env: str) -> AsyncIterator[tuple[Target, FakeApi]]:
    """A server on a media server that answers as `FakeApi` says."""
    api = FakeApi()
    listeners, url = await listen()
    async with trio.open_nursery() as nursery:
        serve(nursery, listeners, api.answer)
        settings = {"SIGHTLINE_VIDEO_BACKEND": backend} | {name: value.format(url=url) for name, value in env.items()}
        async with a_service(**settings) as target:
            yield target, api
        nursery.cancel_scope.cancel()


def notification(event: str, **changes: object) -> bytes:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"input_id": "an-input", "event_type": f"live_input.{event}", "updated_at": at} | changes
    return json.dumps({"data": said}).encode()


CLOUDFLARE = {
    "SIGHTLINE_VIDEO_CLOUDFLARE_ACCOUNT": "acc",
    "SIGHTLINE_VIDEO_CLOUDFLARE_TOKEN": "token",
    "SIGHTLINE_VIDEO_CLOUDFLARE_HOOK_SECRET": SECRET,
}


@attack(
    "hooks", f"Cloudflare's notifications: forged, of other types, huge, compressed, and {FLOOD} at once", Kind.APART
)
async def cloudflare_hooks(_target: Target) -> str:
    async with a_service(SIGHTLINE_VIDEO_BACKEND="cloudflare", **CLOUDFLARE) as target:
        url = internal(target, "engines/cloudflare")
        signed, tenant = {"cf-webhook-auth": SECRET}, await target.tenant("CONSUMER")
        good = notification("connected")
        statuses: dict[str, int] = {}
        tries: dict[str, tuple[dict[str, str], bytes]] = {
            "no secret": ({}, good),
            "wrong secret": ({"cf-webhook-auth": "x" * len(SECRET)}, good),
            "secret twice": ({"cf-webhook-auth": f"{SECRET},{SECRET}"}, good),
            "no JSON": (signed, b"{"),
            "a list": (signed, b"[]"),
            "deep": (signed, b"[" * 50_000),
            "numbers": (signed, b'{"data":' + b"9" * 5_000 + b"}"),
            "year 1": (signed, notification("connected", updated_at="0001-01-01T00:00:00+23:59")),
            "types": (signed, notification("connected", input_id=["x"])),
            "unknown input": (signed, good),
            "huge": (signed, b"x" * 1_000_000),
            "gzip": (signed | {"content-encoding": "gzip"}, gzip.compress(bytes(10_000_000))),
        }
        for name, (headers, body) in tries.items():
            answer = await target.http.post(url, content=body, headers={"content-type": "application/json", **headers})
            statuses[name] = answer.status_code
            assert answer.status_code < 500, (name, answer.status_code)
        for name in ("no secret", "wrong secret", "secret twice"):
            assert statuses[name] == 401, (name, statuses[name])
        assert statuses["huge"] == 413, statuses
        async with honest_calls(f"{target.url}/api/v1/me", tenant.key) as latency:
            async with trio.open_nursery() as nursery:
                limiter = trio.CapacityLimiter(50)

                async def post() -> None:
                    async with limiter:
                        answer = await target.http.post(url, content=good, headers={"content-type": "application/json"})
                    assert answer.status_code in (401, 429, 503), answer.status_code

                for _ in range(FLOOD):
                    nursery.start_soon(post)
            await latency.measured(20)
        assert latency.quantile_ms(50) < P50_MAX_MS
    return (
        f"{len(tries)} without effect; flood: second tenant p50 {latency.quantile_ms(50):.0f} ms, "
        f"p99 {latency.quantile_ms(99):.0f} ms"
    )


MEDIAMTX = {"SIGHTLINE_VIDEO_MEDIAMTX_URL": "{url}", "SIGHTLINE_VIDEO_MEDIAMTX_API_URL": "{url}"}
GARBLED = {"HTML": b"<html>", "a list": b"[]", "other types": b'{"items": 5, "pageCount": "many"}', "null": b"null"}


@attack(
    "hooks",
    "MediaMTX's callbacks: forged and of other types; a MediaMTX that answers HTML",
    Kind.APART,
    before="BROKEN: the server ended when MediaMTX answered HTML",
)
async def mediamtx_hooks(_target: Target) -> str:
    async with with_engine("mediamtx", **MEDIAMTX) as (target, api):
        url = internal(target, "engines/mediamtx")
        consumer, operator = await target.tenant("CONSUMER"), await target.operator()
        started = await target.live_session(consumer, operator)
        other = await target.live_session(await target.tenant("CONSUMER"), await target.operator())
        path, query = started["whipUrl"].split("/")[-2], started["whipUrl"].partition("?")[2]
        asked = {"action": "publish", "path": path, "query": query, "protocol": "webrtc"}
        other_path = other["whipUrl"].split("/")[-2]
        assert (await target.http.post(url, json=asked)).status_code == 200
        for name, change in {
            "no token": {"query": ""},
            "another session": {"path": other_path},
            "another action": {"action": "read"},
            "an unknown session": {"path": "live_" + "0" * 32},
            "types": {"path": ["x"], "query": {"token": 5}, "token": None},
            "many tokens": {"query": "token=x&" * 5_000 + query},
            "action of the API": {"action": "api"},
        }.items():
            answer = await target.http.post(url, json=asked | change)
            assert 400 <= answer.status_code < 500, (name, answer.status_code)
        for content in (b"", b"[" * 50_000, b"\xff"):
            sent = await target.http.post(url, content=content, headers={"content-type": "application/json"})
            assert 400 <= sent.status_code < 500, sent.status_code
        for garbled in GARBLED.values():
            api.garbled = garbled
            await trio.sleep(2)  # the server polls every 1.5 s
            assert target.server.process is not None
            assert target.server.process.poll() is None, "the server ended"
            assert (await target.call("GET", "/health")).status_code == 200
        api.garbled = None
    return f"10 refused; the server goes on after {len(GARBLED)} answers of another form"
