"""The guarded endpoint answers reads and eth_sendRawTransaction, and nothing else."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from sightline.chain.rpc.client import RpcOptions, open_rpc
from sightline.chain.rpc.proxy import (
    BATCH_MAX,
    BODY_BYTES_MAX,
    HEAVY_METHODS,
    LIGHT_METHODS,
    OF_GUEST_MAX,
    REPLY_BYTES_MAX,
    RpcProxy,
)
from tests.chain.endpoint import answering, honest
from tests.chain.world import World, ids


@dataclass
class Guest:
    """A guest whose budget is checked after each answer."""

    key: str = "198.51.100.7"
    budget_ms: int = 1_000
    spent_ms: list[int] = field(default_factory=list)

    def admit(self) -> None:
        if sum(self.spent_ms) > self.budget_ms:
            raise UsedUpError

    def charge(self, cpu_ms: int) -> None:
        self.spent_ms.append(cpu_ms)


class UsedUpError(Exception):
    """The guest's budget is used up."""


async def ask(proxy: RpcProxy, body: Any, guest: Guest | None = None) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(await proxy.handle(raw, guest or Guest()))


def a_request(method: str, *params: Any, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": list(params)}


async def test_reads_pass_and_keep_their_ids(world: World) -> None:
    proxy = RpcProxy(world.rpc)
    assert (await ask(proxy, a_request("eth_chainId", request_id="a")))["result"] == hex(84_532_001)
    answers = await ask(proxy, [a_request("eth_blockNumber", request_id=7), a_request("net_version", request_id=8)])
    assert {answer["id"] for answer in answers} == {7, 8}


FORBIDDEN = ["sightline_faucet", "evm_mine", "evm_revert", "anvil_setBalance", "hardhat_impersonateAccount",
     "debug_traceCall", "eth_sendTransaction", "eth_sign", "personal_unlockAccount", "admin_peers", "eth_newFilter",
     "txpool_content",
     "ETH_CHAINID", "eth_chainId ", ""]  # fmt: skip


async def test_other_methods_never_reach_the_node(world: World) -> None:
    async with open_rpc(world.endpoint.url, RpcOptions(), ids) as rpc:
        proxy = RpcProxy(rpc)
        for method in FORBIDDEN:
            for body in (a_request(method), [a_request("eth_chainId"), a_request(method)]):
                assert (await ask(proxy, body))["error"]["code"] == -32601
    assert world.endpoint.seen == []


async def test_a_second_method_hidden_by_a_duplicate_key_is_not_sent(world: World) -> None:
    async with open_rpc(world.endpoint.url, RpcOptions(), ids) as rpc:
        hidden = b'{"jsonrpc":"2.0","id":1,"method":"evm_mine","params":[],"method":"eth_chainId"}'
        assert (await ask(RpcProxy(rpc), hidden))["result"] == hex(84_532_001)
    assert world.endpoint.seen == ["eth_chainId"]


MALFORMED = [b"", b"{", b"[]", b"1", b"null", b'"eth_chainId"', b"[[]]", b'{"method": 5}', b"[" * 100_000, b"\xff\xfe",
     b" " * (BODY_BYTES_MAX + 1), json.dumps([{"method": "eth_chainId"}] * (BATCH_MAX + 1)).encode()]  # fmt: skip


async def test_malformed_and_oversized_bodies_get_an_error(world: World) -> None:
    proxy = RpcProxy(world.rpc)
    for body in MALFORMED:
        assert (await ask(proxy, body))["error"]["code"] in (-32600, -32700), body[:20]


async def test_a_dead_node_is_an_error_with_the_callers_id(world: World) -> None:
    world.endpoint.is_down = True
    async with open_rpc(world.endpoint.url, RpcOptions(timeout_ms=500), ids) as rpc:
        answer = await ask(RpcProxy(rpc), a_request("eth_chainId", request_id=42))
    assert (answer["id"], answer["error"]["code"]) == (42, -32000)


async def test_a_sent_transaction_is_noticed(world: World) -> None:
    noticed: list[bool] = []
    proxy = RpcProxy(world.rpc, on_transaction=lambda: noticed.append(True))
    await ask(proxy, a_request("eth_chainId"))
    assert not noticed
    await ask(proxy, a_request("eth_sendRawTransaction", "0x00"))
    assert noticed


def test_the_allow_list_is_what_is_documented() -> None:
    assert {"eth_call", "eth_estimateGas", "eth_feeHistory", "eth_getLogs", "eth_sendRawTransaction"} == HEAVY_METHODS
    assert len(LIGHT_METHODS) == 15
    assert all(name.startswith(("eth_get", "eth_", "net_version", "web3_clientVersion")) for name in LIGHT_METHODS)


async def test_an_answer_that_is_too_long_is_not_passed_on(world: World) -> None:
    long = {"jsonrpc": "2.0", "id": 1, "result": "x" * (REPLY_BYTES_MAX + 1)}
    world.endpoint.fault = answering(long["result"])
    async with open_rpc(world.endpoint.url, RpcOptions(), ids) as rpc:
        answer = await ask(RpcProxy(rpc), a_request("eth_getLogs", {}))
        assert "at most" in answer["error"]["message"]
        world.endpoint.fault = honest
        assert (await ask(RpcProxy(rpc), a_request("eth_chainId")))["result"] == hex(84_532_001)


# The embedded chain's CPU time.

LOOP = {"data": "0x5b600056", "gas": hex(6_000_000)}


async def test_a_guest_pays_the_cpu_time_of_its_calls_and_is_refused_when_its_budget_is_used_up(world: World) -> None:
    async with open_rpc(world.node_url, RpcOptions(timeout_ms=30_000), ids) as rpc:
        proxy, guest = RpcProxy(rpc), Guest(budget_ms=100)
        await ask(proxy, a_request("eth_getBalance", world.payer.address, "latest"), guest)
        assert guest.spent_ms == []
        answer = await ask(proxy, a_request("eth_call", LOOP, "latest"), guest)
        assert "too much CPU time" in answer["error"]["message"]
        assert guest.spent_ms[0] >= 200
        with pytest.raises(UsedUpError):
            await ask(proxy, a_request("eth_call", LOOP, "latest"), guest)
        await ask(proxy, a_request("eth_getBalance", world.payer.address, "latest"), guest)


async def test_requests_that_a_guest_sends_at_once_are_admitted_one_after_the_other(world: World) -> None:
    async with open_rpc(world.node_url, RpcOptions(timeout_ms=30_000), ids) as rpc:
        proxy, guest = RpcProxy(rpc), Guest(budget_ms=400)  # one call takes 250 ms and a little more, two take 500 ms
        refused: list[bool] = []

        async def call() -> None:
            try:
                await ask(proxy, a_request("eth_call", LOOP, "latest"), guest)
            except UsedUpError:
                refused.append(True)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(call)
        assert len(guest.spent_ms) == 2
        assert len(refused) == 6


async def test_reads_that_a_batch_adds_after_a_second_of_cpu_time_are_refused(world: World) -> None:
    async with open_rpc(world.node_url, RpcOptions(timeout_ms=30_000), ids) as rpc:
        guest = Guest()
        answers = await ask(
            RpcProxy(rpc), [a_request("eth_call", LOOP, "latest", request_id=n) for n in range(20)], guest
        )
    assert [answer["error"]["code"] for answer in answers].count(-32005) >= 14
    assert sum(guest.spent_ms) < 2_000


async def test_a_batch_holds_two_transactions(world: World) -> None:
    proxy = RpcProxy(world.rpc)
    answers = await ask(proxy, [a_request("eth_sendRawTransaction", "0x00", request_id=n) for n in range(2)])
    assert [answer["id"] for answer in answers] == [0, 1]
    refused = await ask(proxy, [a_request("eth_sendRawTransaction", "0x00")] * 3)
    assert refused["error"]["message"] == "a batch holds at most 2 transactions"


async def test_a_guest_has_a_limited_number_of_requests_waiting(world: World) -> None:
    world.endpoint.is_down = True
    async with open_rpc(world.endpoint.url, RpcOptions(timeout_ms=500), ids) as rpc:
        proxy, codes = RpcProxy(rpc), []

        async def call() -> None:
            codes.append((await ask(proxy, a_request("eth_call", {}, "latest")))["error"]["code"])

        async with trio.open_nursery() as nursery:
            for _ in range(OF_GUEST_MAX + 2):
                nursery.start_soon(call)
    assert codes.count(-32005) == 1
