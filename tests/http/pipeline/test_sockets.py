"""WebSockets: refused like any call, then a conversation."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Message,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

ID = "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"


class Peer:
    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.ws = WSConnection(ConnectionType.CLIENT)

    async def say(self, event: Any) -> None:
        await self.stream.send_all(self.ws.send(event))

    async def hear(self) -> Any:
        while True:
            for event in self.ws.events():
                return event
            data = await self.stream.receive_some()
            self.ws.receive_data(data or None)


@asynccontextmanager
async def opened(app: Any, path: str, who: str | None, *extra: tuple[bytes, bytes]) -> Any:
    stream = await trio.open_tcp_stream(app.bound.host, app.bound.port)
    try:
        peer = Peer(stream)
        headers = [*extra, *([(b"authorization", f"Bearer {who}".encode())] if who else [])]
        await peer.say(Request(host="test", target=path, extra_headers=headers))
        yield peer
    finally:
        await trio.aclose_forcefully(stream)


async def test_messages_go_both_ways(running: Any) -> None:
    async with running() as app, opened(app, f"/socket/{ID}", "reader") as peer:
        assert isinstance(await peer.hear(), AcceptConnection)
        for text in ("one", "two"):
            await peer.say(TextMessage(text))
            heard = await peer.hear()
            assert isinstance(heard, Message)
            assert heard.data == f"3f:{text!r}"


@pytest.mark.parametrize(
    ("path", "who", "extra", "status", "code"),
    [
        (f"/socket/{ID}", None, (), 401, b"NOT_AUTHENTICATED"),
        (f"/socket/{ID}", "creator", (), 403, b"NOT_AUTHORIZED"),
        ("/socket/bad", "reader", (), 400, b"path:id"),
        ("/nowhere", "reader", (), 404, b"route:unknown"),
        (f"/socket/{ID}", "viewer", ((b"origin", b"https://evil.example"),), 403, b"auth:origin"),
    ],
)
async def test_a_refusal_is_an_answer_in_the_envelope(
    running: Any, path: str, who: str | None, extra: Any, status: int, code: bytes
) -> None:
    async with running() as app, opened(app, path, who, *extra) as peer:
        head = await peer.hear()
        assert isinstance(head, RejectConnection)
        assert head.status_code == status
        body = await peer.hear()
        assert isinstance(body, RejectData)
        assert code in body.data


async def test_a_refusal_in_the_conversation_closes_it_with_its_code(running: Any) -> None:
    async with running() as app, opened(app, f"/socket/{ID}", "reader") as peer:
        await peer.hear()
        await peer.say(TextMessage("refuse"))
        heard = await peer.hear()
        assert isinstance(heard, CloseConnection)
        assert (heard.code, heard.reason) == (1008, "CONFLICT thing:taken")
