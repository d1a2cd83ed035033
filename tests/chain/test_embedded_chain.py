"""The embedded chain answers like a node, and its data is complete after every kind of exit."""

import itertools
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from eth_account import Account

from sightline.chain.contracts.abi import call_data, revert_reason
from sightline.chain.embedded.faucet import EmbeddedFaucet, open_running_faucet
from sightline.chain.embedded.machine import Machine
from sightline.chain.embedded.node import EmbeddedNode, EmbeddedOptions, open_embedded_node
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.rpc.reader import is_call_fault
from sightline.chain.service import ChainOptions, open_endpoint
from sightline.domain.errors import ChainUnavailableError, OutcomeUnknownError
from sightline.system.children import ChildFailedError
from sightline.system.clock import SystemClock
from tests.chain.world import USDC, Wallet, World, faucet_of, ids, until


@asynccontextmanager
async def open_node(directory: Path, **changed: Any) -> AsyncIterator[tuple[EmbeddedNode, JsonRpc]]:
    async with (
        open_embedded_node(EmbeddedOptions(data_dir=directory, **changed)) as node,
        open_rpc(node.url, RpcOptions(), ids) as rpc,
    ):
        yield node, rpc


async def header_chain(rpc: JsonRpc) -> list[str]:
    head = int(await rpc.call("eth_blockNumber"), 16)
    blocks = await rpc.batch([("eth_getBlockByNumber", [hex(number), False]) for number in range(head + 1)])
    for parent, child in itertools.pairwise(blocks):
        assert child["parentHash"] == parent["hash"]
    return [block["hash"] for block in blocks]


async def token_balance(rpc: JsonRpc, node: EmbeddedNode, address: str) -> int:
    data = call_data("balanceOf(address)", [address])
    return int(await rpc.call("eth_call", {"to": node.usdc_address, "data": "0x" + data.hex()}, "latest"), 16)


async def test_old_readings_of_an_embedded_chain_are_refreshed_every_five_minutes(tmp_path: Path) -> None:
    async with open_node(tmp_path) as (node, _), open_endpoint(ChainOptions(), node, ids=ids) as endpoint:
        assert (endpoint.poll_ms, endpoint.sweep_every_ms) == (200, 60_000)


async def test_a_restart_finds_the_same_blocks_contracts_and_balances(tmp_path: Path) -> None:
    wallet = Wallet()
    async with open_node(tmp_path) as (node, rpc):
        for _ in range(3):
            await EmbeddedFaucet(rpc, tmp_path).fund(wallet.address, 5 * USDC)
        before, contracts = await header_chain(rpc), (node.usdc_address, node.settlement_address)
    async with open_node(tmp_path) as (node, rpc):
        assert await header_chain(rpc) == before
        assert (node.usdc_address, node.settlement_address) == contracts
        assert await token_balance(rpc, node, wallet.address) == 15 * USDC
        await EmbeddedFaucet(rpc, tmp_path).fund(wallet.address, 1)
        assert (await header_chain(rpc))[: len(before)] == before


async def test_what_was_answered_survives_kill_9_and_the_chain_comes_back_on_its_port(tmp_path: Path) -> None:
    wallet = Wallet()
    async with open_node(tmp_path) as (node, rpc):
        faucet = EmbeddedFaucet(rpc, tmp_path)
        await faucet.fund(wallet.address, USDC)
        before = await header_chain(rpc)
        os.kill(node.pid, signal.SIGKILL)

        async def answers() -> bool:
            try:
                await rpc.call("eth_blockNumber")
            except ChainUnavailableError:
                return False
            return True

        await until("the chain is back", answers)
        assert await header_chain(rpc) == before
        await faucet.fund(wallet.address, USDC)
        assert await token_balance(rpc, node, wallet.address) == 2 * USDC


