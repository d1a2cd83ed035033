"""The guarded endpoint that clients receive as rpcUrl: reads and eth_sendRawTransaction, nothing else.

Clients never get the node's own port: its other methods change time, balances and blocks, or cost much CPU time.
"""

from collections.abc import Callable
from typing import Any, Final, final

import orjson
import trio

from sightline.chain.rpc.client import JsonRpc, ReplyTooLargeError
from sightline.domain.errors import ChainUnavailableError

BATCH_MAX: Final = 50
BODY_BYTES_MAX: Final = 256 * 1024
# The embedded chain runs one call at a time; this limit leaves capacity for the relayer and the watcher.
HEAVY_AT_ONCE: Final = 2
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


@final
class RpcProxy:
    """Checks each JSON-RPC request and forwards it to the node."""

    def __init__(self, rpc: JsonRpc, on_transaction: Callable[[], None] = lambda: None) -> None:
        self._rpc = rpc
        self._on_transaction = on_transaction
        self._heavy = trio.CapacityLimiter(HEAVY_AT_ONCE)

    async def handle(self, body: bytes) -> bytes:
        """Answer a JSON-RPC body. An invalid body gets an error response and never raises."""
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
        # The checked value is encoded again, because the node could read a duplicate key differently from the check.
        return await self._forward(requests, orjson.dumps(request))

    async def _forward(self, requests: list[dict[str, Any]], body: bytes) -> bytes:
        try:
            if all(item["method"] in LIGHT_METHODS for item in requests):
                return await self._rpc.forward(body, reply_bytes_max=REPLY_BYTES_MAX)
            async with self._heavy:
                answer = await self._rpc.forward(body, reply_bytes_max=REPLY_BYTES_MAX)
            if any(item["method"] == SEND for item in requests):
                self._on_transaction()
            return answer
        except ReplyTooLargeError as error:
            return _error(requests[0].get("id"), UNAVAILABLE, str(error))
        except ChainUnavailableError:
            return _error(requests[0].get("id"), UNAVAILABLE, "the chain does not answer")


def _error(request_id: Any, code: int, message: str) -> bytes:
    shown = request_id if isinstance(request_id, str | int) else None
    return orjson.dumps({"jsonrpc": "2.0", "id": shown, "error": {"code": code, "message": message}})
