"""Attacks on HTTP/2: floods of frames that cost the sender little, and streams that hold what they were sent."""

import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hpack
import psutil
import trio
from h2.errors import ErrorCodes

from tests.attack.catalogue import Kind, attack
from tests.attack.target import Latency, Target, honest_calls
from tests.e2e.server import Server
from tests.http.server.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    FrameReader,
    frame,
    header_block,
    request,
    settings,
)
from tests.http.server.h2_client import H2Client

FLOOD_S = 60.0
"""A flood is over when the server has ended each of its connections, or after this time."""
CONNECTIONS = 8
P50_MAX_MS = 1_000.0
"""Tells a stall from a busy machine: the attacker's connections and the server share its processors."""
GROWTH_MAX_MB = 60.0
HELD_S = 110.0
"""A stream that is not read is ended before."""
GET = header_block("GET", "/api/v1/config")
POST = header_block("POST", "/api/v1/sessions", ("content-type", "application/json"))
LARGE = "/openapi.json"


@asynccontextmanager
async def a_tls_server(target: Target, name: str = "tls") -> AsyncIterator[tuple[Server, Latency]]:
    """The server with a certificate, and a second client that calls it."""
    server, cert_file = await target.tls_server(name)
    async with honest_calls(f"{server.url}/api/v1/config", ca_file=cert_file) as latency:
        yield server, latency


@asynccontextmanager
async def h2_stream(port: int) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    tcp = await trio.open_tcp_stream("127.0.0.1", port)
    stream = trio.SSLStream(tcp, context, https_compatible=True)
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


def memory_mb(server: Server) -> float:
    """Resident memory of the server's own process."""
    assert server.process is not None
    return float(psutil.Process(server.process.pid).memory_info().rss) / 1e6


async def flooded(target: Target, start: bytes, piece: bytes) -> str:
    """Send a piece again and again on eight connections; each must be ended, and the second client must be served."""
    command = [sys.executable, "-m", "tests.attack.frame_flood"]
    async with a_tls_server(target) as (server, latency):
        before = memory_mb(server)
        latency.millis.clear()
        given = [str(server.port), str(CONNECTIONS), str(FLOOD_S), start.hex(), piece.hex()]
        done = await trio.run_process([*command, *given], capture_stdout=True)
        ended, sent = map(int, done.stdout.split())
        await latency.measured(20)
        grown = memory_mb(server) - before
    seen = (
        f"{ended} of {CONNECTIONS} connections ended after {sent / 1e6:.1f} MB; second client p50 "
        f"{latency.quantile_ms(50):.0f} ms, p99 {latency.quantile_ms(99):.0f} ms; memory {grown:+.1f} MB"
    )
    assert ended == CONNECTIONS, seen
    assert latency.quantile_ms(50) < P50_MAX_MS, seen
    assert grown < GROWTH_MAX_MB, seen
    return seen


@attack("low", "HTTP/2 rapid reset: 10 connections of 3,000 streams each")
async def rapid_reset(target: Target) -> str:
    async with a_tls_server(target) as (server, latency):
        taken = [await _reset_streams(server.port, 3_000) for _ in range(10)]
        await latency.measured(20)
    return f"GOAWAY after {max(taken)} streams at most; p99 of another client {latency.quantile_ms(99):.0f} ms"


async def _reset_streams(port: int, count: int) -> int:
    """Open streams on one connection and reset them; returns how many there were before the server ended it."""
    async with h2_stream(port) as stream:
        client = H2Client(stream)
        for number in range(count):
            if (going_away := await client.reset_one("/api/v1/config")) is not None:
                assert going_away.error_code == ErrorCodes.ENHANCE_YOUR_CALM, going_away
                return number + 1
    raise AssertionError(f"{count} streams were reset and the connection goes on")


UNREAD_CONNECTIONS, UNREAD_STREAMS = 20, 100


@attack(
    "HTTP/2",
    f"{UNREAD_CONNECTIONS * UNREAD_STREAMS} responses that are never read, behind a window of 0 bytes",
    Kind.WAIT,
    before="BROKEN: held as long as the client sends PING; memory +438 MB",
)
async def h2_zero_window(target: Target) -> str:
    block = header_block("GET", LARGE)
    opened = PREFACE + settings((INITIAL_WINDOW_SIZE, 0))
    opened += b"".join(frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * each, block) for each in range(UNREAD_STREAMS))
    ended = 0

    async def hold(port: int) -> None:
        """Keep the connection in use by a PING every five seconds, until the server has ended every stream."""
        nonlocal ended
        async with h2_stream(port) as stream, trio.open_nursery() as nursery:
            await stream.send_all(opened)

            async def ping() -> None:
                while True:
                    await trio.sleep(5)
                    await stream.send_all(frame(PING, 0, 0, bytes(8)))

            nursery.start_soon(ping)
            reader = FrameReader(stream)
            reset: set[int] = set()
            while len(reset) < UNREAD_STREAMS:
                kind, number, _ = await reader.read()
                if kind == RST_STREAM:
                    reset.add(number)
            ended += 1
            nursery.cancel_scope.cancel()

    async with a_tls_server(target, "unread") as (server, latency):
        before = highest = memory_mb(server)
        latency.millis.clear()
        with trio.move_on_after(HELD_S):
            async with trio.open_nursery() as nursery:
                for _ in range(UNREAD_CONNECTIONS):
                    nursery.start_soon(hold, server.port)
                while ended < UNREAD_CONNECTIONS:
                    highest = max(highest, memory_mb(server))
                    await trio.sleep(0.2)
    seen = (
        f"streams of {ended} of {UNREAD_CONNECTIONS} connections ended within {HELD_S:.0f} s; memory "
        f"{highest - before:+.1f} MB; second client p50 {latency.quantile_ms(50):.0f} ms, p99 "
        f"{latency.quantile_ms(99):.0f} ms"
    )
    assert ended == UNREAD_CONNECTIONS, seen
    assert highest - before < GROWTH_MAX_MB * 2, seen
    return seen


