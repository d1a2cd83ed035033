"""Implements the JSON-RPC methods of the embedded chain."""

import hmac
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from eth_typing import Address
from eth_utils.address import is_address, to_canonical_address, to_checksum_address
from eth_utils.hexadecimal import decode_hex
from msgspec import Struct

from sightline.chain.embedded import views
from sightline.chain.embedded.copy import damage_line
from sightline.chain.embedded.deploy import Treasury
from sightline.chain.embedded.machine import (
    CALL_GAS_MAX,
    NO_ADDRESS,
    EvmCall,
    ExecutionError,
    Machine,
    RejectedError,
    UnknownBlockError,
)
from sightline.chain.embedded.pending import Pending, TransactionOutcome
from sightline.chain.embedded.store import Json
from sightline.chain.embedded.turns import Turns

LOG_BLOCKS_MAX: Final = 10_000
FEE_HISTORY_BLOCKS_MAX: Final = 100
FEE_HISTORY_PERCENTILES_MAX: Final = 100
# These methods read only the head. They take no lock, so they do not wait for a running call or block.
LOCK_FREE: Final = frozenset(
    {"eth_chainId", "net_version", "web3_clientVersion", "eth_blockNumber", "eth_syncing", "eth_accounts",
     "eth_gasPrice", "eth_maxPriorityFeePerGas"}
)  # fmt: skip
TIP_WEI: Final = 10**9
NO_SENDER: Final = Address(bytes(20))

INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601
SERVER_ERROR: Final = -32000
LIMIT_EXCEEDED: Final = -32005
EXECUTION_REVERTED: Final = 3
GUEST_REQUEST_CPU_S: Final = 1.0
"""CPU time in seconds of one HTTP request of a guest after which its further reads are refused."""


class RpcError(Exception):
    """A JSON-RPC error response."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@final
class HttpRequest(Struct):
    """The HTTP request that carries one or more JSON-RPC requests: who sent it, and the CPU time in seconds it took."""

    is_guest: bool = False
    """Whether it comes from outside, through the server's public endpoint."""
    cpu_s: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the thread's CPU time within the block."""
        started_s = time.thread_time()
        try:
            yield
        finally:
            self.cpu_s += time.thread_time() - started_s


