"""A WebSocket client on trio, just enough to talk to our own server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, RejectConnection, RejectData, Request, TextMessage


class RefusedSocketError(Exception):
    """The server answered the upgrade with an HTTP error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.envelope: dict[str, Any] = json.loads(body)


class SocketClosedByServerError(Exception):
    """The server closed."""

    def __init__(self, code: int, reason: str | None) -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


class SocketClient:
    """One open WebSocket."""

    def __init__(self, stream: trio.SocketStream, patience_s: float = 60) -> None:
        self._stream = stream
        self._patience_s = patience_s
        self._connection = WSConnection(ConnectionType.CLIENT)

    async def open(self, host: str, path: str, headers: dict[str, str]) -> None:
        extra = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._stream.send_all(self._connection.send(Request(host=host, target=path, extra_headers=extra)))
        event = await self._next()
        if isinstance(event, RejectConnection):
            body = b""
            while True:
                data = await self._next()
                assert isinstance(data, RejectData)
                body += bytes(data.data)
                if data.body_finished:
                    raise RefusedSocketError(event.status_code, body)
        assert isinstance(event, AcceptConnection)

    async def send(self, message: Any) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        await self._stream.send_all(self._connection.send(TextMessage(text)))

    async def receive(self) -> Any:
        text = ""
        while True:
            event = await self._next()
            if isinstance(event, CloseConnection):
                raise SocketClosedByServerError(event.code, event.reason)
            assert isinstance(event, TextMessage)
            text += event.data
            if event.message_finished:
                return json.loads(text)

    async def ask(self, message: Any) -> Any:
        await self.send(message)
        return await self.receive()

    async def _next(self) -> Any:
        while True:
            for event in self._connection.events():
                if isinstance(event, Ping):
                    await self._stream.send_all(self._connection.send(event.response()))
                    continue
                return event
            with trio.fail_after(self._patience_s):
                data = await self._stream.receive_some(65_536)
            self._connection.receive_data(data or None)


@asynccontextmanager
async def open_socket(
    base_url: str, path: str, headers: dict[str, str], *, patience_s: float = 60
) -> AsyncIterator[SocketClient]:
    """Open a WebSocket; `RefusedSocketError` where the server says no."""
    parts = urlsplit(base_url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with await trio.open_tcp_stream(parts.hostname, parts.port) as stream:
        client = SocketClient(stream, patience_s)
        with trio.fail_after(60):
            await client.open(parts.netloc, path, headers)
        yield client
