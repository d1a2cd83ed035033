"""A chain scripted by the test: it can fork, lag and give wrong answers.

Served as an endpoint's fault, without a node.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from eth_abi.abi import decode, encode

from sightline.chain.contracts.abi import (
    APPROVAL_TOPIC,
    LIMITS_SET_TOPIC,
    SETTLED_TOPIC,
    TRANSFER_TOPIC,
    address_topic,
    selector,
    topic_address,
)
from sightline.chain.rpc.client import JsonRpc, RpcOptions
from sightline.chain.rpc.multicall import AGGREGATE3, MULTICALL3
from sightline.chain.watcher.events import ZERO_ADDRESS, bloom_mask
from sightline.ports.ledger import ChainIdentity
from sightline.system.ids import SystemIds
from sightline.system.keccak import keccak256, session_id_hash
from tests.chain.endpoint import Forward, Request, Response

TOKEN = "0x" + "aa" * 20
SETTLEMENT = "0x" + "cc" * 20
RELAYER = "0x" + "dd" * 20
GAS_USED, GAS_PRICE_WEI = 90_000, 10**9
BALANCE_OF, ALLOWANCE = selector("balanceOf(address)"), selector("allowance(address,address)")
LIMITS, SPENT_ON_DAY = selector("limits(address)"), selector("spentOnDay(address,uint256)")


def word(number: int) -> str:
    return "0x" + number.to_bytes(32, "big").hex()


@dataclass
class Block:
    number: int
    block_hash: str
    parent_hash: str
    logs: list[dict[str, Any]] = field(default_factory=list)

    def view(self) -> dict[str, Any]:
        bloom = 0
        for log in self.logs:
            for item in (log["address"], *log["topics"]):
                bloom |= bloom_mask(item)
        return {
            "number": hex(self.number), "hash": self.block_hash, "parentHash": self.parent_hash,
            "logsBloom": "0x" + bloom.to_bytes(256, "big").hex(),
            "timestamp": hex(1_000 + 12 * self.number),
            "transactions": sorted({log["transactionHash"] for log in self.logs}),
        }  # fmt: skip


class ScriptedNode:
    """A node whose blocks the test mines."""

    def __init__(self) -> None:
        self.blocks = [Block(0, word(0), word(2**255))]
        self.shown: int | None = None
        """The newest block that the node reports; None means the head."""
        self.final: int | None = None
        """The block that the node calls final; None: it does not know the tag."""
        self.limits: dict[str, tuple[int, int, int]] = {}
        """Limits (per session, per day, and 1 if set) by lower-case address."""
        self.spent: dict[str, int] = {}
        self.days: set[int] = set()
        """UTC days for which it was asked what was spent."""
        self.lost_logs: set[str] = set()
        self.lost_receipts: set[str] = set()
        self.has_bodies = True
        """Whether the node gives blocks with their whole transactions."""
        self.receipt_fees: dict[str, str] = {}
        """Fields of all receipts with fees beside the gas."""
        self.receipts_from: str | None = None
        """A wrong block hash that all receipts report."""
        self.senders: dict[str, str] = {}
        """Who sent a transaction, by its hash; RELAYER unless it is here."""
        self.span_max: int | None = None
        """Most blocks of one query of logs by range; None means any number."""
        self.pruned_below = 0
        """The first block whose state the node still has."""
        self.deployed_at = 0
        """Number of the block in which token and contract were deployed."""
        self.has_multicall = False
        self.calls_max: int | None = None
        """Maximum number of calls in one `aggregate3` before it runs out of gas; None means no limit."""
        self.asked: list[str] = []
        """The methods of all requests."""
        self.is_down = False
        self.data_of_logs: str | None = None
        """Wrong data that all logs of a range report."""
        self.queries: list[dict[str, Any]] = []
        """Queries of logs by range."""
        self.identity = ChainIdentity(
            chain_id=7, genesis_hash=word(0), usdc_address=TOKEN, settlement_address=SETTLEMENT
        )

    # Writing.

    def mine(self, *logs: dict[str, Any], salt: str = "") -> Block:
        parent = self.blocks[-1]
        number = parent.number + 1
        block_hash = "0x" + keccak256(f"{parent.block_hash}{salt}{logs}".encode()).hex()
        block = Block(number, block_hash, parent.block_hash)
        for index, log in enumerate(logs):
            place = {"blockNumber": hex(number), "blockHash": block_hash, "logIndex": hex(index), "removed": False}
            block.logs.append(log | place)
        self.blocks.append(block)
        return block

    def fork(self, depth: int) -> None:
        """Remove the last blocks; blocks mined next form another branch."""
        del self.blocks[-depth:]

    # Reading.

    async def answer(self, request: Request, forward: Forward) -> Response | None:
        head = {"jsonrpc": "2.0", "id": request["id"]}
        self.asked.append(request["method"])
        try:
            return head | {"result": getattr(self, "_" + request["method"])(*request["params"])}
        except LookupError as error:
            return head | {"error": {"code": -32000, "message": f"header not found {error}"}}

    @property
    def _visible(self) -> list[Block]:
        return self.blocks if self.shown is None else self.blocks[: self.shown + 1]

    def _eth_chainId(self) -> str:  # noqa: N802
        return hex(self.identity.chain_id)

    def _eth_getBlockByNumber(self, tag: str, _: bool) -> dict[str, Any] | None:  # noqa: N802
        if tag == "latest":
            return self._visible[-1].view()
        if tag == "finalized":
            if self.final is None:
                raise LookupError(tag)
            return self.blocks[self.final].view()
        number = int(tag, 16)
        return self.blocks[number].view() if number < len(self._visible) else None

    def _by_hash(self, block_hash: str) -> Block:
        for block in self._visible:
            if block.block_hash == block_hash:
                return block
        raise LookupError(block_hash)

    def _eth_getBlockByHash(self, block_hash: str, is_full: bool) -> dict[str, Any] | None:  # noqa: N802
        assert is_full
        if not self.has_bodies:
            return None
        view = self._by_hash(block_hash).view()
        sent = [{"hash": each, "from": self.senders.get(each, RELAYER)} for each in view["transactions"]]
        return view | {"transactions": sent}

    def _eth_getLogs(self, query: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: N802
        if "blockHash" in query:
            blocks = [self._by_hash(query["blockHash"])]
        else:
            first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
            self.queries.append(query)
            if self.span_max is not None and last - first + 1 > self.span_max:
                raise LookupError("the range is too large")
            blocks = [block for block in self._visible if first <= block.number <= last]
        wanted = query["address"] if isinstance(query["address"], list) else [query["address"]]
        wrong = {} if self.data_of_logs is None or "blockHash" in query else {"data": self.data_of_logs}
        return [
            log | wrong
            for block in blocks
            if block.block_hash not in self.lost_logs
            for log in block.logs
            if log["address"] in wanted and _matches(log, query.get("topics", []))
        ]

    def _eth_getTransactionReceipt(self, tx_hash: str) -> dict[str, Any] | None:  # noqa: N802
        for block in self._visible:
            logs = [log for log in block.logs if log["transactionHash"] == tx_hash]
            if logs and tx_hash not in self.lost_receipts:
                place = self.receipt_fees | {
                    "blockHash": self.receipts_from or block.block_hash, "blockNumber": hex(block.number),
                    "transactionHash": tx_hash,
                    "gasUsed": hex(GAS_USED), "effectiveGasPrice": hex(GAS_PRICE_WEI),
                }  # fmt: skip
                return place | {"from": self.senders.get(tx_hash, RELAYER), "logs": logs}
        return None

    def _eth_getCode(self, address: str, _: str) -> str:  # noqa: N802
        assert address == MULTICALL3
        return "0x60" if self.has_multicall else "0x"

    def _eth_call(self, call: dict[str, Any], pin: dict[str, str]) -> str:
        block = self._by_hash(pin["blockHash"])
        if block.number < self.pruned_below:
            raise LookupError("the state is pruned")
        if block.number < self.deployed_at:
            return "0x"
        data = bytes.fromhex(call["data"][2:])
        if data[:4] == AGGREGATE3:
            (calls,) = decode(["(address,bool,bytes)[]"], data[4:])
            if self.calls_max is not None and len(calls) > self.calls_max:
                raise LookupError("out of gas")
            results = [self._read(inner, block) for _, _, inner in calls]
            return "0x" + encode(["(bool,bytes)[]"], [[(True, bytes.fromhex(each[2:])) for each in results]]).hex()
        return self._read(data, block)

    def _read(self, data: bytes, block: Block) -> str:
        account = "0x" + data[16:36].hex()
        logs = [log for old in self.blocks[: block.number + 1] for log in old.logs]
        if data[:4] == BALANCE_OF:
            return word(balance(account, logs))
        if data[:4] == LIMITS:
            return "0x" + "".join(word(number)[2:] for number in self.limits.get(account, (0, 0, 0)))
        if data[:4] == SPENT_ON_DAY:
            self.days.add(int.from_bytes(data[36:68], "big"))
            return word(self.spent.get(account, 0))
        assert data[:4] == ALLOWANCE
        granted = [
            int(log["data"], 16)
            for log in logs
            if log["topics"][0] == APPROVAL_TOPIC and topic_address(log["topics"][1]) == account
        ]
        return word(granted[-1] if granted else 0)


@asynccontextmanager
async def open_scripted(*nodes: ScriptedNode) -> AsyncIterator[JsonRpc]:
    """Open a client of these endpoints, which answer in the test process."""
    by_host = {f"node{number}": node for number, node in enumerate(nodes)}

    async def no_forward(request: Request) -> Response:
        raise AssertionError("there is no other node")

    async def handle(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        body, node = json.loads(b"".join([chunk async for chunk in request.stream])), by_host[request.url.host]
        if node.is_down:
            return httpx.Response(503)
        items = body if isinstance(body, list) else [body]
        answers = [await node.answer(item, no_forward) for item in items]
        return httpx.Response(200, json=answers if isinstance(body, list) else answers[0])

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        urls = ",".join(f"http://{host}" for host in by_host)
        yield JsonRpc(http, urls, RpcOptions(tries=1, left_out_ms=0), SystemIds())


def balance(account: str, logs: list[dict[str, Any]]) -> int:
    total = 0
    for log in logs:
        if log["topics"][0] == TRANSFER_TOPIC:
            amount = int(log["data"], 16)
            total += amount * (topic_address(log["topics"][2]) == account)
            total -= amount * (topic_address(log["topics"][1]) == account)
    return total


def _matches(log: dict[str, Any], topics: list[Any]) -> bool:
    return all(
        wanted is None or found in ([wanted] if isinstance(wanted, str) else wanted)
        for wanted, found in zip(topics, log["topics"], strict=False)
    )


def transfer(sender: str, receiver: str, amount: int, tx: str) -> dict[str, Any]:
    return {
        "address": TOKEN, "topics": [TRANSFER_TOPIC, address_topic(sender), address_topic(receiver)],
        "data": word(amount), "transactionHash": word(int.from_bytes(keccak256(tx.encode()), "big")),
    }  # fmt: skip


def mint(receiver: str, amount: int, tx: str) -> dict[str, Any]:
    return transfer(ZERO_ADDRESS, receiver, amount, tx)


def approval(holder: str, amount: int, tx: str) -> dict[str, Any]:
    return transfer(holder, SETTLEMENT, amount, tx) | {
        "topics": [APPROVAL_TOPIC, address_topic(holder), address_topic(SETTLEMENT)]
    }


def settled(session_id: str, payer: str, payee: str, amount: int, tx: str) -> list[dict[str, Any]]:
    event = transfer(payer, payee, amount, tx)
    return [
        event,
        event | {
            "address": SETTLEMENT,
            "topics": [SETTLED_TOPIC, session_id_hash(session_id), address_topic(payer), address_topic(payee)],
            "data": word(amount) + "0" * 64 * 4,
        },
    ]  # fmt: skip


def limits_set(payer: str, tx: str) -> dict[str, Any]:
    return transfer(payer, SETTLEMENT, 0, tx) | {
        "address": SETTLEMENT, "topics": [LIMITS_SET_TOPIC, address_topic(payer)], "data": "0x" + "0" * 192,
    }  # fmt: skip