BOMB_FIELD = ("x-bomb", "x" * 3_900)


@attack("HTTP/2", "HPACK bomb: a field of 3,900 bytes, repeated 15,000 times by one byte each")
async def h2_hpack_bomb(target: Target) -> str:
    encoder = hpack.Encoder()
    block = encoder.encode([*request("GET", "/api/v1/config"), BOMB_FIELD])
    bomb = block + b"\xbe" * 15_000  # the newest entry of the dynamic table
    async with a_tls_server(target) as (server, latency):
        before = memory_mb(server)
        for _ in range(20):
            async with h2_stream(server.port) as stream:
                await stream.send_all(PREFACE + settings() + frame(HEADERS, END_STREAM | END_HEADERS, 1, bomb))
                reader = FrameReader(stream)
                while (await reader.read())[0] != GOAWAY:
                    pass
        await latency.measured(20)
        grown = memory_mb(server) - before
    seen = f"20 of 20 refused with GOAWAY; memory {grown:+.1f} MB; second client p99 {latency.quantile_ms(99):.0f} ms"
    assert grown < GROWTH_MAX_MB, seen
    return seen


@attack("HTTP/2", "Streams over the limit, a wrong content-length, and fields after the body that look like a request")
async def h2_streams_and_lengths(target: Target) -> str:
    post = header_block("POST", "/api/v1/sessions", ("content-type", "application/json"), ("content-length", "5"))
    trailer = bytes(hpack.Encoder().encode([(":path", "/api/v1/me"), ("authorization", "Bearer x")]))
    head = frame(HEADERS, END_HEADERS, 1, post)
    tried = {
        "101 streams": b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * each, post) for each in range(101)),
        "too long": head + frame(DATA, END_STREAM, 1, b"x" * 6),
        "too short": head + frame(DATA, END_STREAM, 1, b"x" * 4),
        "pseudo-header in trailers": head + frame(DATA, 0, 1, b"hello") + frame(HEADERS, 0x5, 1, trailer),
        "stream 0": frame(HEADERS, END_HEADERS, 0, post),
        "a stream of the server": frame(HEADERS, END_HEADERS, 2, post),
        "padding longer than its frame": frame(DATA, 0x8, 1, b"\xff"),
    }
    async with a_tls_server(target) as (server, _):
        for name, frames in tried.items():
            async with h2_stream(server.port) as stream:
                await stream.send_all(PREFACE + settings() + frames)
                reader = FrameReader(stream)
                seen: set[int] = set()
                with trio.move_on_after(60):
                    while not seen & {GOAWAY, RST_STREAM}:
                        seen.add((await reader.read())[0])
                assert seen & {GOAWAY, RST_STREAM}, f"{name}: frames {sorted(seen)}"
                assert HEADERS not in seen, f"{name} was answered"
    return f"{len(tried)} of {len(tried)} end the stream or the connection"


OPEN = frame(HEADERS, END_HEADERS, 1, POST)
"""A request whose body is still to come."""
HEAD = frame(HEADERS, END_STREAM, 1, GET)
"""Fields that go on in CONTINUATION frames."""
FLOODS: dict[str, tuple[str, bytes, bytes]] = {
    "settings": ("SETTINGS", b"", frame(SETTINGS, 0, 0, b"") * 100),
    "ping": ("PING", b"", frame(PING, 0, 0, bytes(8)) * 100),
    "window_update": ("WINDOW_UPDATE", b"", frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 100),
    "empty_data": ("Empty DATA", OPEN, frame(DATA, 0, 1, b"") * 100),
    "priority": ("PRIORITY", b"", frame(PRIORITY, 0, 3, b"\0\0\0\0\x10") * 100),
    "unknown": ("Unknown", b"", frame(0xFA, 0, 0, b"") * 100),
    "continuation": ("Empty CONTINUATION", HEAD, frame(CONTINUATION, 0, 1, b"") * 100),
    "header_block": ("CONTINUATION with fields, without END_HEADERS,", HEAD,
                     frame(CONTINUATION, 0, 1, b"\0\1x\x7f\xf1\x03" + bytes(624)) * 20),
}  # fmt: skip


BEFORE = {
    "settings": "0 of 8 ended; second client p50 31 ms, p99 350 ms",
    "ping": "0 of 8 ended; second client p50 9 ms, p99 22 ms",
    "window_update": "0 of 8 ended; second client p50 65 ms, p99 181 ms",
    "empty_data": "0 of 8 ended; second client p50 7 ms, p99 59 ms",
    "priority": "0 of 8 ended; second client p50 31 ms, p99 186 ms",
    "unknown": "0 of 8 ended; second client p50 30 ms, p99 382 ms",
}
"""None of the connections was ended; the flood went on as long as it was measured."""


def _add_flood(name: str, what: str, start: bytes, piece: bytes) -> None:
    async def run(target: Target) -> str:
        return await flooded(target, start, piece)

    run.__name__ = f"h2_{name}"
    title = f"{what} frames without end, on {CONNECTIONS} connections"
    attack("HTTP/2", title, before=BEFORE.get(name, ""))(run)


for _name, (_what, _start, _piece) in FLOODS.items():
    _add_flood(_name, _what, _start, _piece)
