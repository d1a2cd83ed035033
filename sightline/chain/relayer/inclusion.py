"""Finds settlement transactions on the chain: their block, their depth and whether they succeeded."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import structlog
import trio

from sightline.chain.relayer.work import EventLog, OutboxWork
from sightline.chain.rpc.client import Request, RpcEndpoint, RpcResponseError
from sightline.chain.rpc.health import EndpointFault
from sightline.chain.rpc.reader import hex_int
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import Value
from sightline.ports.ledger import Inclusion, OutboxRecord, RecordT

Ask: TypeAlias = Callable[[Sequence[Request]], Awaitable[list[Any]]]
_Outcome: TypeAlias = tuple[Inclusion, EventLog | None]

AGREEING: Final = 2
"""Number of endpoints that must report the same outcome before it counts as final."""
SECOND_OPINION_S: Final = 2.0
"""How long the endpoints have to report an outcome; one that is slower is asked again in the next round."""

log = structlog.get_logger()


@final
class Included(Value, kw_only=True):
    """A transaction in a block of the canonical chain; `depth` is the number of blocks above it.

    A batch may skip one of its sessions.
    """

    inclusion: Inclusion
    event: EventLog | None
    """The session's event; None if the transaction failed, or skipped the session."""
    depth: int

    @property
    def succeeded(self) -> bool:
        """Whether the contract did what the transaction asks for."""
        return self.event is not None


@final
class Sighting(Value, kw_only=True):
    """The result of one query of the chain."""

    head: dict[str, Any]
    head_number: int
    mined_nonce: int
    """Number of the relayer's transactions in blocks, which is the next nonce on the chain."""
    found: dict[str, Included]
    """Included transactions by session id."""


async def look(work: OutboxWork[RecordT], relayer: str, records: Sequence[RecordT], ask: Ask | None = None) -> Sighting:
    """Look up every transaction of these rows, adopted ones included.

    Args:
        ask: Sends the queries; by default to the endpoint that answers reads now.

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
    ask = ask or work.rpc.batch
    head, nonce, *answers = _all_answered(await ask(requests))
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    receipts = {
        tx_hash: receipt
        for tx_hash, receipt in zip(hashes, answers, strict=True)
        if isinstance(receipt, dict) and receipt.get("blockNumber") is not None
    }
    canonical = await _canonical_hashes(ask, {str(receipt["blockNumber"]) for receipt in receipts.values()}, head)
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


async def look_for_all(work: OutboxWork[RecordT], relayer: str, records: Sequence[RecordT]) -> Sighting:
    """Look up rows like `look`; ask the other endpoints for those whose nonce is used and whose receipt is missing."""
    sighting = await look(work, relayer, records)
    lost = [
        record
        for record in records
        if record.session_id not in sighting.found
        and record.attempts
        and record.attempts[-1].nonce < sighting.mined_nonce
    ]
    if lost and work.rpc.has_several:
        for other in (await _ask_all(work, relayer, lost)).values():
            sighting.found.update(other.found)
    return sighting


async def agreed(
    work: OutboxWork[RecordT], relayer: str, records: Sequence[RecordT], found: Mapping[str, Included],
    *, depth: int, may_be_alone: bool = False,
) -> frozenset[str]:  # fmt: skip
    """Ask every endpoint for the rows at a depth; return the sessions whose outcome two of them report.

    With one endpoint all are returned. An endpoint that reports another outcome is named in the log and left out of
    reads, unless it is not known which of them is wrong.

    Args:
        may_be_alone: One report is enough while no other endpoint answers.
    """
    deep = [record for record in records if record.session_id in found and found[record.session_id].depth >= depth]
    if not deep or not work.rpc.has_several:
        return frozenset(record.session_id for record in deep)
    sightings = await _ask_all(work, relayer, deep)
    return frozenset(
        record.session_id
        for record in deep
        if _is_agreed(
            record.session_id,
            found[record.session_id],
            sightings,
            depth,
            needed=1 if may_be_alone and len(sightings) == 1 else AGREEING,
        )
    )


async def _ask_all(work: OutboxWork[RecordT], relayer: str, records: Sequence[RecordT]) -> dict[RpcEndpoint, Sighting]:
    """Look up rows at every endpoint; those that do not answer in time are left out."""
    sightings: dict[RpcEndpoint, Sighting] = {}

    async def ask_one(endpoint: RpcEndpoint) -> None:
        try:
            sightings[endpoint] = await look(work, relayer, records, endpoint.batch)
        except ChainUnavailableError as error:
            endpoint.health.leave_out(EndpointFault.UNREACHABLE, str(error))

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + SECOND_OPINION_S
        for endpoint in work.rpc.endpoints:
            nursery.start_soon(ask_one, endpoint)
    return sightings


def _is_agreed(
    session_id: str, ours: Included, sightings: Mapping[RpcEndpoint, Sighting], depth: int, *, needed: int
) -> bool:
    told: dict[RpcEndpoint, _Outcome | None] = {}
    for endpoint, sighting in sightings.items():
        theirs = sighting.found.get(session_id)
        if theirs is not None and theirs.depth >= depth:
            told[endpoint] = (theirs.inclusion, theirs.event)
        elif sighting.head_number >= ours.inclusion.block_number + depth:
            told[endpoint] = None  # it has the block of that height, and the transaction is not in it
    votes = Counter(told.values())
    is_outvoting = any(count >= AGREEING for count in votes.values())
    for endpoint, outcome in told.items():
        if len(votes) > 1 and not (is_outvoting and votes[outcome] >= AGREEING):
            log.error(
                "chain_endpoint_disagrees", endpoint=endpoint.health.name, session_id=session_id,
                tx_hash=ours.inclusion.tx_hash, is_included=outcome is not None,
                succeeded=outcome is not None and outcome[1] is not None, is_outvoted=is_outvoting,
            )  # fmt: skip
            endpoint.health.disagrees(is_outvoted=is_outvoting)
    return votes[ours.inclusion, ours.event] >= needed


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


async def _canonical_hashes(ask: Ask, numbers: set[str], head: dict[str, Any]) -> dict[str, str]:
    known = {str(head["number"]): str(head["hash"]).lower()}
    asked = sorted(numbers - known.keys())
    blocks = _all_answered(await ask([("eth_getBlockByNumber", [number, False]) for number in asked])) if asked else []
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
    event = work.event_in(receipt, record.session_id_hash) if hex_int(receipt.get("status")) == 1 else None
    return Included(
        inclusion=inclusion if event is None else work.at(inclusion, event), event=event, depth=head_number - number
    )


def _all_answered(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, RpcResponseError):
            raise ChainUnavailableError(f"the endpoint refuses: {result.message}") from result
    return results
