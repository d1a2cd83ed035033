"""A JSON-RPC endpoint in front of a node that loses requests or replies, lags, or gives wrong answers on demand."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from sightline.chain.contracts.abi import SETTLED_TOPIC
from sightline.chain.rpc.client import JsonRpc, RpcOptions, open_rpc
from sightline.domain.errors import ChainUnavailableError
from sightline.system.ids import SystemIds

Request = dict[str, Any]
Response = dict[str, Any]
Forward = Callable[[Request], Awaitable[Response]]
# Answers one request from the node or by itself; None drops the reply to the whole exchange.
Fault = Callable[[Request, Forward], Awaitable[Response | None]]


async def honest(request: Request, forward: Forward) -> Response | None:
    return await forward(request)


@dataclass
class Endpoint:
    """Forwards requests to a node through `fault` and counts them."""

    rpc: JsonRpc
    url: str = ""
    fault: Fault = honest
    seen: list[str] = field(default_factory=list)
    is_down: bool = False
    garbage: bytes | None = None
    """Sent with status 200 as the body of each answer."""
    weather: Callable[[], str] = lambda: "fine"
    """Called once per exchange; returns fine, lose_request or lose_reply."""

    async def forward(self, request: Request) -> Response:
        answer: Response = json.loads((await self.rpc.forward(json.dumps(request).encode())).body)
        return answer

    async def serve(self, stream: trio.SocketStream) -> None:
        buffer = b""
        try:
            while True:
                while b"\r\n\r\n" not in buffer:
                    chunk = await stream.receive_some()
                    if not chunk:
                        return
                    buffer += chunk
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                while len(buffer) < length:
                    buffer += await stream.receive_some()
                body, buffer = buffer[:length], buffer[length:]
                answer = None if self.is_down else await self._answer(json.loads(body))
                if answer is None:
                    return
                text = json.dumps(answer).encode() if self.garbage is None else self.garbage
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ChainUnavailableError):
            return  # the node or the client disconnected during the exchange, so the exchange ends
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, request: Any) -> Any:
        weather = self.weather()
        if weather == "lose_request":
            return None
        items = request if isinstance(request, list) else [request]
        answers = []
        for item in items:
            self.seen.append(item["method"])
            answer = await self.fault(item, self.forward)
            if answer is None:
                return None
            answers.append(answer)
        if weather == "lose_reply":
            return None
        return answers if isinstance(request, list) else answers[0]


@asynccontextmanager
async def open_endpoint(node_url: str) -> AsyncIterator[Endpoint]:
    """Open an endpoint that forwards everything until its `fault` is set."""
    async with open_rpc(node_url, RpcOptions(timeout_ms=60_000), SystemIds()) as rpc, trio.open_nursery() as nursery:
        endpoint = Endpoint(rpc)
        listeners = await nursery.start(partial(trio.serve_tcp, endpoint.serve, 0, host="127.0.0.1"))
        endpoint.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield endpoint
        nursery.cancel_scope.cancel()


def of_method(method: str, fault: Fault) -> Fault:
    """A fault that applies to one method only."""

    async def picked(request: Request, forward: Forward) -> Response | None:
        return await (fault if request["method"] == method else honest)(request, forward)

    return picked


def answering(result: Any) -> Fault:
    """Answer with this value without asking the node."""

    async def answer(request: Request, forward: Forward) -> Response | None:
        return {"jsonrpc": "2.0", "id": request["id"], "result": result}

    return answer


async def lose_reply(request: Request, forward: Forward) -> Response | None:
    """Forward the request to the node and drop its reply."""
    await forward(request)
    return None


async def lose_request(request: Request, forward: Forward) -> Response | None:
    """Drop the request before the node receives it."""
    return None


async def hang(request: Request, forward: Forward) -> Response | None:
    """Never answer."""
    await trio.sleep_forever()
    raise AssertionError


async def no_receipt(request: Request, forward: Forward) -> Response | None:
    """Know no transaction."""
    return {"jsonrpc": "2.0", "id": request["id"], "result": None}


async def failed_receipt(request: Request, forward: Forward) -> Response | None:
    """Report that a mined transaction reverted."""
    answer = await forward(request)
    if answer["result"] is not None:
        answer["result"] |= {"status": "0x0", "logs": []}
    return answer


async def cheaper_receipt(request: Request, forward: Forward) -> Response | None:
    """Report that a mined transaction used one gas less."""
    answer = await forward(request)
    if answer["result"] is not None:
        answer["result"]["gasUsed"] = hex(int(answer["result"]["gasUsed"], 16) - 1)
    return answer


async def altered_event(request: Request, forward: Forward) -> Response | None:
    """Change the amount of each event Settled, in logs and receipts."""
    answer = await forward(request)
    result = answer.get("result") or []
    for log in result if isinstance(result, list) else result.get("logs", ()):
        if isinstance(log, dict) and log.get("topics", [""])[0].lower() == SETTLED_TOPIC:
            log["data"] = "0x" + (1).to_bytes(32).hex() + log["data"][66:]
    return answer


def behind(head: int) -> Fault:
    """Serve the chain as it was at this block."""

    async def old(request: Request, forward: Forward) -> Response | None:
        if request["method"] == "eth_blockNumber":
            return {"jsonrpc": "2.0", "id": request["id"], "result": hex(head)}
        if request["method"] == "eth_getTransactionReceipt":
            return await no_receipt(request, forward)
        params = [hex(head) if each in ("latest", "pending") else each for each in request["params"]]
        return await forward(request | {"params": params})

    return old


def some_times(count: int, fault: Fault) -> Fault:
    """A fault that stops after this many requests."""
    left = [count]

    async def limited(request: Request, forward: Forward) -> Response | None:
        if left[0] <= 0:
            return await forward(request)
        left[0] -= 1
        return await fault(request, forward)

    return limited
