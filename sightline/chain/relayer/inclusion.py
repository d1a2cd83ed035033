"""Where the transactions of settlements stand on the chain: in which block, how deep, and how they ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import hex_int
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import Inclusion, SettlementRecord


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Included:
    """A transaction in a block of the canonical chain; `depth` blocks are on top of it."""

    inclusion: Inclusion
    succeeded: bool
    depth: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One look at the chain."""

    head: dict[str, Any]
    head_number: int
    mined_nonce: int
    """Transactions of the relayer in blocks."""
    found: dict[str, Included]
    """By session id."""


async def look(rpc: JsonRpc, relayer: str, records: Sequence[SettlementRecord]) -> Sighting:
    """Look for every transaction of these settlements.

    A receipt counts only if its block is the one that the same endpoint has at that height.

    Raises:
        ChainUnavailableError: Not everything was answered.
    """
    hashes = [(record, attempt) for record in records for attempt in record.attempts]
    requests: list[Request] = [
        ("eth_getBlockByNumber", ["latest", False]),
        ("eth_getTransactionCount", [relayer, "latest"]),
    ]
    requests += [("eth_getTransactionReceipt", [attempt.tx_hash]) for _, attempt in hashes]
    head, nonce, *receipts = _all_answered(await rpc.batch(requests))
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    candidates = [
        (record.session_id, receipt)
        for (record, attempt), receipt in zip(hashes, receipts, strict=True)
        if isinstance(receipt, dict)
        and receipt.get("blockNumber") is not None
        # An earlier nonce's revert is history: the settlement was examined and signed anew since.
        and (_succeeded(receipt) or attempt.nonce == record.attempts[-1].nonce)
    ]
    canonical = await _canonical_hashes(rpc, {str(receipt["blockNumber"]) for _, receipt in candidates}, head)
    head_number = hex_int(head["number"])
    found: dict[str, Included] = {}
    for session_id, receipt in candidates:
        block_hash = str(receipt["blockHash"]).lower()
        is_settled = session_id in found and found[session_id].succeeded
        if canonical.get(str(receipt["blockNumber"])) == block_hash and not is_settled:
            found[session_id] = _included(receipt, head_number)
    return Sighting(head=head, head_number=head_number, mined_nonce=hex_int(nonce), found=found)


async def _canonical_hashes(rpc: JsonRpc, numbers: set[str], head: dict[str, Any]) -> dict[str, str]:
    known = {str(head["number"]): str(head["hash"]).lower()}
    asked = sorted(numbers - known.keys())
    blocks = _all_answered(await rpc.batch([("eth_getBlockByNumber", [number, False]) for number in asked]))
    return known | {
        number: str(block["hash"]).lower()
        for number, block in zip(asked, blocks, strict=True)
        if isinstance(block, dict)
    }


def _included(receipt: dict[str, Any], head_number: int) -> Included:
    number = hex_int(receipt["blockNumber"])
    return Included(
        inclusion=Inclusion(
            tx_hash=str(receipt["transactionHash"]).lower(),
            block_number=number,
            block_hash=str(receipt["blockHash"]).lower(),
        ),
        succeeded=_succeeded(receipt),
        depth=head_number - number,
    )


def _succeeded(receipt: dict[str, Any]) -> bool:
    return hex_int(receipt.get("status")) == 1


def _all_answered(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, RpcResponseError):
            raise ChainUnavailableError(f"the endpoint refuses: {result.message}") from result
    return results