@contextmanager
def full_disk(node: EmbeddedNode, directory: Path) -> Iterator[None]:
    """Limit the file size of the running chain process: SQLite handles EFBIG like the ENOSPC of a full disk."""
    size = (directory / "chain.sqlite-wal").stat().st_size
    soft, hard = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_block_that_a_full_disk_refuses_leaves_the_chain_as_it_was(tmp_path: Path) -> None:
    wallet = Wallet()
    async with open_node(tmp_path) as (node, rpc):
        faucet = EmbeddedFaucet(rpc, tmp_path)
        await faucet.fund(wallet.address, USDC)
        before = await header_chain(rpc)
        with full_disk(node, tmp_path):
            for _ in range(3):
                with pytest.raises(ChainUnavailableError):
                    await faucet.fund(wallet.address, USDC)
            assert await header_chain(rpc) == before
            assert await token_balance(rpc, node, wallet.address) == USDC
        await faucet.fund(wallet.address, USDC)
        after = await header_chain(rpc)
        assert after[:-1] == before
        assert await token_balance(rpc, node, wallet.address) == 2 * USDC
        query = {"address": node.usdc_address, "fromBlock": "0x2", "toBlock": "latest"}
        assert len(await rpc.call("eth_getLogs", query)) == 2
    async with open_node(tmp_path) as (node, rpc):
        assert await header_chain(rpc) == after
        assert await token_balance(rpc, node, wallet.address) == 2 * USDC


async def test_a_chain_that_lacks_a_block_is_refused_at_the_start(tmp_path: Path) -> None:
    async with open_node(tmp_path) as (_, rpc):
        for _ in range(3):
            await EmbeddedFaucet(rpc, tmp_path).fund(Wallet().address, USDC)
    with sqlite3.connect(tmp_path / "chain.sqlite") as database:
        database.execute("DELETE FROM block WHERE number = 2")
    with pytest.raises(ChildFailedError, match="block 2 of 4 is missing"):
        async with open_node(tmp_path):
            pass


async def test_the_chain_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, trio; from pathlib import Path\n"
        "from sightline.chain.embedded.node import *\n"
        "async def main():\n"
        f"    async with open_embedded_node(EmbeddedOptions(data_dir=Path({str(tmp_path)!r}))) as node:\n"
        "        print(node.pid, flush=True)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    parent = await trio.lowlevel.open_process([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    try:
        said = await parent.stdout.receive_some()
        pid = int(said)
    finally:
        parent.kill()
        await parent.wait()
        await parent.stdout.aclose()

    async def is_gone() -> bool:
        try:
            return (await trio.Path(f"/proc/{pid}/stat").read_text()).split()[2] == "Z"
        except OSError:
            return True

    await until("the child is gone", is_gone)


async def test_a_second_chain_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with open_node(tmp_path):
        with pytest.raises(ChildFailedError, match="another embedded chain"):
            async with open_node(tmp_path):
                raise AssertionError("it opened")


async def test_another_chain_id_over_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with open_node(tmp_path):
        pass
    with pytest.raises(ChildFailedError, match="holds chain 84532001"):
        async with open_node(tmp_path, chain_id=5):
            raise AssertionError("it opened")


