"""Attacks on the HTTP server: floods, smuggling, oversized input, caches that an attacker fills."""

import json
from uuid import UUID

import httpx
import trio

from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target, running

BOTH_LENGTHS = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
SMUGGLED = (
    b"POST / HTTP/1.1\r\nHost: x\r\n" + BOTH_LENGTHS + b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX : a\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
)


@attack("held", "Ambiguous HTTP/1.1 requests")
async def smuggling(target: Target) -> str:
    for request in SMUGGLED:
        answer = await target.raw(request, wait_s=3)
        status = answer[9:12]
        assert status in (b"400", b"413", b"421", b"431", b"501", b""), (request, answer[:100])
        assert answer.count(b"HTTP/1.1 ") <= 1, "a second response came from one request"
    return f"{len(SMUGGLED)} refused"


@attack("held", "Slowloris: 100 connections that send a byte a second", Kind.FLOOD)
async def slowloris(target: Target) -> str:
    cut = 0

    async def drip() -> None:
        nonlocal cut
        async with await trio.open_tcp_stream("127.0.0.1", target.server.port) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n")
            with trio.move_on_after(90):
                try:
                    while True:
                        await stream.send_all(b"X")
                        await trio.sleep(1)
                except trio.BrokenResourceError:
                    cut += 1

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(drip)
    assert cut == 100, f"{cut} of 100 cut"
    return "100 of 100 cut"


@attack("M8", "3,000 long paths fill the router's cache", Kind.FLOOD)
async def long_paths(target: Target) -> str:
    before = target.memory_bytes()
    for number in range(3_000):
        await target.http.get(f"{target.url}/api/v1/{number}/{'x' * 7_000}")
    grown = target.memory_bytes() - before
    assert grown < 15_000_000, f"{grown / 1e6:.0f} MB"
    return f"memory grew by {grown / 1e6:.1f} MB"


@attack("M9", "Frame requests for sessions that do not exist are unlimited", Kind.FLOOD)
async def unknown_frames(target: Target) -> str:
    tenant = await target.tenant("CONSUMER")
    statuses: list[int] = []

    async def ask(number: int) -> None:
        answer = await target.call("GET", f"/sessions/{UUID(int=number)}/frame", tenant.key)
        statuses.append(answer.status_code)

    started = trio.current_time()
    for first in range(0, 1_200, 100):
        async with trio.open_nursery() as nursery:
            for number in range(first, first + 100):
                nursery.start_soon(ask, number)
    took_s = trio.current_time() - started
    # The class `frames` allows 400 at once and 200 a second.
    allowed, limit = statuses.count(404), 400 + 200 * took_s
    assert allowed <= limit + 1, f"{allowed} allowed in {took_s:.1f} s"
    return f"{allowed} of {len(statuses)} in {took_s:.1f} s"


@attack("M9", "Four keys of one workspace have four budgets")
async def budget_per_key(target: Target) -> str:
    tenant = await target.tenant("CONSUMER")
    first = await target.call("GET", "/me", tenant.key)
    quota = first.headers["ratelimit"]
    async with httpx.AsyncClient(base_url=target.url) as http:
        signed = await http.get("/api/v1/me", headers={"authorization": f"Bearer {tenant.key}"})
    assert "default" in quota
    assert signed.status_code == 200
    return f"counted per workspace ({quota})"


@attack("low", "/config names a host of the caller's choice")
async def host_in_config(target: Target) -> str:
    answer = await target.http.get(f"{target.url}/api/v1/config", headers={"host": "evil.example"})
    assert "evil.example" not in answer.text, answer.text[:200]
    return "the caller's Host is not repeated"


@attack("low", "A page of another site reads the internal listener by DNS rebinding")
async def rebound_internal(target: Target) -> str:
    address_file = trio.Path(target.server.directory / "data" / "server.json")
    internal = json.loads(await address_file.read_text())["internalUrl"]
    answer = await target.http.get(f"{internal}/metrics", headers={"host": "evil.example"})
    assert answer.status_code in (400, 403, 421), answer.status_code
    return f"{answer.status_code}"


@attack("ASVS 3.4", "Pages without security headers")
async def security_headers(target: Target) -> str:
    answer = await target.http.get(f"{target.url}/docs")
    policy = answer.headers.get("content-security-policy", "")
    assert "frame-ancestors 'none'" in policy, policy
    assert answer.headers.get("x-content-type-options") == "nosniff"
    assert answer.headers.get("referrer-policy") == "no-referrer"
    return "CSP, nosniff and no-referrer on /docs"


CLAIMS = 30


@attack(
    "B4",
    "30 spoofed X-Forwarded-For, behind a proxy of a trusted network",
    before="callers of the proxy shared one address: 20 of 30 honest ones answered, 10 locked out of signing in",
)
async def spoofed_addresses(target: Target) -> str:
    directory = target.server.directory / "proxied"
    directory.mkdir()
    env = {
        "SIGHTLINE_TRUSTED_PROXIES": "127.0.0.0/8",
        "SIGHTLINE_RATE_LIMITS": "true",
        "SIGHTLINE_VIDEO_WORKERS": "1",
    }

    async def challenges(url: str, *said: str) -> int:
        body = {"walletAddress": "0x" + "1" * 40}
        answered = 0
        for each in said:
            headers = {"x-forwarded-for": each}
            answer = await target.http.post(f"{url}/api/v1/auth/wallet/challenge", json=body, headers=headers)
            assert answer.status_code in (200, 429), answer.text
            answered += answer.status_code == 200
        return answered

    async with running(directory, env) as server:
        honest = await challenges(server.url, *(f"198.51.100.{number}" for number in range(CLAIMS)))
        spoofed = await challenges(server.url, *(f"6.6.6.{number}, 203.0.113.7" for number in range(CLAIMS)))
    assert honest == CLAIMS, f"{honest} of {CLAIMS} honest callers answered"
    assert spoofed <= 21, f"{spoofed} of {CLAIMS} calls of one caller answered"
    return f"{honest} of {CLAIMS} honest callers answered; {spoofed} of {CLAIMS} calls of the one that spoofs"
