"""A process with one key that signs over JSON-RPC by the code of eth_account, as a server on loopback."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import trio
from eth_account import Account
from eth_account.messages import encode_typed_data

from sightline.chain.rpc.client import JsonRpc, RpcOptions
from sightline.chain.signing_process import SigningProcess
from tests.chain.world import ids

Transaction = dict[str, Any]


def same(transaction: Transaction) -> Transaction:
    return transaction


@dataclass
class KeyServer:
    """One key, and how its server behaves."""

    key: str = field(default_factory=lambda: "0x" + ids.token_bytes(32).hex())
    accounts: list[str] | None = None
    """What eth_accounts answers; by default the key's address."""
    methods: frozenset[str] = frozenset({"eth_accounts", "eth_signTypedData_v4", "eth_signTransaction"})
    is_locked: bool = False
    takes_batches: bool = True
    shows_object: bool = False
    """Whether a signed transaction is answered as geth and clef do: with bytes and fields."""
    altered: Callable[[Transaction], Transaction] = same
    """Changes a transaction before it is signed."""
    spoiled: Callable[[bytes], bytes] = bytes
    """Changes what was signed."""
    shown: Callable[[str], Any] = str
    """Changes how it is answered."""
    signed: int = 0
    refused: int = 0
    life: trio.CancelScope = field(default_factory=trio.CancelScope)
    port: int = 0
    """The port of its last run; the next one has the same."""

    @property
    def address(self) -> str:
        return str(Account.from_key(self.key).address)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        method, params = request["method"], request["params"]
        if method not in self.methods:
            return {"error": {"code": -32601, "message": f"the method {method} does not exist"}}
        if method in ("eth_accounts", "account_list"):
            return {"result": [self.address] if self.accounts is None else self.accounts}
        if self.is_locked:
            self.refused += 1
            return {"error": {"code": -32000, "message": "the account is locked"}}
        self.signed += 1
        if "TypedData" in method:
            signed = Account.sign_message(encode_typed_data(full_message=json.loads(params[1])), self.key)
            return {"result": "0x" + bytes(signed.signature).hex()}
        (asked,) = params
        transaction = self.altered({name: value for name, value in asked.items() if name != "from"})
        raw = self.spoiled(bytes(Account.sign_transaction(transaction, self.key).raw_transaction))
        text = "0x" + raw.hex()
        return {"result": {"raw": text, "tx": asked} if self.shows_object else self.shown(text)}

    async def serve(self, stream: trio.SocketStream) -> None:
        received = b""
        async with stream:
            async for chunk in stream:
                received += chunk
                head, _, body = received.partition(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if not lengths or len(body) < int(lengths[0].split(b":")[1]):
                    continue
                received = b""
                text = json.dumps(self.answers(json.loads(body))).encode()
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text) + text)

    def answers(self, asked: Any) -> Any:
        if isinstance(asked, list) and not self.takes_batches:
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
        items = asked if isinstance(asked, list) else [asked]
        answers = [{"jsonrpc": "2.0", "id": item["id"]} | self.answer(item) for item in items]
        return answers if isinstance(asked, list) else answers[0]


@asynccontextmanager
async def without_socket(server: KeyServer) -> AsyncIterator[SigningProcess]:
    """Reach a server on trio's virtual clock."""

    async def handle(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        body = json.loads(b"".join([chunk async for chunk in request.stream]))
        return httpx.Response(200, json=server.answers(body))

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        process = SigningProcess(JsonRpc(http, "http://keys", RpcOptions(tries=1), ids), "the relayer's")
        process.address = server.address
        yield process


@asynccontextmanager
async def served(server: KeyServer) -> AsyncIterator[str]:
    """Run a server and give its URL; at the end, or when its life is cancelled, its connections break."""
    listeners = await trio.open_tcp_listeners(server.port, host="127.0.0.1")
    server.port = listeners[0].socket.getsockname()[1]
    server.life = trio.CancelScope()

    async def live() -> None:
        with server.life:
            await trio.serve_listeners(server.serve, listeners)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        yield f"http://127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()