@final
class Methods:
    """Answers JSON-RPC requests. Transactions that arrive at the same time are mined in one block."""

    def __init__(self, machine: Machine, treasury: Treasury, secret: str, trusted: frozenset[bytes]) -> None:
        """`trusted` are the addresses of the service, whose transactions are mined first."""
        self._machine = machine
        self._treasury = treasury
        self._secret = secret
        self._turns = Turns()
        self._pending = Pending(trusted)
        self._table: dict[str, Callable[..., Any]] = {
            "eth_chainId": lambda: views.quantity(machine.chain_id),
            "net_version": lambda: str(machine.chain_id),
            "web3_clientVersion": lambda: "sightline-embedded/py-evm",
            "eth_blockNumber": lambda: machine.head["number"],
            "eth_syncing": lambda: False,
            "eth_accounts": list,
            "eth_gasPrice": self._gas_price,
            "eth_maxPriorityFeePerGas": lambda: views.quantity(TIP_WEI),
            "eth_feeHistory": self._fee_history,
            "eth_getBlockByNumber": self._block_by_number,
            "eth_getBlockByHash": self._block_by_hash,
            "eth_getLogs": self._logs,
            "eth_getTransactionReceipt": lambda tx: machine.store.receipt(tx.lower()),
            "eth_getTransactionByHash": lambda tx: machine.store.transaction(tx.lower()),
            "eth_getTransactionCount": self._transaction_count,
            "eth_getBalance": self._balance,
            "eth_getCode": self._code,
            "eth_getStorageAt": self._storage_at,
            "eth_call": self._call,
            "eth_estimateGas": self._estimate_gas,
            "sightline_faucet": self._faucet,
        }

    def answer(self, method: str, params: list[Any], caller: HttpRequest) -> Any:
        """Return the result of one JSON-RPC request.

        Raises:
            RpcError: The request failed; the error is the response.
        """
        try:
            if method == "eth_sendRawTransaction":
                return self._send_raw(*params, caller=caller)
            function = self._table.get(method)
            if function is None:
                raise RpcError(METHOD_NOT_FOUND, f"the method {method} does not exist/is not available")
            if method in LOCK_FREE:
                return function(*params)
            if caller.is_guest and caller.cpu_s > GUEST_REQUEST_CPU_S:
                raise RpcError(LIMIT_EXCEEDED, "the earlier calls of this batch took too much CPU time")
            with self._turns.turn(is_guest=caller.is_guest), caller.timed():
                return function(*params)
        except ExecutionError as error:
            if error.output is None:
                raise RpcError(SERVER_ERROR, str(error)) from error
            raise RpcError(EXECUTION_REVERTED, str(error), views.data(error.output)) from error
        except (RejectedError, UnknownBlockError) as error:
            raise RpcError(SERVER_ERROR, str(error)) from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise RpcError(INVALID_PARAMS, f"invalid params: {error}") from error
        except sqlite3.Error as error:
            damage = damage_line(self._machine.store.path, error)
            if damage is None:
                raise
            raise RpcError(SERVER_ERROR, damage) from error

    # Transactions.

    def expect(self, raws: list[str]) -> None:
        """Queue the transactions of a batch, so that the first of them to be handled mines all of them in one block."""
        for raw in raws:
            try:
                transaction = self._machine.decode(decode_hex(raw))
            except (RejectedError, ValueError, TypeError):
                continue  # eth_sendRawTransaction reports the error when it handles this transaction
            self._pending.add(transaction)

    def _send_raw(self, raw: str, *, caller: HttpRequest) -> str:
        with caller.timed():
            transaction = self._machine.decode(decode_hex(raw))
        outcome: TransactionOutcome | None = None
        # The thread that holds the lock mines the next block; other threads then find the outcomes of theirs. The lock
        # is released between blocks, so reads and the service's own transactions wait for one block at most.
        while outcome is None:
            with self._turns.turn(is_guest=caller.is_guest):
                outcome = self._pending.outcome(transaction.hash)
                if outcome is None:
                    self._pending.add(transaction)
                    self._pending.settle(self._machine.mine(*self._pending.next_block()))
        caller.cpu_s += outcome.cpu_s
        if outcome.refusal is not None:
            raise outcome.refusal
        return views.data(transaction.hash)

    def _faucet(self, secret: str, address: str, amount_micro: str) -> Json:
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            raise RpcError(METHOD_NOT_FOUND, "the method sightline_faucet does not exist/is not available")
        if not is_address(address):
            raise ValueError("address")
        amount = int(amount_micro)
        if not 0 <= amount < 2**128:
            raise ValueError("amount")
        try:
            tx_hash = self._treasury.fund(to_checksum_address(address), amount)
        except RuntimeError as error:
            raise RpcError(SERVER_ERROR, str(error)) from error
        return {"transactionHash": tx_hash, "address": to_checksum_address(address), "amountMicroUsdc": str(amount)}

    # Reads.

    def _gas_price(self) -> str:
        return views.quantity(int(self._machine.head["baseFeePerGas"], 16) + TIP_WEI)

    def _fee_history(self, count: str | int, newest: str, percentiles: list[float] | None = None) -> Json:
        if percentiles and len(percentiles) > FEE_HISTORY_PERCENTILES_MAX:
            raise RpcError(INVALID_PARAMS, f"at most {FEE_HISTORY_PERCENTILES_MAX} percentiles")
        wanted = count if isinstance(count, int) else int(count, 16)
        last = int(self._machine.resolve(newest)["number"], 16)
        first = max(0, last + 1 - max(1, min(wanted, FEE_HISTORY_BLOCKS_MAX)))
        blocks = [self._machine.resolve(hex(number)) for number in range(first, last + 1)]
        fees = [block["baseFeePerGas"] for block in blocks]
        history: Json = {
            "oldestBlock": views.quantity(first),
            "baseFeePerGas": [*fees, fees[-1]],
            "gasUsedRatio": [int(block["gasUsed"], 16) / int(block["gasLimit"], 16) for block in blocks],
        }
        if percentiles:
            history["reward"] = [[views.quantity(TIP_WEI)] * len(percentiles) for _ in blocks]
        return history

    def _full(self, block: Json | None, full: bool) -> Json | None:
        if block is None or not full:
            return block
        return block | {"transactions": self._machine.store.transactions_of(int(block["number"], 16))}

    def _block_by_number(self, tag: str, full: bool = False) -> Json | None:
        if tag == "pending":
            return self._machine.next_block()
        try:
            return self._full(self._machine.resolve(tag), full)
        except UnknownBlockError:
            return None

    def _block_by_hash(self, block_hash: str, full: bool = False) -> Json | None:
        return self._full(self._machine.store.block_by_hash(block_hash.lower()), full)

    def _resolve(self, tag: Any) -> Json:
        """Resolve a block from a tag, a number, or an EIP-1898 object."""
        if not isinstance(tag, dict):
            return self._machine.resolve(tag)
        if "blockHash" in tag:
            block = self._machine.store.block_by_hash(str(tag["blockHash"]).lower())
            if block is None:
                raise UnknownBlockError("header not found")
            return block
        return self._machine.resolve(tag["blockNumber"])

    def _logs(self, query: Json) -> list[Json]:
        first, last = self._log_range(query)
        wanted = query.get("address") or []
        addresses = [to_checksum_address(item) for item in ([wanted] if isinstance(wanted, str) else wanted)]
        topics = query.get("topics") or []
        return [entry for entry in self._machine.store.logs(first, last, addresses) if _matches(entry, topics)]

    def _log_range(self, query: Json) -> tuple[int, int]:
        if "blockHash" in query:
            block = self._machine.store.block_by_hash(str(query["blockHash"]).lower())
            if block is None:
                raise RpcError(SERVER_ERROR, "unknown block")
            number = int(block["number"], 16)
            return number, number
        head = int(self._machine.head["number"], 16)
        bounds = [_block_number(query.get(name), head) for name in ("fromBlock", "toBlock")]
        if bounds[1] - bounds[0] >= LOG_BLOCKS_MAX:
            raise RpcError(SERVER_ERROR, f"block range is over {LOG_BLOCKS_MAX}")
        return bounds[0], min(bounds[1], head)

    def _transaction_count(self, account: str, tag: Any = None) -> str:
        return views.quantity(self._machine.nonce(to_canonical_address(account), self._resolve(tag)))

    def _balance(self, account: str, tag: Any = None) -> str:
        return views.quantity(self._machine.balance(to_canonical_address(account), self._resolve(tag)))

    def _code(self, account: str, tag: Any = None) -> str:
        return views.data(self._machine.code(to_canonical_address(account), self._resolve(tag)))

    def _storage_at(self, account: str, position: str, tag: Any = None) -> str:
        return views.word(self._machine.slot(to_canonical_address(account), int(position, 16), self._resolve(tag)))

    def _call(self, request: Json, tag: Any = None, *_overrides: Any) -> str:
        output, _ = self._machine.run(_call_of(request), self._resolve(tag))
        return views.data(output)

    def _estimate_gas(self, request: Json, tag: Any = None, *_overrides: Any) -> str:
        return views.quantity(self._machine.estimate(_call_of(request), self._resolve(tag)))


def _call_of(request: Json) -> EvmCall:
    gas = request.get("gas")
    return EvmCall(
        sender=to_canonical_address(request["from"]) if request.get("from") else NO_SENDER,
        to=to_canonical_address(request["to"]) if request.get("to") else NO_ADDRESS,
        data=decode_hex(request.get("data") or request.get("input") or "0x"),
        value=int(request.get("value") or "0x0", 16),
        gas=min(int(gas, 16), CALL_GAS_MAX) if gas else CALL_GAS_MAX,
    )


def _block_number(tag: str | None, head: int) -> int:
    if tag in (None, "latest", "pending", "safe", "finalized"):
        return head
    return 0 if tag == "earliest" else int(str(tag), 16)


def _matches(entry: Json, topics: list[Any]) -> bool:
    """Return whether a log matches a topic filter: each position is None (any), one topic, or a list of topics."""
    if len(topics) > len(entry["topics"]):
        return False
    for wanted, found in zip(topics, entry["topics"], strict=False):
        if wanted is None or wanted == []:
            continue
        choices = [wanted] if isinstance(wanted, str) else wanted
        if found not in [choice.lower() for choice in choices]:
            return False
    return True
