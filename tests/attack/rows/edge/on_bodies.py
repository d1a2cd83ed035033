"""Attacks by bodies that are small on the wire and large, deep or slow once they are read."""

import gzip
import json
import zlib

import httpx

from tests.attack.catalogue import attack
from tests.attack.rows.video.on_video import SDP, whip_urls
from tests.attack.target import Target
from tests.e2e.server import PLACE

GROWTH_MAX_MB = 60.0
CPU_S_MAX = 2.0
JSON = {"content-type": "application/json"}
PLACE_TEXT = b'"lat":%f,"lng":%f' % PLACE
DEEP = 30_000


@attack("bodies", "JSON that is deep or has huge numbers, gzip bombs, a large SDP, on routes with and without a key")
async def hostile_bodies(target: Target) -> str:
    tenant = await target.tenant("CONSUMER")
    _, whip, _ = await whip_urls(target)
    bomb = gzip.compress(bytes(50_000_000))
    key = {"authorization": f"Bearer {tenant.key}"}
    json_bodies: dict[str, bytes] = {
        "deep lists": b"[" * DEEP + b"]" * DEEP,
        "deep objects": b'{"a":' * (DEEP // 3) + b"1" + b"}" * (DEEP // 3),
        "a number of 60,000 digits": b"{" + PLACE_TEXT + b',"maxDurationSeconds":' + b"9" * 60_000 + b"}",
        "1e400": b'{"lat":1e400,"lng":1,"maxDurationSeconds":60}',
        "NaN": b'{"lat":NaN,"lng":1,"maxDurationSeconds":60}',
        "10,000 keys": json.dumps({f"k{number}": 0 for number in range(5_000)}).encode(),
        "the same key 5,000 times": b"{" + b",".join([b'"lat":1'] * 5_000) + b"}",
        "lone surrogates": b'{"lat":"\\ud800","lng":1}',
        "not UTF-8": b'{"lat":"\xff\xfe"}',
    }
    tries = [(name, "/api/v1/sessions", body, JSON | key) for name, body in json_bodies.items()]
    tries += [(name, "/api/v1/auth/wallet/challenge", body, JSON) for name, body in json_bodies.items()]
    tries += [
        ("a gzip bomb", "/api/v1/sessions", bomb, JSON | key | {"content-encoding": "gzip"}),
        ("a deflate bomb", "/mcp", zlib.compress(bytes(50_000_000)), JSON | key | {"content-encoding": "deflate"}),
        ("a gzip bomb for the chain", "/rpc", bomb, JSON | {"content-encoding": "gzip"}),
        ("an SDP of 60 KB", whip, b"v=0\r\n" + b"a=x\r\n" * 12_000, SDP),
        ("an SDP of 1,000 sections", whip, b"v=0\r\n" + b"m=video 9 UDP/TLS/RTP/SAVPF 96\r\n" * 1_000, SDP),
        ("a compressed SDP", whip, bomb, SDP | {"content-encoding": "gzip"}),
    ]
    before, most = target.memory_bytes(), 0.0
    for name, path, body, headers in tries:
        url = path if path.startswith("http") else target.url + path
        started = target.cpu_s()
        answer = await target.http.post(url, content=body, headers=headers)
        most = max(most, target.cpu_s() - started)
        is_refused = 400 <= answer.status_code < 500 or (path == "/rpc" and "error" in answer.json())
        assert is_refused, (name, path, answer.status_code)
    grown = (target.memory_bytes() - before) / 1e6
    assert most < CPU_S_MAX, f"one took {most:.1f} s of CPU time"
    assert grown < GROWTH_MAX_MB, f"memory grew by {grown:.0f} MB"
    cost = f"at most {most * 1_000:.0f} ms of CPU time each; memory {grown:+.0f} MB"
    return f"{len(tries)} of {len(tries)} refused, {cost}"


@attack("bodies", "A WebSocket that offers permessage-deflate, to send a bomb in one frame")
async def compressed_websocket(target: Target) -> str:
    operator = await target.operator()
    host = httpx.URL(target.url).netloc.decode()
    request = (
        f"GET /api/v1/workspaces/{operator.workspace_id}/location/stream HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: Bearer {operator.key}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    ).encode()
    # A text frame with RSV1, which says that it is compressed.
    answer = await target.raw(request + b"\xc1\x84\0\0\0\0abcd", wait_s=5)
    head, _, frames = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head[:100]
    assert b"sec-websocket-extensions" not in head.lower(), head
    assert b"\x88\x02\x03\xea" in frames[-60:] or b"\x03\xea" in frames, frames[-60:]
    return "not negotiated; a compressed frame closes the connection with 1002"