async def test_keys_and_the_faucets_secret_are_for_their_owner_alone(tmp_path: Path) -> None:
    async with open_node(tmp_path):
        for name in ("keys.json", "faucet.secret"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0


async def test_two_chains_have_different_keys_and_contracts(tmp_path: Path) -> None:
    async with open_node(tmp_path / "one") as (one, _), open_node(tmp_path / "two") as (two, _):
        assert one.relayer_key != two.relayer_key
        assert one.settlement_address != two.settlement_address


async def test_the_faucet_asks_for_its_secret(world: World) -> None:
    with pytest.raises(RpcResponseError, match="does not exist"):
        await world.rpc.call("sightline_faucet", "guess", world.payer.address, "1")


async def test_the_faucet_gives_coin_for_an_approval_and_works_from_another_process(
    world: World, tmp_path: Path
) -> None:
    async with open_running_faucet(world.chain_dir, ids) as faucet:
        payment = await faucet.fund(world.payer.address.lower(), 3 * USDC)
    assert payment.address == world.payer.address
    receipt = await world.rpc.call("eth_getTransactionReceipt", payment.tx_hash)
    assert receipt["status"] == "0x1"
    await world.approve(world.payer)
    assert await world.balance(world.payer) == 3 * USDC


async def test_a_faucet_that_answers_too_late_may_have_paid_and_one_that_is_not_reached_has_not(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "faucet.secret").write_text("secret")
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    async with open_rpc(url, RpcOptions(timeout_ms=200), ids) as rpc:
        faucet = EmbeddedFaucet(rpc, tmp_path)
        async with listener:  # it accepts the connection and never answers
            with pytest.raises(OutcomeUnknownError, match="may have paid"):
                await faucet.fund(world.payer.address, USDC)
        with pytest.raises(ChainUnavailableError):
            await faucet.fund(world.payer.address, USDC)


async def test_there_is_no_faucet_where_no_chain_was_started(tmp_path: Path) -> None:
    with pytest.raises(ChainUnavailableError, match="No embedded chain has been started"):
        async with open_running_faucet(tmp_path, ids):
            raise AssertionError("it opened")


async def test_calls_and_transactions_that_fail_say_why(world: World) -> None:
    data = "0x" + call_data("transfer(address,uint256)", [world.payee.address, 5]).hex()
    with pytest.raises(RpcResponseError) as caught:
        await world.rpc.call("eth_call", {"from": world.payer.address, "to": world.token, "data": data}, "latest")
    assert caught.value.code == 3
    assert revert_reason(caught.value.data or b"") == "TestUSDC: amount exceeds balance"
    with pytest.raises(RpcResponseError, match="execution reverted"):
        await world.rpc.call("eth_estimateGas", {"from": world.payer.address, "to": world.token, "data": data})


async def test_an_estimate_is_enough_gas(world: World) -> None:
    await faucet_of(world).fund(world.payer.address, 10)
    data = call_data("transfer(address,uint256)", [world.payee.address, 4])
    call = {"from": world.payer.address, "to": world.token, "data": "0x" + data.hex()}
    gas = int(await world.rpc.call("eth_estimateGas", call), 16)
    fields = {
        "type": 2, "chainId": 84_532_001, "nonce": 0, "to": world.token, "value": 0, "data": data, "gas": gas,
        "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 1,
    }  # fmt: skip
    raw = "0x" + bytes(Account.sign_transaction(fields, world.payer.key).raw_transaction).hex()
    receipt = await world.rpc.call("eth_getTransactionReceipt", await world.rpc.call("eth_sendRawTransaction", raw))
    assert receipt["status"] == "0x1"
    assert int(receipt["gasUsed"], 16) <= gas <= int(receipt["gasUsed"], 16) * 1.2


async def test_endless_code_is_stopped_by_its_gas(world: World) -> None:
    with trio.fail_after(60):
        with pytest.raises(RpcResponseError, match="out of gas"):
            await world.rpc.call("eth_call", {"data": ENDLESS_LOOP, "gas": hex(100_000)}, "latest")


async def test_creation_code_runs_as_a_call(world: World) -> None:
    # PUSH1 1, PUSH1 0, MSTORE8, PUSH1 1, PUSH1 0, RETURN: the output of a universal signature validator.
    assert await world.rpc.call("eth_call", {"data": "0x600160005360016000f3"}, "latest") == "0x01"


async def test_transactions_are_refused_in_the_words_of_other_nodes(world: World) -> None:
    await faucet_of(world).fund(world.payer.address, 10)

    def raw(nonce: int, **changed: Any) -> str:
        fields: dict[str, Any] = {
            "type": 2, "chainId": 84_532_001, "nonce": nonce, "to": world.payee.address, "value": 1, "data": b"",
            "gas": 21_000, "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 1,
        } | changed  # fmt: skip
        return "0x" + bytes(Account.sign_transaction(fields, world.payer.key).raw_transaction).hex()

    await world.rpc.call("eth_sendRawTransaction", raw(0))
    for bad, words in (
        (raw(0), "already known"),
        (raw(0, value=2), "nonce too low"),
        (raw(7), "nonce too high"),
        (raw(1, value=10**30), "insufficient funds"),
        (raw(1, chainId=1), "invalid chain id"),
        (raw(1, maxFeePerGas=1, maxPriorityFeePerGas=1), "less than block base fee"),
        (raw(1, gas=20_000), "intrinsic gas too low|invalid transaction|[Ii]nsufficient gas"),
        ("0x1234", "invalid transaction"),
        ("0x", "invalid transaction"),
    ):
        with pytest.raises(RpcResponseError, match=words):
            await world.rpc.call("eth_sendRawTransaction", bad)


async def test_transactions_of_one_batch_share_a_block_and_each_has_its_answer(world: World) -> None:
    await faucet_of(world).fund(world.payer.address, 10)

    def raw(nonce: int, value: int = 1) -> str:
        fields = {
            "type": 2, "chainId": 84_532_001, "nonce": nonce, "to": world.payee.address, "value": value, "data": b"",
            "gas": 21_000, "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 1,
        }  # fmt: skip
        return "0x" + bytes(Account.sign_transaction(fields, world.payer.key).raw_transaction).hex()

    batch = [raw(1), raw(0), raw(0, value=2), raw(2), "0x12", raw(2)]
    answers = await world.rpc.send_once([("eth_sendRawTransaction", [item]) for item in batch])
    refused = [str(answer) for answer in answers if isinstance(answer, RpcResponseError)]
    assert len(refused) == 3
    assert sum("already known" in reason for reason in refused) == 1
    hashes = [answer for answer in answers if isinstance(answer, str)]
    receipts = [await world.rpc.call("eth_getTransactionReceipt", tx_hash) for tx_hash in hashes]
    assert len({receipt["blockHash"] for receipt in receipts}) == 1
    assert [receipt["status"] for receipt in receipts] == ["0x1"] * 3


async def test_logs_are_found_by_range_hash_address_and_topic(world: World) -> None:
    payment = await faucet_of(world).fund(world.payer.address, 10)
    receipt = await world.rpc.call("eth_getTransactionReceipt", payment.tx_hash)
    (log,) = receipt["logs"]
    by_range = {
        "fromBlock": "0x0",
        "toBlock": "latest",
        "address": world.token,
        "topics": [None, None, log["topics"][2]],
    }
    assert await world.rpc.call("eth_getLogs", by_range) == [log]
    by_hash = {"blockHash": receipt["blockHash"], "topics": [[log["topics"][0], "0x" + "11" * 32]]}
    assert await world.rpc.call("eth_getLogs", by_hash) == [log]
    assert await world.rpc.call("eth_getLogs", by_range | {"address": world.settlement}) == []
    with pytest.raises(RpcResponseError, match="unknown block"):
        await world.rpc.call("eth_getLogs", {"blockHash": "0x" + "00" * 32})


async def test_reads_can_be_pinned_to_an_old_block(world: World) -> None:
    before = await world.rpc.call("eth_getBlockByNumber", "latest", False)
    await faucet_of(world).fund(world.payer.address, 10)
    data = "0x" + call_data("balanceOf(address)", [world.payer.address]).hex()
    call = {"to": world.token, "data": data}
    assert int(await world.rpc.call("eth_call", call, {"blockHash": before["hash"]}), 16) == 0
    assert int(await world.rpc.call("eth_call", call, before["number"]), 16) == 0
    assert int(await world.rpc.call("eth_call", call, "latest"), 16) == 10
    assert await world.rpc.call("eth_getBalance", world.payer.address, before["number"]) == "0x0"


# CPU time limits for calls from clients.

# JUMPDEST PUSH1 0 JUMP.
ENDLESS_LOOP = "0x5b600056"


@pytest.mark.parametrize("number", [*range(0x06, 0x0A), *range(0x0B, 0x12)])
async def test_a_precompile_that_is_pure_python_is_refused(world: World, number: int) -> None:
    to = f"0x{number:040x}"
    (answer,) = await world.rpc.batch([("eth_call", [{"to": to, "data": "0x" + "00" * 384}, "latest"])])
    assert isinstance(answer, RpcResponseError)
    assert "is not available here" in answer.message


def test_the_chain_starts_without_the_elliptic_curves_that_it_refuses() -> None:
    program = "import sys, sightline.chain.embedded.vm; print('py_ecc' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert loaded.stdout == "False\n"


async def test_a_call_that_takes_too_much_cpu_time_is_refused(world: World) -> None:
    began = trio.current_time()
    (answer,) = await world.rpc.batch([("eth_call", [{"data": ENDLESS_LOOP, "gas": hex(6_000_000)}, "latest"])])
    assert isinstance(answer, RpcResponseError)
    assert answer.message == "execution failed: it takes too much CPU time"
    assert is_call_fault(answer)
    assert trio.current_time() - began < 60


async def test_the_head_is_told_while_calls_are_running(world: World) -> None:
    done: list[float] = []

    async def loop() -> None:
        await world.rpc.batch([("eth_call", [{"data": ENDLESS_LOOP, "gas": hex(6_000_000)}, "latest"])] * 6)
        done.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop)
        await trio.testing.wait_all_tasks_blocked()
        assert int(await world.rpc.call("eth_blockNumber"), 16) > 0
        answered = trio.current_time()
    assert answered < done[0]


