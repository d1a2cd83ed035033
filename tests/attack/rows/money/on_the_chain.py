"""Attacks on the embedded chain's public JSON-RPC endpoint."""

import json
from collections.abc import Awaitable, Callable
from functools import partial

import httpx
import trio
from eth_account import Account

from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target
from tests.e2e.server import Tenant

CHAIN_ID = 84_532_001
ENDLESS_CODE = "0x5b600056"
ENDLESS_GAS = 5_300_000
LOOPS = 24
WAIT_S_MAX = 20.0
"""Without the limits of CPU time one request stopped the chain for 26 s."""
LOOPS_BEFORE = 'BROKEN: an honest transaction got "the chain does not answer"'
PAIRING = "0x0000000000000000000000000000000000000008"
PAIRS_MAX = 6


@attack("H2", "Calls of the pairing precompile stall the chain for others", Kind.FLOOD)
async def pairing_precompile(target: Target) -> str:
    data = "0x" + "00" * 192 * PAIRS_MAX
    worst_s = 0.0

    async def pair() -> None:
        answer = await target.rpc("eth_call", {"to": PAIRING, "data": data, "gas": "0x4c4b40"}, "latest")
        assert "is not available here" in answer.text, answer.text

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(pair)
        for _ in range(10):
            started = trio.current_time()
            assert (await target.rpc("eth_blockNumber")).status_code == 200
            worst_s = max(worst_s, trio.current_time() - started)
    return f"6 of 6 refused; eth_blockNumber at most {worst_s * 1_000:.0f} ms"


@attack("H3", "Memory by eth_feeHistory with 10,000 percentiles")
async def fee_history(target: Target) -> str:
    percentiles = [number / 200 for number in range(10_000)]
    answer = await target.rpc("eth_feeHistory", "0x400", "latest", percentiles)
    assert len(answer.content) < 300_000, len(answer.content)
    return f"reply of {len(answer.content)} bytes"


@attack("held", "Methods that are not for guests, in batches and with escaped names")
async def forbidden_methods(target: Target) -> str:
    names = ["evm_mine", "anvil_setBalance", "eth_sendTransaction", "eth_accounts", "personal_sign", "admin_peers"]
    names += ["debug_traceCall", "evm_increaseTime", "evm_revert", "txpool_content", "miner_start", "eth_sign"]
    for name in names:
        answer = await target.rpc(name)
        assert "error" in answer.json(), name
    batch = [{"jsonrpc": "2.0", "id": number, "method": name, "params": []} for number, name in enumerate(names)]
    answer = await target.http.post(f"{target.url}/rpc", json=batch)
    assert '"result"' not in answer.text
    escaped = b'{"jsonrpc":"2.0","id":1,"m\\u0065thod":"evm_mine","params":[]}'
    answer = await target.http.post(f"{target.url}/rpc", content=escaped, headers={"content-type": "application/json"})
    assert "error" in json.loads(answer.content)
    return f"{len(names)} methods refused, alone and in a batch"


def signed(key: bytes | str, nonce: int, to: str, *, value: int = 0, data: str = "0x", gas: int = 21_000) -> str:
    """A raw transaction. With an empty `to`, `data` is creation code."""
    fields = {
        "type": 2, "chainId": CHAIN_ID, "nonce": nonce, "to": to, "value": value, "data": data, "gas": gas,
        "maxFeePerGas": 2 * 10**9, "maxPriorityFeePerGas": 1,
    }  # fmt: skip
    return "0x" + bytes(Account.sign_transaction(fields, key).raw_transaction).hex()


ATTACKER = "127.0.0.66"
"""The attacker's address: budgets are counted per address."""


async def send(http: httpx.AsyncClient, target: Target, *raws: str) -> httpx.Response:
    batch = [
        {"jsonrpc": "2.0", "id": n, "method": "eth_sendRawTransaction", "params": [raw]} for n, raw in enumerate(raws)
    ]
    return await http.post(f"{target.url}/rpc", json=batch)


async def a_funded_tenant(target: Target, *, micro: int = 1) -> Tenant:
    tenant = await target.tenant("CONSUMER")
    answer = await target.call("POST", "/wallet/faucet", tenant.key, {"amountMicroUsdc": str(micro)})
    assert answer.status_code == 200, answer.text
    return tenant


async def wallets_with_coins(http: httpx.AsyncClient, target: Target, count: int) -> list[bytes]:
    """New wallets, each with enough coin for an endless transaction. All coin comes from one faucet payment."""
    tenant = await a_funded_tenant(target)
    keys = [bytes(Account.create().key) for _ in range(count)]
    for nonce, key in enumerate(keys):
        raw = signed(tenant.wallet.private_key, nonce, Account.from_key(key).address, value=10**17)
        assert '"result"' in (await send(http, target, raw)).text
    return keys


@attack("A4", "Endless transactions of new wallets stop the embedded chain", Kind.FLOOD, before=LOOPS_BEFORE)
async def endless_transactions(target: Target) -> str:
    honest, waits_s = await a_funded_tenant(target), dict[str, float]()

    async def timed(name: str, ask: Callable[[], Awaitable[httpx.Response]]) -> None:
        started = trio.current_time()
        answer = await ask()
        assert (answer.status_code, '"error"' in answer.text) == (200, False), answer.text
        waits_s[name] = max(waits_s.get(name, 0.0), trio.current_time() - started)

    async def read() -> None:
        for _ in range(10):
            await timed("read", partial(target.rpc, "eth_getBalance", honest.wallet.address, "latest"))

    approval = signed(honest.wallet.private_key, 0, honest.wallet.address)
    transport = httpx.AsyncHTTPTransport(local_address=ATTACKER)
    async with httpx.AsyncClient(timeout=60, transport=transport) as http:
        loops = [
            signed(key, 0, "", data=ENDLESS_CODE, gas=ENDLESS_GAS)
            for key in await wallets_with_coins(http, target, LOOPS)
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, http, target, *loops)
            for first in range(0, LOOPS, 2):
                nursery.start_soon(send, http, target, *loops[first : first + 2])
            nursery.start_soon(read)
            nursery.start_soon(timed, "transaction", partial(send, target.http, target, approval))
            body = {"amountMicroUsdc": "1"}
            nursery.start_soon(timed, "faucet", partial(target.call, "POST", "/wallet/faucet", honest.key, body))
    seen = ", ".join(f"{name} at most {wait_s * 1_000:.0f} ms" for name, wait_s in sorted(waits_s.items()))
    assert max(waits_s.values()) < WAIT_S_MAX, seen
    return seen
