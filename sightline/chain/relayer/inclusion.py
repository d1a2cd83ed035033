"""Finds settlement transactions on the chain: their block, their depth and whether they succeeded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from sightline.chain.contracts.abi import SETTLED_TOPIC
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import hex_int
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import Inclusion, SettlementRecord


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Included:
    """A transaction in a block of the canonical chain; `depth` is the number of blocks above it."""

    inclusion: Inclusion
    succeeded: bool
    depth: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The result of one query of the chain."""

    head: dict[str, Any]
    head_number: int
    mined_nonce: int
    """Number of the relayer's transactions in blocks, which is the next nonce on the chain."""
    found: dict[str, Included]
    """Included transactions by session id."""


async def look(rpc: JsonRpc, relayer: str, records: Sequence[SettlementRecord]) -> Sighting:
    """Look up every transaction of these settlements, adopted ones included.

    A receipt counts only if its block hash is the one that the same endpoint reports at that height.

    Raises:
        ChainUnavailableError: At least one query was not answered.
    """
    hashes = sorted({tx_hash for record in records for tx_hash in _hashes(record)})
    requests: list[Request] = [
        ("eth_getBlockByNumber", ["latest", False]),
        ("eth_getTransactionCount", [relayer, "latest"]),
    ]
    requests += [("eth_getTransactionReceipt", [tx_hash]) for tx_hash in hashes]
    head, nonce, *answers = _all_answered(await rpc.batch(requests))
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    receipts = {
        tx_hash: receipt
        for tx_hash, receipt in zip(hashes, answers, strict=True)
        if isinstance(receipt, dict) and receipt.get("blockNumber") is not None
    }
    canonical = await _canonical_hashes(rpc, {str(receipt["blockNumber"]) for receipt in receipts.values()}, head)
    head_number = hex_int(head["number"])
    included = {
        tx_hash: _included(receipt, head_number)
        for tx_hash, receipt in receipts.items()
        if canonical.get(str(receipt["blockNumber"])) == str(receipt["blockHash"]).lower()
    }
    found: dict[str, Included] = {}
    for record in records:
        decisive = _of_record(record, included)
        if decisive is not None:
            log_index = _settled_log_index(receipts[decisive.inclusion.tx_hash], record.session_id_hash)
            found[record.session_id] = replace(decisive, inclusion=replace(decisive.inclusion, log_index=log_index))
    return Sighting(head=head, head_number=head_number, mined_nonce=hex_int(nonce), found=found)


def _hashes(record: SettlementRecord) -> list[str]:
    if record.attempts:
        return [attempt.tx_hash for attempt in record.attempts]
    return [record.tx_hash] if record.tx_hash is not None else []


def _of_record(record: SettlementRecord, included: dict[str, Included]) -> Included | None:
    """Return the transaction that decides a settlement: one that succeeded, or the failed one with the newest nonce.

    A failure with an earlier nonce does not count: the settlement was examined and signed again after it.
    """
    if not record.attempts:
        return included.get(record.tx_hash or "")
    found = [(attempt, included[attempt.tx_hash]) for attempt in record.attempts if attempt.tx_hash in included]
    succeeded = [item for _, item in found if item.succeeded]
    failed = [item for attempt, item in found if attempt.nonce == record.attempts[-1].nonce]
    return next(iter([*succeeded, *failed]), None)


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
        succeeded=hex_int(receipt.get("status")) == 1,
        depth=head_number - number,
    )


def _settled_log_index(receipt: dict[str, Any], session_id_hash: str) -> int | None:
    """Return the index, in its block, of the Settled event of a session; None if the transaction emitted none."""
    for log in receipt.get("logs") or ():
        topics = [str(topic).lower() for topic in log.get("topics", ())]
        if topics[:2] == [SETTLED_TOPIC, session_id_hash]:
            return hex_int(log["logIndex"])
    return None


def _all_answered(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, RpcResponseError):
            raise ChainUnavailableError(f"the endpoint refuses: {result.message}") from result
    return results
