"""Attacks on whoever verifies a receipt."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

import trio

import sightline_client
from sightline.chain.contracts.abi import SETTLED_TOPIC, TRANSFER_TOPIC, address_topic
from sightline_client import AsyncReceipt, ReceiptCheck, ReceiptError
from sightline_client.verification import chain_hash
from tests.attack.catalogue import Kind, attack
from tests.attack.rows.money.on_the_chain import CHAIN_ID, a_funded_tenant, signed
from tests.attack.target import Target
from tests.conftest import open_data_directory
from tests.e2e.server import Server
from tests.http.money.builder import settled
from tests.nemesis.restored_money import receipt_says_only_that_it_is_mismatched, settled_otherwise


def emitting(topics: list[str], *words: int) -> bytes:
    """Creation code that emits one log; it is part of a longer one."""
    code = b"".join(
        b"\x7f" + word.to_bytes(32, "big") + b"\x60" + bytes([32 * n]) + b"\x52" for n, word in enumerate(words)
    )
    code += b"".join(b"\x7f" + bytes.fromhex(topic[2:]) for topic in reversed(topics))
    return code + b"\x60" + bytes([32 * len(words)]) + b"\x60\x00" + bytes([0xA0 + len(topics)])


async def a_forged_payment(target: Target, payload: dict[str, Any]) -> dict[str, Any]:
    """Deploy a contract whose creation emits Transfer and Settled of a session that never was; returns its receipt."""
    tenant = await a_funded_tenant(target)
    payer, payee = address_topic(payload["from"]), address_topic(payload["to"])
    numbers = [int(payload[name]) for name in ("toAmount", "feeAmount", "ratePerSecond", "chargeableSeconds")]
    code = emitting([TRANSFER_TOPIC, payer, payee], numbers[0])
    code += emitting([SETTLED_TOPIC, payload["sessionIdHash"], payer, payee], *numbers, payload["platformFeeBps"])
    raw = signed(tenant.wallet.private_key, 0, "", data="0x" + code.hex(), gas=500_000)
    sent = (await target.rpc("eth_sendRawTransaction", raw)).json()
    with trio.fail_after(60):
        while True:
            mined = (await target.rpc("eth_getTransactionReceipt", sent["result"])).json()["result"]
            if mined is not None:
                return dict(mined)
            await trio.sleep(0.1)


def as_forged(receipt: dict[str, Any], mined: dict[str, Any]) -> dict[str, Any]:
    """The receipt of a settlement by the forged contract, with its events hashed anew."""
    forged = deepcopy(receipt)
    contract, tx_hash, previous = mined["contractAddress"], mined["transactionHash"], ""
    forged["contracts"] = {"chainId": CHAIN_ID, "settlementAddress": contract, "usdcAddress": contract}
    for event in forged["events"]:
        for fact in event["facts"]:
            fact["value"] = tx_hash if fact["name"] == "txHash" else fact["value"]
        facts = [[fact["name"], fact["value"]] for fact in event["facts"]]
        args = event["sequence"], event["kind"], event["atMs"], facts
        previous = event["hash"] = chain_hash(previous, forged["session"]["id"], *args)
    forged["meter"]["headHash"], forged["session"]["settlementTxHash"] = previous, tx_hash
    place = {"blockNumber": str(int(mined["blockNumber"], 16)), "logIndex": int(mined["logs"][-1]["logIndex"], 16)}
    forged["settlement"] |= place | {"txHash": tx_hash}
    return forged


@attack(
    "B3", "A receipt of a session that never was, confirmed by a contract of the forger",
    before="BROKEN: verified, nothing skipped",
)  # fmt: skip
async def forged_receipt(target: Target) -> str:
    true = settled().receipt()
    forged = AsyncReceipt(as_forged(true, await a_forged_payment(target, true["settlement"]["payload"])))
    node = f"{target.url}/rpc"
    with suppress(ValueError):  # a node alone is refused
        result = await forged.verify(rpc=node)
        assert ReceiptCheck.SETTLED in result.skipped, f"verified, {len(result.skipped)} checks skipped"
    assert ReceiptCheck.SETTLED in (await forged.verify()).skipped
    config = (await target.call("GET", "/config")).json()["data"]
    trusted = sightline_client.TrustedDeployment(config["chainId"], config["settlementAddress"], config["usdcAddress"])
    try:
        await forged.verify(deployment=trusted, rpc=node)
    except ReceiptError as refused:
        return ", ".join(f"{each.line} refused" for each in refused.failures)
    raise AssertionError("verified against the true contracts")


@attack(
    "C5", "A restored database ends a session with other seconds than the chain has settled",
    Kind.APART, before="the receipt had the seconds of the database and the amounts of the chain",
)  # fmt: skip
async def settled_with_other_seconds(_target: Target) -> str:
    with open_data_directory() as directory:
        server = Server(directory)
        try:
            await receipt_says_only_that_it_is_mismatched(await settled_otherwise(server))
        finally:
            server.end()
    return "the receipt has the numbers of the chain, and verifiers report that it is mismatched"
