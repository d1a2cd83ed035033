"""TLS, and HTTP/2 behind Hypercorn: what kills a stock trio worker costs one connection here."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import hpack
import pytest
import trio
from h2.errors import ErrorCodes

from sightline.http.server import TlsOptions
from tests.http.server.certificate import write_certificate
from tests.http.server.h2_client import H2Client

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def headers(*pairs: tuple[bytes, bytes], stream: int = 1, flags: int = 5) -> bytes:
    return frame(1, flags, stream, hpack.Encoder().encode(list(pairs)))


def request(method: bytes, path: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return (b":method", method), (b":path", path), (b":scheme", b"http"), (b":authority", b"t")


GET = request(b"GET", b"/")


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsOptions:
    return write_certificate(tmp_path_factory.mktemp("tls"))


async def app(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    if scope["path"] == "/fail":
        raise ValueError("secret")
    if scope["path"] == "/forever":
        await receive()
        return
    body = f"{scope['scheme']} {scope['http_version']} {scope['path']} {len(message['body'])}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def secure(server: Any, *alpn: str) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(alpn))
    tcp = await trio.open_tcp_stream(server.bound.host, server.bound.port)
    stream = trio.SSLStream(tcp, context, https_compatible=True)
    try:
        await stream.do_handshake()
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def test_http_1_over_tls(running: Any, tls: TlsOptions) -> None:
    async with running(app, tls=tls) as server, secure(server, "http/1.1") as stream:
        assert server.bound.url.startswith("https://")
        for path in (b"/one", b"/two"):
            await stream.send_all(b"GET " + path + b" HTTP/1.1\r\nHost: t\r\n\r\n")
            data = b""
            while b"https 1.1 " + path + b" 0" not in data:
                data += await stream.receive_some(65536)


async def test_http_2_over_tls(running: Any, tls: TlsOptions) -> None:
    async with running(app, tls=tls) as server, secure(server, "h2", "http/1.1") as stream:
        assert stream.selected_alpn_protocol() == "h2"
        client = H2Client(stream)
        answered, body = await client.ask("/x", b"a" * 50_000)
        assert (answered[":status"], body) == ("200", b"https 2 /x 50000")
        answered, body = await client.ask("/fail")
        assert (answered[":status"], answered["x-request-id"]) == ("500", "mine")
        assert b"http:internal" in body
    async with running(app, tls=tls, limits={"body_bytes_max": 1000}) as server, secure(server, "h2") as stream:
        answered, body = await H2Client(stream).ask("/x", b"a" * 1001)
        assert (answered[":status"], b"http:bodyTooLarge" in body) == ("413", True)


async def test_http_2_has_the_limits_of_http_1(running: Any, tls: TlsOptions) -> None:
    many = [(f"x-{number}", "1") for number in range(101)]
    async with running(app, tls=tls) as server:
        async with secure(server, "h2") as stream:
            answered, body = await H2Client(stream, *many).ask("/x")
            assert (answered[":status"], b"http:tooManyHeaders" in body) == ("431", True)
        async with secure(server, "h2") as stream:
            client = H2Client(stream)
            answered, body = await client.ask("/" + "x" * 8_192)
            assert (answered[":status"], b"http:targetTooLong" in body) == ("414", True)
            answered, _ = await client.ask("/x")
            assert answered[":status"] == "200"


@pytest.mark.parametrize("trusted", [(), ("127.0.0.0/8",)])
async def test_http_2_takes_the_client_from_a_trusted_proxy_as_http_1_does(
    running: Any, tls: TlsOptions, trusted: tuple[str, ...]
) -> None:
    async def who(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"{scope['client'][0]} {scope['scheme']}".encode()})

    said = (("x-forwarded-for", "6.6.6.6, 203.0.113.77"), ("x-forwarded-proto", "http"))
    async with running(who, tls=tls, trusted_proxies=trusted) as server:
        async with secure(server, "h2") as stream:
            _, over_2 = await H2Client(stream, *said).ask("/")
        async with secure(server, "http/1.1") as stream:
            lines = "".join(f"{name}: {value}\r\n" for name, value in said)
            await stream.send_all(f"GET / HTTP/1.1\r\nHost: t\r\n{lines}\r\n".encode())
            over_1 = b""
            while over_2 not in over_1:
                over_1 += await stream.receive_some(65_536)
    assert over_2 == (b"203.0.113.77 http" if trusted else b"127.0.0.1 https")


@pytest.mark.parametrize("hello", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"", b"\x16"])
async def test_what_is_no_tls_is_dropped(running: Any, tls: TlsOptions, hello: bytes) -> None:
    async with running(app, tls=tls, limits={"handshake_s": 1.0}) as server:
        async with server.client() as client:
            await client.send(hello or b"\0")
            await client.rest()
        async with secure(server, "http/1.1") as stream:
            await stream.send_all(b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n")
            assert b"200 OK" in await stream.receive_some(65536)


async def test_a_client_that_resets_streams_without_end_is_told_to_go_away(running: Any) -> None:
    limits = {"h2_resets_max": 20, "h2_resets_per_s": 0.001}
    async with running(app, h2c=True, limits=limits) as server, server.client() as client:
        h2_client = H2Client(client.stream)
        opened, going_away = 0, None
        while going_away is None:
            assert opened < 40, "reset streams are not limited"
            opened += 1
            going_away = await h2_client.reset_one("/forever")
        assert going_away.error_code == ErrorCodes.ENHANCE_YOUR_CALM
        assert opened == 21
        # The stream above the limit was not started.
        assert going_away.last_stream_id == 2 * 20 - 1
        assert await client.rest() == b""


async def test_a_client_may_reset_some_streams_for_ever(running: Any) -> None:
    limits = {"h2_resets_max": 2, "h2_resets_per_s": 1_000_000.0}
    async with running(app, h2c=True, limits=limits) as server, server.client() as client:
        h2_client = H2Client(client.stream)
        for _ in range(50):
            assert await h2_client.reset_one("/forever") is None
        answered, _ = await h2_client.ask("/x")
        assert answered[":status"] == "200"


async def test_prior_knowledge_where_it_is_allowed(running: Any) -> None:
    async with running(app, h2c=True) as server:
        async with server.client() as client:
            answered, body = await H2Client(client.stream).ask("/x", b"abc")
            assert (answered[":status"], body) == ("200", b"http 2 /x 3")
        async with server.client() as client:
            assert (await client.get("/plain")).body == b"http 1.1 /plain 0"
        async with server.client() as client:
            await client.send(b"P")
            await client.send(b"OST /p HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\na")
            assert (await client.answer()).body == b"http 1.1 /p 1"


HOSTILE = {
    "path that is not ASCII": headers(*request(b"GET", b"/\xff")),
    "method that is not ASCII": headers(*request(b"\xff", b"/")),
    "connect without path": headers((b":method", b"CONNECT"), (b":authority", b"t")),
    "flood of priorities": b"".join(frame(2, 0, 2 * n + 1, b"\0\0\0\0\x10") for n in range(1200)),
    "flood of settings": SETTINGS * 3000,
    "flood of pings": frame(6, 0, 0, b"12345678") * 3000,
    "rapid reset": b"".join(
        headers(*request(b"GET", b"/forever"), stream=2 * n + 1)
        + frame(3, 0, 2 * n + 1, b"\0\0\0\x08") for n in range(300)
    ),
    "continuation flood": frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"\x00" * 100) * 500,
    "headers on stream zero": headers((b":method", b"GET"), stream=0),
    "data on an idle stream": frame(0, 1, 5, b"abc"),
    "no pseudo headers": headers((b"x", b"y")),
    "upper case header": headers(*GET, (b"X", b"y")),
    "header with line break": headers(*GET, (b"x", b"a\r\nb: c")),
    "frame too large": (1 << 20).to_bytes(3, "big") + b"\0\0\0\0\0\1" + b"a" * 1000,
    "bad hpack": frame(1, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff"),
    "window overflow": frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "zero window": frame(8, 0, 0, b"\0\0\0\0"),
    "bad settings": frame(4, 0, 0, b"\0\x04\xff\xff\xff\xff"),
    "websocket by extended connect": headers(
        *request(b"CONNECT", b"/ws"), (b":protocol", b"websocket"), (b"sec-websocket-version", b"13"), flags=4
    ) + frame(0, 0, 1, b"\xff" * 200),
    "noise": bytes(range(256)) * 20,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_peer_costs_its_own_connection_only(running: Any, name: str) -> None:
    async with running(app, h2c=True, limits={"linger_s": 0.2}) as server:
        async with server.client() as client:
            with trio.move_on_after(0.3):
                with suppress(trio.BrokenResourceError):
                    await client.send(PREFACE + SETTINGS + HOSTILE[name])
                await client.rest()
        async with server.client() as client:
            answered, _ = await H2Client(client.stream).ask("/health")
            assert answered[":status"] == "200"
        async with server.client() as client:
            assert (await client.get("/health")).status == 200
