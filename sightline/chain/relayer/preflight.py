"""Checks before signing: the chain is the recorded one, the session is not settled, the settlement would succeed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final, final

from eth_utils.address import to_checksum_address

from sightline.chain.contracts.abi import SETTLED_TOPIC, SettleCall, SettledEvent, call_data, settle_many_data
from sightline.chain.fees import Fees, suggested
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import fault_text, hex_bytes, hex_int, is_call_fault
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import ChainIdentity, Inclusion, SettlementRecord

LOG_SPAN_BLOCKS: Final = 5_000


class PreflightVerdict(Enum):
    """What the relayer does with a settlement: sign, wait or adopt."""

    SIGN = auto()
    ADOPT = auto()
    WAIT = auto()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one settlement; `reason` says why it must wait."""

    verdict: PreflightVerdict
    reason: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The verdicts in the order of the request, and the chain data needed for signing."""

    findings: list[Finding]
    fees: Fees
    base_fee_wei: int
    mined_nonce: int


def settle_call(record: SettlementRecord) -> bytes:
    """Encode the call that settles one session."""
    return _call(record).data()


def settle_many_call(records: Sequence[SettlementRecord]) -> bytes:
    """Encode the call that settles several sessions without a charge."""
    return settle_many_data([_call(record) for record in records])


def _call(record: SettlementRecord) -> SettleCall:
    payload = record.payload
    return SettleCall(
        session_id_hash=record.session_id_hash,
        payer=to_checksum_address(payload.from_address),
        payee=to_checksum_address(payload.to_address),
        to_amount=payload.to_amount,
        fee_amount=payload.fee_amount,
        rate=payload.rate,
        seconds=payload.chargeable_seconds,
        platform_fee_bps=payload.platform_fee_bps,
    )


async def examine(
    rpc: JsonRpc, identity: ChainIdentity, relayer: str, records: Sequence[SettlementRecord]
) -> Examination:
    """Examine settlements before they are signed.

    Raises:
        ChainChangedError: The endpoint now serves another chain.
        ChainUnavailableError: At least one query was not answered.
    """
    settlement = to_checksum_address(identity.settlement_address)
    requests: list[Request] = [
        ("eth_chainId", []),
        ("eth_getBlockByNumber", ["0x0", False]),
        ("eth_getBlockByNumber", ["latest", False]),
        ("eth_maxPriorityFeePerGas", []),
        ("eth_getTransactionCount", [relayer, "latest"]),
    ]
    for record in records:
        asked = call_data("settled(bytes32)", [bytes.fromhex(record.session_id_hash[2:])])
        requests.append(("eth_call", [{"to": settlement, "data": "0x" + asked.hex()}, "latest"]))
        settle = {"from": relayer, "to": settlement, "data": "0x" + settle_call(record).hex()}
        requests.append(("eth_call", [settle, "latest"]))
    chain_id, genesis, head, tip, nonce, *answers = await rpc.batch(requests)
    require_same_chain(identity, chain_id, genesis)
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    return Examination(
        findings=[_finding(*pair) for pair in zip(answers[::2], answers[1::2], strict=True)],
        fees=suggested(head, tip),
        base_fee_wei=hex_int(head.get("baseFeePerGas") or "0x0"),
        mined_nonce=hex_int(nonce),
    )


def require_same_chain(identity: ChainIdentity, chain_id: Any, genesis: Any) -> None:
    """Compare an endpoint's chain id and genesis block with the recorded ones.

    Raises:
        ChainChangedError: They differ.
        ChainUnavailableError: The endpoint did not report them.
    """
    if hex_int(chain_id) != identity.chain_id:
        raise ChainChangedError(f"the endpoint's chain id is {hex_int(chain_id)}, not {identity.chain_id}")
    if not isinstance(genesis, dict):
        raise ChainUnavailableError("the endpoint did not return its genesis block")
    if str(genesis["hash"]).lower() != identity.genesis_hash:
        raise ChainChangedError("the endpoint's first block is not the one that the database knows")


def _finding(settled: Any, trial: Any) -> Finding:
    if isinstance(settled, RpcResponseError):
        raise ChainUnavailableError(f"the settlement contract does not answer: {settled.message}") from settled
    if hex_int(settled) == 1:
        return Finding(verdict=PreflightVerdict.ADOPT)
    if not isinstance(trial, RpcResponseError):
        return Finding(verdict=PreflightVerdict.SIGN)
    if not is_call_fault(trial):
        raise ChainUnavailableError(trial.message) from trial
    return Finding(verdict=PreflightVerdict.WAIT, reason=fault_text(trial))


async def why_reverted(
    rpc: JsonRpc, identity: ChainIdentity, relayer: str, record: SettlementRecord, block_number: int
) -> str:
    """Repeat a reverted call on the state of its block to get the reason; the state within the block may have differed.

    Raises:
        ChainUnavailableError: The endpoint did not answer.
    """
    call = {"from": relayer, "to": identity.settlement_address, "data": "0x" + settle_call(record).hex()}
    try:
        await rpc.call("eth_call", call, hex(block_number))
    except RpcResponseError as error:
        return fault_text(error)
    return "reverted; it would succeed at the end of the same block"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSettlement:
    """The contract's event of one session, with its block and transaction."""

    inclusion: Inclusion
    event: SettledEvent
    depth: int

    def difference(self, record: SettlementRecord) -> SettlementPayload | None:
        """The payload with the event's parties and numbers; None if they equal those of the database."""
        ours, event = record.payload, self.event
        ours = replace(ours, from_address=ours.from_address.lower(), to_address=ours.to_address.lower())
        settled = replace(
            ours,
            from_address=event.payer,
            to_address=event.payee,
            to_amount=MicroUsdc(event.to_amount),
            fee_amount=MicroUsdc(event.fee_amount),
            rate=MicroUsdc(event.rate),
            chargeable_seconds=event.seconds,
            platform_fee_bps=event.platform_fee_bps,
        )
        return None if settled == ours else settled


async def find_settled(
    rpc: JsonRpc, identity: ChainIdentity, session_id_hash: str, start_block: int
) -> FoundSettlement | None:
    """Find the event that settled a session; None if there is none.

    Raises:
        ChainUnavailableError: The endpoint did not answer for the whole range.
    """
    head = last = hex_int(await rpc.call("eth_blockNumber"))
    while last >= start_block:
        first = max(start_block, last - LOG_SPAN_BLOCKS + 1)
        query = {
            "address": to_checksum_address(identity.settlement_address),
            "topics": [SETTLED_TOPIC, session_id_hash],
            "fromBlock": hex(first),
            "toBlock": hex(last),
        }
        try:
            logs = await rpc.call("eth_getLogs", query)
        except RpcResponseError as error:
            raise ChainUnavailableError(error.message) from error
        if logs:
            number = hex_int(logs[0]["blockNumber"])
            inclusion = Inclusion(
                tx_hash=str(logs[0]["transactionHash"]).lower(),
                block_number=number,
                block_hash=str(logs[0]["blockHash"]).lower(),
                log_index=hex_int(logs[0]["logIndex"]),
            )
            event = SettledEvent.of([str(topic) for topic in logs[0]["topics"]], hex_bytes(logs[0]["data"]))
            return FoundSettlement(inclusion=inclusion, event=event, depth=head - number)
        last = first - 1
    return None
