"""Ten thousand mutated inputs, from a seed: after each batch the server answers health, to a new and an old client.

What it answers to HTTP/1.1 is always well framed, and an error always an envelope.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import hpack
import httptools
import pytest
import structlog
import trio

SEED = 20_261_121
BATCH = 500
PARALLEL = 25

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
HTTP_SEEDS = [
    b"GET /a?b=c HTTP/1.1\r\nHost: t\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\nContent-Type: application/json\r\n\r\n{\"a\": \"bcd\"}"[:-1],
    b"POST /x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nGET /2",
    b"PUT http://t/abs HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
    b"POST /u HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    HANDSHAKE,
    b"OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n",
]  # fmt: skip
TOKENS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"\xff", b"%00", b"%2e%2e/", b"\r\n\r\n", b"GET ", b"CONNECT ",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: other\r\n",
    b"Transfer-Encoding: identity\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"HTTP/2.0", b"HTTP/1.0",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"99999999999999999999", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"a" * 300, b"X: " + b"y" * 5000 + b"\r\n",
]  # fmt: skip


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def block(*pairs: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(list(pairs))


CONNECT = ((":method", "CONNECT"), (":protocol", "websocket"), ("sec-websocket-version", "13"))
GET = ((":method", "GET"), (":path", "/a"), (":scheme", "http"), (":authority", "t"))
H2_SEEDS = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + rest
    for rest in (
        frame(1, 5, 1, block(*GET)),
        frame(1, 4, 1, block((":method", "POST"), *GET[1:], ("content-length", "3"))) + frame(0, 1, 1, b"abc"),
        frame(1, 0, 1, block(*GET)[:5]) + frame(9, 4, 1, block(*GET)[5:]),
        frame(2, 0, 1, b"\0\0\0\0\x10") + frame(8, 0, 0, b"\0\0\x10\0") + frame(6, 0, 0, b"12345678"),
        frame(1, 5, 1, block(*GET)) + frame(3, 0, 1, b"\0\0\0\x08") + frame(1, 5, 3, block(*GET)),
        frame(1, 4, 1, block(*CONNECT[:2], *GET[1:], CONNECT[2]))
        + frame(0, 0, 1, b"\x81\x85\0\0\0\0hello"),
        frame(4, 0, 0, b"\0\x04\0\0\xff\xff\0\x05\0\0\x40\0") + frame(7, 0, 0, b"\0" * 8),
    )
]  # fmt: skip
WS_SEEDS = [
    HANDSHAKE + rest
    for rest in (
        b"\x81\x85\1\2\3\4" + bytes(a ^ b for a, b in zip(b"hello", b"\1\2\3\4\1", strict=True)),
        b"\x01\x81\0\0\0\0a\x89\x80\0\0\0\0\x80\x81\0\0\0\0b",
        b"\x82\xfe\x01\x00\0\0\0\0" + b"x" * 256,
        b"\x81\x80\0\0\0\0" * 20 + b"\x88\x82\0\0\0\0\x03\xe8",
    )
]


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 5)):
        at = rng.randint(0, len(data))
        match rng.randint(0, 6):
            case 0:
                data[at:at] = rng.choice(TOKENS)
            case 1:
                del data[at : at + rng.randint(1, 12)]
            case 2 if at < len(data):
                data[at] = rng.randint(0, 255)
            case 3 if at < len(data):
                data[at] ^= 1 << rng.randint(0, 7)
            case 4:
                data[at:at] = data[at : at + rng.randint(1, 60)] * rng.randint(1, 4)
            case 5:
                data[at:at] = rng.randbytes(rng.randint(1, 12))
            case _:
                other = rng.choice(seeds)
                data[at:] = other[rng.randint(0, len(other)) :]
    return bytes(data)


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})
        return
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"fine"})


class Answers:
    """Reads answers back; raises where they are not well framed or an error is no envelope."""

    def __init__(self) -> None:
        self.body = b""
        self.parser = httptools.HttpResponseParser(self)
        self.count = 0

    def on_message_begin(self) -> None:
        self.body = b""

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.count += 1
        status = self.parser.get_status_code()
        if status >= 400:
            assert json.loads(self.body)["statusCode"] == status
        elif status == 200:
            assert self.body == b"fine"


async def throw(server: Any, data: bytes, *, check: bool) -> None:
    received = b""
    async with server.client() as client:
        try:
            await client.send(data)
            await client.stream.send_eof()
        except trio.BrokenResourceError:
            pass
        received = await client.rest()
    if check and not any(word in data for word in (b"HEAD", b"HTTP/1.0", b"101 ")) and b" 101 " not in received[:20]:
        answers = Answers()
        try:
            answers.parser.feed_data(received)
        except httptools.HttpParserUpgrade:
            return
        except httptools.HttpParserError as error:
            raise AssertionError(f"{data!r} was answered {received!r}") from (error.__context__ or error)


@pytest.fixture
def quiet() -> Any:
    """Thousands of expected refusals are no news."""
    before = structlog.get_config()
    structlog.configure(processors=[drop])
    yield
    structlog.configure(**before)


def drop(logger: object, name: str, event: object) -> Any:
    raise structlog.DropEvent


@pytest.mark.parametrize(
    ("seeds", "count", "h2c", "check"),
    [(HTTP_SEEDS, 5000, False, True), (H2_SEEDS, 2500, True, False), (WS_SEEDS, 2500, False, False)],
    ids=["http", "h2c", "websocket"],
)
@pytest.mark.usefixtures("quiet")
async def test_no_input_stops_the_server(running: Any, seeds: list[bytes], count: int, h2c: bool, check: bool) -> None:
    rng = random.Random(SEED)
    limits = {"linger_s": 0.2, "head_s": 0.5, "body_s": 0.5}
    async with running(app, h2c=h2c, limits=limits, patience_s=60) as server, server.client() as old:
        for _ in range(count // BATCH):
            await in_parallel(server, [mutate(rng, seeds) for _ in range(BATCH)], check)
            assert (await old.get("/health")).body == b"fine"
            async with server.client() as new:
                assert (await new.get("/health")).body == b"fine"


async def in_parallel(server: Any, inputs: list[bytes], check: bool) -> None:
    async def work() -> None:
        while inputs:
            await throw(server, inputs.pop(), check=check)

    task: Callable[[], Any] = work
    async with trio.open_nursery() as nursery:
        for _ in range(PARALLEL):
            nursery.start_soon(task)
