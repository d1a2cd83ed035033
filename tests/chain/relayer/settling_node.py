"""A node in the test process for the relayer: mempool, blocks on demand, forks, and a contract that settles once.

It is reached through httpx without a socket, so that a test can run on trio's virtual clock.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import rlp
import trio
from eth_abi.abi import decode, encode
from msgspec.structs import astuple

from sightline.chain.contracts.abi import (
    SETTLE_MANY_SIGNATURE,
    SETTLE_MANY_TYPES,
    SETTLE_SIGNATURE,
    SETTLE_TYPES,
    SETTLED_TOPIC,
    address_topic,
    selector,
)
from sightline.chain.rpc.client import JsonRpc, RpcOptions
from sightline.domain.value import Value
from sightline.ports.ledger import ChainIdentity
from sightline.system.ids import SystemIds
from sightline.system.keccak import keccak256

TOKEN, SETTLEMENT = "0x" + "aa" * 20, "0x" + "cc" * 20
SETTLED = selector("settled(bytes32)")


def word(number: int) -> str:
    return "0x" + number.to_bytes(32, "big").hex()


class Settled(Value):
    """One session settled by a transaction, as in the contract's log."""

    session: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    rate: int
    seconds: int
    fee_bps: int


class Transaction(Value):
    tx_hash: str
    nonce: int
    max_fee_wei: int
    gas: int
    calls: tuple[Settled, ...]


def transaction_of(raw: bytes) -> Transaction:
    """Decode a type 2 transaction that calls settle or settleMany."""
    fields: Any = rlp.decode(raw[1:])
    data = bytes(fields[7])
    return Transaction(
        tx_hash="0x" + keccak256(raw).hex(), nonce=int.from_bytes(fields[1], "big"),
        max_fee_wei=int.from_bytes(fields[3], "big"), gas=int.from_bytes(fields[4], "big"), calls=calls_of(data),
    )  # fmt: skip


def calls_of(data: bytes) -> tuple[Settled, ...]:
    if data[:4] == selector(SETTLE_SIGNATURE):
        session, payer, payee, *numbers, _ = decode(SETTLE_TYPES, data[4:])
        return (Settled("0x" + session.hex(), payer, payee, *numbers),)
    assert data[:4] == selector(SETTLE_MANY_SIGNATURE)
    (rows,) = decode(SETTLE_MANY_TYPES, data[4:])
    return tuple(Settled("0x" + row[0].hex(), row[1], row[2], 0, 0, row[3], 0, row[4]) for row in rows)


@dataclass
class Block:
    number: int
    block_hash: str
    parent_hash: str
    mined: list[tuple[Transaction, int]] = field(default_factory=list)
    """The block's transactions with their status."""

    def view(self, base_fee: int) -> dict[str, Any]:
        return {
            "number": hex(self.number), "hash": self.block_hash, "parentHash": self.parent_hash,
            "baseFeePerGas": hex(base_fee),
        }  # fmt: skip


def settled_log(block: Block, transaction: Transaction, call: Settled) -> dict[str, Any]:
    """Return the event that the contract emits for a settled session."""
    return {
        "transactionHash": transaction.tx_hash, "blockNumber": hex(block.number), "blockHash": block.block_hash,
        "logIndex": "0x0",
        "topics": [SETTLED_TOPIC, call.session, address_topic(call.payer), address_topic(call.payee)],
        "data": "0x" + encode(["uint256"] * 5, astuple(call)[3:]).hex(),
    }  # fmt: skip


