"""Finds settlement transactions on the chain: their block, their depth and whether they succeeded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from sightline.chain.relayer.work import OutboxWork
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import hex_int
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import Inclusion, OutboxRecord, RecordT


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Included:
    """A transaction in a block of the canonical chain; `depth` is the number of blocks above it.

    It succeeded for a session if the contract emitted the session's event: a batch may skip one of its sessions.
    """

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


async def look(work: OutboxWork[RecordT], relayer: str, records: Sequence[RecordT]) -> Sighting:
    """Look up every transaction of these rows, adopted ones included.

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
    head, nonce, *answers = _all_answered(await work.rpc.batch(requests))
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    receipts = {
        tx_hash: receipt
        for tx_hash, receipt in zip(hashes, answers, strict=True)
        if isinstance(receipt, dict) and receipt.get("blockNumber") is not None
    }
    canonical = await _canonical_hashes(work.rpc, {str(receipt["blockNumber"]) for receipt in receipts.values()}, head)
    receipts = {
        tx_hash: receipt
        for tx_hash, receipt in receipts.items()
        if canonical.get(str(receipt["blockNumber"])) == str(receipt["blockHash"]).lower()
    }
    head_number = hex_int(head["number"])
    found: dict[str, Included] = {}
    for record in records:
        included = {
            tx_hash: _included(work, record, receipts[tx_hash], head_number)
            for tx_hash in _hashes(record)
            if tx_hash in receipts
        }
        decisive = _of_record(record, included)
        if decisive is not None:
            found[record.session_id] = decisive
    return Sighting(head=head, head_number=head_number, mined_nonce=hex_int(nonce), found=found)


def _hashes(record: OutboxRecord) -> list[str]:
    if record.attempts:
        return [attempt.tx_hash for attempt in record.attempts]
    return [record.tx_hash] if record.tx_hash is not None else []


def _of_record(record: OutboxRecord, included: dict[str, Included]) -> Included | None:
    """Return the transaction that decides a row: one that succeeded, or the failed one with the newest nonce.

    A failure with an earlier nonce does not count: the row was examined and signed again after it.
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


def _included(work: OutboxWork[RecordT], record: RecordT, receipt: dict[str, Any], head_number: int) -> Included:
    number = hex_int(receipt["blockNumber"])
    inclusion = Inclusion(
        tx_hash=str(receipt["transactionHash"]).lower(),
        block_number=number,
        block_hash=str(receipt["blockHash"]).lower(),
    )
    event = work.event_in(receipt, record.session_id_hash)
    return Included(
        inclusion=inclusion if event is None else work.at(inclusion, event),
        succeeded=hex_int(receipt.get("status")) == 1 and event is not None,
        depth=head_number - number,
    )


def _all_answered(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, RpcResponseError):
            raise ChainUnavailableError(f"the endpoint refuses: {result.message}") from result
    return results
