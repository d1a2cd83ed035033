"""The guarded endpoint that clients receive as rpcUrl: reads and eth_sendRawTransaction, nothing else.

Clients never get the node's own port: its other methods change time, balances and blocks, or cost much CPU time.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, final

import orjson
import trio

from sightline.chain.rpc.client import JsonRpc, ReplyTooLargeError
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.chain import RpcGuest

BATCH_MAX: Final = 50
BODY_BYTES_MAX: Final = 256 * 1024
# The embedded chain runs one call at a time; these limits leave capacity for the relayer and the watcher.
HEAVY_AT_ONCE: Final = 2
SENDS_AT_ONCE: Final = 2
SENDS_IN_BATCH_MAX: Final = 2
OF_GUEST_MAX: Final = 32
"""Heavy requests of one guest that may wait while one of them is answered."""
CPU_MS_ASSUMED: Final = 20
"""Charged for each heavy request where the node does not say what it took."""
REPLY_BYTES_MAX: Final = 2 * 1024 * 1024

SEND: Final = "eth_sendRawTransaction"
LIGHT_METHODS: Final = frozenset(
    {
        "eth_blockNumber", "eth_chainId", "eth_gasPrice", "eth_getBalance",
        "eth_getBlockByHash", "eth_getBlockByNumber", "eth_getCode", "eth_getStorageAt",
        "eth_getTransactionByHash", "eth_getTransactionCount", "eth_getTransactionReceipt",
        "eth_maxPriorityFeePerGas", "eth_syncing", "net_version", "web3_clientVersion",
    }
)  # fmt: skip
HEAVY_METHODS: Final = frozenset({"eth_call", "eth_estimateGas", "eth_feeHistory", "eth_getLogs", SEND})

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
PARSE_ERROR: Final = -32700
UNAVAILABLE: Final = -32000
LIMIT_EXCEEDED: Final = -32005


@final
class _Queue:
    """The heavy requests of one guest. Each is admitted after the one before it has been charged."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.users = 0


@final
class RpcProxy:
    """Checks each JSON-RPC request and forwards it to the node."""

    def __init__(self, rpc: JsonRpc, on_transaction: Callable[[], None] = lambda: None) -> None:
        self._rpc = rpc
        self._on_transaction = on_transaction
        self._heavy = trio.CapacityLimiter(HEAVY_AT_ONCE)
        self._sends = trio.CapacityLimiter(SENDS_AT_ONCE)
        self._queues: dict[str, _Queue] = {}

    async def handle(self, body: bytes, guest: RpcGuest) -> bytes:
        """Answer a JSON-RPC body. An invalid body gets an error response; only `guest.admit` raises."""
        if len(body) > BODY_BYTES_MAX:
            return _error(None, INVALID_REQUEST, "request too large")
        try:
            request = orjson.loads(body)
        except orjson.JSONDecodeError:
            return _error(None, PARSE_ERROR, "parse error")
        requests = request if isinstance(request, list) else [request]
        if not 0 < len(requests) <= BATCH_MAX:
            return _error(None, INVALID_REQUEST, f"a batch holds 1 to {BATCH_MAX} requests")
        for item in requests:
            if not isinstance(item, dict) or not isinstance(item.get("method"), str):
                return _error(None, INVALID_REQUEST, "invalid request")
            if item["method"] not in LIGHT_METHODS and item["method"] not in HEAVY_METHODS:
                name = item["method"][:64]
                return _error(item.get("id"), METHOD_NOT_FOUND, f"the method {name} is not available")
        sends = sum(item["method"] == SEND for item in requests)
        if sends > SENDS_IN_BATCH_MAX:
            return _error(None, INVALID_REQUEST, f"a batch holds at most {SENDS_IN_BATCH_MAX} transactions")
        # The checked value is encoded again, because the node could read a duplicate key differently from the check.
        forwarded = orjson.dumps(request)
        heavy = sum(item["method"] in HEAVY_METHODS for item in requests)
        try:
            if not heavy:
                return (await self._rpc.forward(forwarded, reply_bytes_max=REPLY_BYTES_MAX)).body
            async with self._turn_of(guest):
                return await self._forward(forwarded, heavy, sends, guest)
        except ReplyTooLargeError as error:
            return _error(requests[0].get("id"), UNAVAILABLE, str(error))
        except ChainUnavailableError:
            return _error(requests[0].get("id"), UNAVAILABLE, "the chain does not answer")
        except _TooManyWaitingError:
            return _error(requests[0].get("id"), LIMIT_EXCEEDED, f"more than {OF_GUEST_MAX} requests are waiting")

    async def _forward(self, body: bytes, heavy: int, sends: int, guest: RpcGuest) -> bytes:
        cpu_ms = heavy * CPU_MS_ASSUMED
        try:
            async with self._sends if sends else self._heavy:
                answer = await self._rpc.forward(body, reply_bytes_max=REPLY_BYTES_MAX)
            cpu_ms = answer.cpu_ms if answer.cpu_ms is not None else cpu_ms
        finally:
            guest.charge(cpu_ms)
        if sends:
            self._on_transaction()
        return answer.body

    @asynccontextmanager
    async def _turn_of(self, guest: RpcGuest) -> AsyncIterator[None]:
        queue = self._queues.setdefault(guest.key, _Queue())
        if queue.users > OF_GUEST_MAX:
            raise _TooManyWaitingError
        queue.users += 1
        try:
            async with queue.lock:
                guest.admit()
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[guest.key]


class _TooManyWaitingError(Exception):
    """A guest has too many requests waiting."""


def _error(request_id: Any, code: int, message: str) -> bytes:
    shown = request_id if isinstance(request_id, str | int) else None
    return orjson.dumps({"jsonrpc": "2.0", "id": shown, "error": {"code": code, "message": message}})
