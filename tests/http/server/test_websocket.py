"""WebSocket connections over a real socket, from wsproto's client or from bytes written by hand."""

import socket
import struct
from typing import Any

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def masked(first: int, payload: bytes) -> bytes:
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return bytes([first]) + length + b"\0\0\0\0" + payload


async def echo(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})
        return
    assert (await receive())["type"] == "websocket.connect"
    if scope["path"] == "/close":
        await send({"type": "websocket.close"})
        return
    if scope["path"] == "/answer":
        await send({"type": "websocket.http.response.start", "status": 404, "headers": [(b"x-a", b"b")]})
        await send({"type": "websocket.http.response.body", "body": b"no", "more_body": True})
        await send({"type": "websocket.http.response.body", "body": b"pe"})
        return
    if scope["path"] == "/fail":
        raise ValueError("secret")
    await send({"type": "websocket.accept", "subprotocol": (scope["subprotocols"] or [None])[0]})
    while (message := await receive())["type"] == "websocket.receive":
        if message.get("text") == "fail":
            raise ValueError("secret")
        await send({"type": "websocket.send", "text": message.get("text"), "bytes": message.get("bytes")})


class Peer:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.ws = WSConnection(ConnectionType.CLIENT)

    async def say(self, event: Any) -> None:
        await self.client.send(self.ws.send(event))

    async def hear(self) -> Any:
        while True:
            for event in self.ws.events():
                return event
            data = await self.client.stream.receive_some(65536)
            self.ws.receive_data(data or None)


async def test_text_bytes_and_fragments_come_back(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        peer = Peer(client)
        await peer.say(Request(host="t", target="/ws", subprotocols=["a", "b"]))
        accepted = await peer.hear()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == "a"
        await peer.say(TextMessage("grüße"))
        assert (await peer.hear()).data == "grüße"
        await peer.say(BytesMessage(b"\0\xff" * 20_000))
        data = b""
        while len(data) < 40_000:
            data += (await peer.hear()).data
        assert data == b"\0\xff" * 20_000
        await peer.say(TextMessage("one ", message_finished=False))
        await peer.say(Ping(b"p"))
        await peer.say(TextMessage("two", message_finished=True))
        assert isinstance(await peer.hear(), Pong)
        assert (await peer.hear()).data == "one two"
        await peer.say(CloseConnection(code=1000))
        assert (await peer.hear()).code == 1000


async def test_what_comes_in_the_same_packet_as_the_handshake_is_heard(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(HANDSHAKE + masked(0x81, b"early") + masked(0x81, b"bird"))
        assert (await client.head()).status == 101
        assert await client.exactly(7) == b"\x81\x05early"
        assert await client.exactly(6) == b"\x81\x04bird"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [("/close", 403, b"websocket:refused"), ("/answer", 404, b"nope"), ("/fail", 500, b"http:internal")],
)
async def test_an_application_may_say_no(running: Any, path: str, status: int, body: bytes) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(HANDSHAKE.replace(b"/ws", path.encode()))
        answer = await client.answer()
        assert answer.status == status
        assert body in answer.body
        assert await client.closed()


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"Version: 13", b"Version: 8", 426),
        (b"AAAAAAAAAAAAAAAAAAAAAA==", b"short", 400),
        (b"AAAAAAAAAAAAAAAAAAAAAA==", b"\xff\xff", 400),
        (b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", b"", 400),
        (b"Sec-WebSocket-Version: 13\r\n", b"", 426),
        (b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (b"Connection: Upgrade\r\n", b"", 200),
        (b"GET ", b"POST ", 200),
    ],
)
async def test_a_bad_handshake_is_refused_or_is_a_plain_request(
    running: Any, old: bytes, new: bytes, status: int
) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(HANDSHAKE.replace(old, new))
        assert (await client.answer()).status == status


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x81\x05hello", 1002),
        (masked(0xC1, b"rsv"), 1002),
        (masked(0x83, b"opcode"), 1002),
        (masked(0x80, b"continues nothing"), 1002),
        (masked(0x01, b"a") + masked(0x81, b"b"), 1002),
        (masked(0x09, b"fragmented ping"), 1002),
        (masked(0x81, b"\xff\xfe"), 1007),
        (masked(0x88, b"\x03"), 1002),
        (masked(0x88, b"\x00\x05"), 1002),
        (b"\x81\xff" + (1 << 62).to_bytes(8, "big") + b"\0\0\0\0" + b"a" * 70_000, 1009),
        (masked(0x01, b"") + masked(0x00, b"") * 2000, 1009),
        (b"\x81\xfe\x00\x05\0\0\0\0hello", 1002),
        ((masked(0x01, b"a" * 60_000) + masked(0x80, b"a" * 60_000)), 1009),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_told_and_closed(running: Any, frames: bytes, code: int) -> None:
    async with running(echo, limits={"linger_s": 0.2}) as server:
        async with server.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(_send_quietly, client, HANDSHAKE + frames)
            assert (await client.head()).status == 101
            rest = await client.rest()
            assert rest[:1] == b"\x88"
            assert int.from_bytes(rest[2:4], "big") == code
            nursery.cancel_scope.cancel()
        async with server.client() as client:
            assert (await client.get()).body == b"fine"


async def _send_quietly(client: Any, data: bytes) -> None:
    try:
        await client.send(data)
    except trio.BrokenResourceError:
        return


async def test_a_failing_application_closes_with_1011_and_tells_nothing(running: Any) -> None:
    async with running(echo) as server, server.client() as client:
        await client.send(HANDSHAKE + masked(0x81, b"fail"))
        await client.head()
        assert await client.rest() == b"\x88\x02\x03\xf3"


async def test_a_quiet_peer_is_pinged_and_a_silent_one_is_left(running: Any) -> None:
    async with running(echo, limits={"websocket_ping_s": 1.0, "linger_s": 0.1}) as server, server.client() as client:
        await client.send(HANDSHAKE)
        await client.head()
        assert await client.exactly(2) == b"\x89\x00"
        await client.send(masked(0x8A, b""))
        assert await client.exactly(2) == b"\x89\x00"
        rest = await client.rest()
        assert rest.endswith(b"\x88\x02\x03\xf3")


async def test_the_application_learns_that_its_peer_has_gone(running: Any) -> None:
    told: list[Any] = []
    done = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        told.append(await receive())
        told.append(await receive())
        done.set()

    async with running(app) as server:
        async with server.client() as client:
            await client.send(HANDSHAKE)
            await client.head()
        await done.wait()
    assert [(each["type"], each["code"]) for each in told] == [("websocket.disconnect", 1006)] * 2


async def test_a_ping_whose_sender_resets_the_connection_is_a_disconnect(running: Any) -> None:
    told: list[Any] = []
    opened, reset, done = trio.Event(), trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        opened.set()
        await reset.wait()
        try:
            told.append(await receive())
        finally:
            done.set()

    async with running(app) as server:
        async with server.client() as client:
            await client.send(HANDSHAKE)
            await client.head()
            await opened.wait()
            await client.send(masked(0x89, b"p") * 2000)
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.set()
        await done.wait()
    assert [each["type"] for each in told] == ["websocket.disconnect"]


async def test_a_handshake_without_a_decision_of_the_application_is_refused(running: Any) -> None:
    async def undecided(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep_forever()

    async with running(undecided, limits={"handshake_s": 0.1}) as server, server.client() as client:
        await client.send(HANDSHAKE)
        assert (await client.answer()).status == 503
