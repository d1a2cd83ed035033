"""A TCP proxy in front of a server that loses some requests and some answers, chosen by a seed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlsplit

import trio

METHODS = (b"GET ", b"POST ", b"DELETE ", b"PATCH ")


@dataclass
class LosingProxy:
    """Closes the connection in place of forwarding a request, or in place of forwarding its answer."""

    upstream: str
    rng: Random
    share_lost: float = 0.3
    url: str = ""
    requests: int = 0
    lost_requests: int = 0
    lost_answers: int = 0
    _loses_answer: dict[int, bool] = field(default_factory=dict)

    async def serve(self, client: trio.SocketStream) -> None:
        parts = urlsplit(self.upstream)
        try:
            server = await trio.open_tcp_stream(str(parts.hostname), parts.port or 80)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._requests, client, server, nursery.cancel_scope)
                await self._answers(client, server)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _requests(self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope) -> None:
        async for data in client:
            if data.startswith(METHODS):
                self.requests += 1
                draw = self.rng.random()
                self._loses_answer[id(client)] = draw < self.share_lost / 2
                if self.share_lost / 2 <= draw < self.share_lost:
                    self.lost_requests += 1
                    scope.cancel()
                    return
            await server.send_all(data)
        scope.cancel()

    async def _answers(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        async for data in server:
            if self._loses_answer.pop(id(client), False):
                self.lost_answers += 1
                return
            await client.send_all(data)


@asynccontextmanager
async def losing_proxy(upstream: str, seed: str, share_lost: float = 0.3) -> AsyncIterator[LosingProxy]:
    """Run a proxy on a free port of loopback."""
    proxy = LosingProxy(upstream, Random(seed), share_lost)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, proxy.serve, 0)
        port = listeners[0].socket.getsockname()[1]
        proxy.url = f"http://127.0.0.1:{port}"
        yield proxy
        nursery.cancel_scope.cancel()
