"""The client of a chain's RPC with an endpoint whose answers have no end."""

import tracemalloc
from functools import partial

import httpx
import pytest
import trio

from sightline.chain.rpc.client import JsonRpc, ReplyTooLargeError, RpcOptions
from sightline.domain.errors import ChainUnavailableError
from sightline.system.ids import SystemIds

KEPT_BYTES_MAX = 5_000_000
PIECE = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"


async def answer_without_end(stream: trio.SocketStream) -> None:
    """Answer with chunks until the client leaves."""
    try:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await stream.send_all(PIECE)
    except trio.BrokenResourceError:
        return


async def test_an_answer_without_end_ends_in_time_and_is_not_kept() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as http:
        nursery.start_soon(partial(trio.serve_listeners, answer_without_end, listeners))
        client = JsonRpc(http, url, ids=SystemIds(), options=RpcOptions(timeout_ms=500, tries=1))
        tracemalloc.start()
        try:
            with trio.fail_after(60), pytest.raises((ChainUnavailableError, ReplyTooLargeError)):
                await client.forward(b"{}", reply_bytes_max=1_000)
            assert tracemalloc.get_traced_memory()[1] < KEPT_BYTES_MAX
        finally:
            tracemalloc.stop()
        with trio.fail_after(60), pytest.raises(ChainUnavailableError):
            await client.batch([("eth_blockNumber", [])])
        nursery.cancel_scope.cancel()
