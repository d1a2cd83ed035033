"""Reads an answer without end piece by piece. (httpx leaves its generators to the collector, which trio warns of.)"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import h11
import trio


class StreamedAnswer:
    """The head of an answer, and its body as it comes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._connection = h11.Connection(h11.CLIENT)
        self.headers: dict[str, str] = {}
        self.status = 0

    async def open(self, host: str, path: str, headers: dict[str, str]) -> None:
        request = h11.Request(method="GET", target=path, headers=[("host", host), *headers.items()])
        sent = self._connection.send(request), self._connection.send(h11.EndOfMessage())
        await self._stream.send_all(b"".join(part or b"" for part in sent))
        event = await self._next()
        assert isinstance(event, h11.Response)
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def piece(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        event = await self._next()
        if isinstance(event, h11.EndOfMessage):
            return None
        assert isinstance(event, h11.Data)
        return bytes(event.data)

    async def _next(self) -> object:
        while True:
            event = self._connection.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._connection.receive_data(await self._stream.receive_some(65_536))


@asynccontextmanager
async def open_stream(base_url: str, path: str, headers: dict[str, str]) -> AsyncIterator[StreamedAnswer]:
    """GET, and leave at the end of the block."""
    parts = urlsplit(base_url)
    async with await trio.open_tcp_stream(str(parts.hostname), parts.port or 80) as stream:
        answer = StreamedAnswer(stream)
        with trio.fail_after(60):
            await answer.open(parts.netloc, path, headers)
        yield answer