def creation(wallet: Wallet, code: str, gas: int, *, nonce: int = 0) -> str:
    fields = {
        "type": 2, "chainId": 84_532_001, "nonce": nonce, "value": 0, "data": code, "gas": gas,
        "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 1,
    }  # fmt: skip
    return "0x" + bytes(Account.sign_transaction(fields, wallet.key).raw_transaction).hex()


async def test_endless_transactions_of_guests_keep_neither_the_services_own_nor_an_honest_guest_waiting(
    world: World,
) -> None:
    wallets = [Wallet() for _ in range(17)]
    for wallet in wallets:
        await faucet_of(world).fund(wallet.address, 1)
    *attackers, honest = wallets
    loops = [creation(wallet, ENDLESS_LOOP, 5_300_000) for wallet in attackers]
    first = int(await world.rpc.call("eth_blockNumber"), 16)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.rpc.send_once, [("eth_sendRawTransaction", [raw]) for raw in loops])
        while int(await world.rpc.call("eth_blockNumber"), 16) == first:
            pass
        await faucet_of(world).fund(world.payee.address, 1)
        own = int(await world.rpc.call("eth_blockNumber"), 16)
        tx_hash = await world.rpc.call("eth_sendRawTransaction", creation(honest, "0x00", 60_000))
    last = int(await world.rpc.call("eth_blockNumber"), 16)
    blocks = [await world.rpc.call("eth_getBlockByNumber", hex(number), False) for number in range(first + 1, last + 1)]
    sizes = [len(block["transactions"]) for block in blocks]
    receipt = await world.rpc.call("eth_getTransactionReceipt", tx_hash)
    # How many loops were mined before each of the two came to the node depends on the pace of this process.
    assert own < int(receipt["blockNumber"], 16) < last, "neither waits until the loops are mined"
    assert max(sizes) <= 3, "a block takes half a second of guests' CPU time"
    assert sum(sizes) == len(loops) + 1 + 2


