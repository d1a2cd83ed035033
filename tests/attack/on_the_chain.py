"""Attacks on the embedded chain's public JSON-RPC endpoint."""

import json

import trio

from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target

PAIRING = "0x0000000000000000000000000000000000000008"
PAIRS_MAX = 6


@attack("H2", "Calls of the pairing precompile stall the chain for others", Kind.FLOOD)
async def pairing_precompile(target: Target) -> str:
    data = "0x" + "00" * 192 * PAIRS_MAX
    worst_s = 0.0
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(target.rpc, "eth_call", {"to": PAIRING, "data": data, "gas": "0x4c4b40"}, "latest")
        for _ in range(10):
            started = trio.current_time()
            assert (await target.rpc("eth_blockNumber")).status_code == 200
            worst_s = max(worst_s, trio.current_time() - started)
    assert worst_s < 1.0, f"eth_blockNumber took {worst_s:.1f} s"
    return f"eth_blockNumber at most {worst_s * 1_000:.0f} ms"


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