class SettlingNode:
    """A node with a mempool.

    `mine` puts pending transactions into a block; `fork` removes blocks and makes their transactions pending again.
    """

    def __init__(self, *, automine: bool = False) -> None:
        self.blocks = [Block(0, word(0), word(2**255))]
        self.pool: dict[str, Transaction] = {}
        self.sent: list[Transaction] = []
        self.automine = automine
        self.base_fee = 10**9
        self.refuses: Callable[[Settled], str | None] = lambda _: None
        """Returns why eth_call of the settlement fails now, or None."""
        self.fails: Callable[[Settled], bool] = lambda _: False
        """Returns whether the transaction reverts when it is mined."""
        self.refuses_raw: Callable[[Transaction], str | None] = lambda _: None
        """Returns the error of eth_sendRawTransaction, or None."""
        self.foreign_nonces = 0
        """Transactions of the relayer's key in blocks that no program of ours has signed."""
        self.is_down = False
        self.delay_s = 0.0
        """Time until each answer."""
        self.exchanges = 0
        """HTTP requests, of one or several calls each."""
        self.examined = 0
        self.counted: Counter[str] = Counter()
        """Requests by method."""
        self.before: dict[str, Callable[[], None]] = {}
        """Called before a request of this method is answered."""
        self.fee_history: dict[str, Any] | None = None
        """The response to eth_feeHistory; None: the node lacks the method."""
        self.estimate: int | RefusedCallError | None = None
        """The response to eth_estimateGas; None: the node lacks the method."""
        self.queries: list[dict[str, Any]] = []
        """Queries of eth_getLogs."""
        self.receipts_from: dict[str, str] = {}
        """Receipts that report a wrong block hash, by transaction."""
        self.identity = ChainIdentity(
            chain_id=7, genesis_hash=word(0), usdc_address=TOKEN, settlement_address=SETTLEMENT
        )

    # Writing.

    def mine(self, *, salt: str = "") -> Block:
        parent = self.blocks[-1]
        block_hash = "0x" + keccak256(f"{parent.block_hash}{salt}{sorted(self.pool)}".encode()).hex()
        block = Block(parent.number + 1, block_hash, parent.block_hash)
        settled = self.settled()
        due = self._next_nonce()
        for transaction in sorted(self.pool.values(), key=lambda item: (item.nonce, -item.max_fee_wei)):
            if transaction.nonce != due:
                continue
            due += 1
            fails = any(self.fails(call) or call.session in settled for call in transaction.calls)
            settled |= set() if fails else {call.session for call in transaction.calls}
            block.mined.append((transaction, 0 if fails else 1))
        self.pool = {key: waits for key, waits in self.pool.items() if waits.nonce > due}
        self.blocks.append(block)
        return block

    def _next_nonce(self) -> int:
        return self.foreign_nonces + sum(len(block.mined) for block in self.blocks)

    def fork(self, depth: int) -> None:
        """Remove the last blocks; their transactions become pending again."""
        for block in self.blocks[-depth:]:
            self.pool |= {transaction.tx_hash: transaction for transaction, _ in block.mined}
        del self.blocks[-depth:]

    def settled(self) -> set[str]:
        return {
            call.session
            for block in self.blocks
            for transaction, status in block.mined
            if status
            for call in transaction.calls
        }

    # Reading.

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        head = {"jsonrpc": "2.0", "id": request["id"]}
        self.counted[request["method"]] += 1
        if request["method"] in self.before:
            self.before[request["method"]]()
        try:
            return head | {"result": getattr(self, "_" + request["method"])(*request["params"])}
        except RefusedCallError as error:
            return head | {"error": {"code": error.code, "message": str(error)}}

    def _eth_chainId(self) -> str:  # noqa: N802
        return hex(self.identity.chain_id)

    def _eth_blockNumber(self) -> str:  # noqa: N802
        return hex(self.blocks[-1].number)

    def _eth_maxPriorityFeePerGas(self) -> str:  # noqa: N802
        return hex(10**9)

    def _eth_feeHistory(self, count: str, newest: str, percentiles: list[int]) -> dict[str, Any]:  # noqa: N802
        assert (count, newest, percentiles) == ("0x14", "latest", [50])
        if self.fee_history is None:
            raise missing("eth_feeHistory")
        return self.fee_history

    def _eth_estimateGas(self, _call: dict[str, Any]) -> str:  # noqa: N802
        if self.estimate is None:
            raise missing("eth_estimateGas")
        if isinstance(self.estimate, RefusedCallError):
            raise self.estimate
        return hex(self.estimate)

    def _eth_getBlockByNumber(self, tag: str, is_full: bool) -> dict[str, Any] | None:  # noqa: N802
        assert not is_full, "the transactions of a block are not needed, and may be some MB"
        if tag == "pending":
            return None  # as some endpoints answer
        number = self.blocks[-1].number if tag == "latest" else int(tag, 16)
        return self.blocks[number].view(self.base_fee) if number < len(self.blocks) else None

    def _eth_getTransactionCount(self, _account: str, _tag: str) -> str:  # noqa: N802
        return hex(self._next_nonce())

    def _eth_getTransactionReceipt(self, tx_hash: str) -> dict[str, Any] | None:  # noqa: N802
        for block in self.blocks:
            for transaction, status in block.mined:
                if transaction.tx_hash == tx_hash:
                    return {
                        "transactionHash": tx_hash, "blockNumber": hex(block.number), "status": hex(status),
                        "blockHash": self.receipts_from.get(tx_hash, block.block_hash),
                        "logs": [settled_log(block, transaction, call) for call in transaction.calls if status],
                    }  # fmt: skip
        return None

    def _eth_sendRawTransaction(self, raw: str) -> str:  # noqa: N802
        transaction = transaction_of(bytes.fromhex(raw[2:]))
        self.sent.append(transaction)
        if (refusal := self.refuses_raw(transaction)) is not None:
            raise RefusedCallError(refusal)
        mined = {old.tx_hash for block in self.blocks for old, _ in block.mined}
        if transaction.tx_hash not in mined:
            self.pool[transaction.tx_hash] = transaction
            if self.automine:
                self.mine()
        return transaction.tx_hash

    def _eth_call(self, call: dict[str, Any], _tag: str) -> str:
        data = bytes.fromhex(call["data"][2:])
        if data[:4] == SETTLED:
            return word("0x" + data[4:36].hex() in self.settled())
        self.examined += 1
        for each in calls_of(data):
            reason = self.refuses(each)
            if reason is not None:
                raise RefusedCallError(reason)
        return "0x"

    def _eth_getLogs(self, query: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: N802
        self.queries.append(query)
        session = query["topics"][1]
        return [
            settled_log(block, transaction, call)
            for block in self.blocks
            if int(query["fromBlock"], 16) <= block.number <= int(query["toBlock"], 16)
            for transaction, status in block.mined
            if status
            for call in transaction.calls
            if call.session == session
        ]


class RefusedCallError(Exception):
    """The contract reverts with this reason."""

    code = 3


def missing(method: str) -> RefusedCallError:
    error = RefusedCallError(f"the method {method} does not exist/is not available")
    error.code = -32601
    return error


@asynccontextmanager
async def open_node(*nodes: SettlingNode) -> AsyncIterator[JsonRpc]:
    """Open a client whose requests these nodes answer in the test process; of several, each is an endpoint."""
    by_host = {f"node{number}": node for number, node in enumerate(nodes)}

    async def handle(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        body = json.loads(b"".join([chunk async for chunk in request.stream]))
        node = by_host[request.url.host]
        node.exchanges += 1
        await trio.sleep(node.delay_s)
        if node.is_down:
            return httpx.Response(503)
        answer = [node.answer(item) for item in body] if isinstance(body, list) else node.answer(body)
        return httpx.Response(200, json=answer)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        yield JsonRpc(http, ",".join(f"http://{name}" for name in by_host), RpcOptions(tries=1), SystemIds())