async def test_the_pending_block_follows_the_head_and_has_the_present_time(world: World) -> None:
    head = await world.rpc.call("eth_getBlockByNumber", "latest", False)

    async def is_later() -> bool:
        block = await world.rpc.call("eth_getBlockByNumber", "pending", False)
        return int(block["timestamp"], 16) > int(head["timestamp"], 16)

    await until("the pending block is later", is_later)
    coming = await world.rpc.call("eth_getBlockByNumber", "pending", False)
    assert (coming["parentHash"], int(coming["number"], 16)) == (head["hash"], int(head["number"], 16) + 1)
    assert await world.rpc.call("eth_blockNumber") == head["number"], "nothing was mined"


async def test_fee_history_is_bounded(world: World) -> None:
    (answer,) = await world.rpc.batch([("eth_feeHistory", ["0x10", "latest", [1.0] * 101])])
    assert isinstance(answer, RpcResponseError)
    history = await world.rpc.call("eth_feeHistory", "0x400", "latest", [1.0] * 100)
    assert len(history["gasUsedRatio"]) <= 100


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1:1", 200), ("localhost:1", 200), ("evil.example:1", 403)])
async def test_a_name_that_is_not_local_is_refused(world: World, host: str, status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(world.node_url, json=body, headers={"host": host})
    assert answer.status_code == status


def test_a_test_chain_with_the_id_of_a_main_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the id of a main network, 8453"):
        Machine(tmp_path / "chain.sqlite", chain_id=8453, rich={}, clock=SystemClock())
