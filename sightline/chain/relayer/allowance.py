"""Settlements that SessionSettlement takes from the payer's allowance."""

from collections.abc import Sequence
from typing import Any, final

from eth_utils.address import to_checksum_address
from typing_extensions import override

from sightline.chain.contracts.abi import SETTLED_TOPIC, SettleCall, SettledEvent, call_data, settle_many_data
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.proof import why_unproved
from sightline.chain.relayer.work import (
    ContractCall,
    EventLog,
    Examination,
    Finding,
    OutboxWork,
    PreflightVerdict,
    ask_with_view,
)
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import fault_text, hex_int, is_call_fault
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import ChainIdentity, Inclusion, SettlementOutbox, SettlementRecord


class SettlementWork(OutboxWork[SettlementRecord]):
    """What settlements have in common, wherever the money comes from: the event Settled and their record."""

    event_topic = SETTLED_TOPIC

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, identity: ChainIdentity, options: RelayerOptions
    ) -> None:
        super().__init__(rpc, outbox, identity, start_block=options.start_block)
        self._settlements = outbox
        self._options = options

    @override
    async def record_difference(
        self, record: SettlementRecord, inclusion: Inclusion, event: EventLog, *, now_ms: int
    ) -> bool:
        on_chain = difference(record, SettledEvent.of(event.topics, event.data))
        if on_chain is None:
            return False
        await self._settlements.mark_mismatched(record.session_id, inclusion, on_chain, now_ms=now_ms)
        return True


@final
class AllowanceWork(SettlementWork):
    """Settles by `settle`, and sessions without a charge together by `settleMany`."""

    @override
    async def call(self, records: Sequence[SettlementRecord]) -> ContractCall:
        if len(records) == 1:
            return ContractCall(data=settle_call(records[0]).data(), gas=self._options.settle_gas)
        gas = self._options.free_batch_gas + self._options.free_settle_gas * len(records)
        return ContractCall(data=settle_many_data([settle_call(record) for record in records]), gas=gas)

    @override
    async def examine(self, relayer: str, records: Sequence[SettlementRecord]) -> Examination:
        requests: list[Request] = []
        for record in records:
            asked = call_data("settled(bytes32)", [bytes.fromhex(record.session_id_hash[2:])])
            requests.append(("eth_call", [{"to": self.contract, "data": "0x" + asked.hex()}, "latest"]))
            settle = {"from": relayer, "to": self.contract, "data": "0x" + settle_call(record).data().hex()}
            requests.append(("eth_call", [settle, "latest"]))
        view, answers = await ask_with_view(self.rpc, self.identity, relayer, requests)
        findings = [_finding(*pair) for pair in zip(answers[::2], answers[1::2], strict=True)]
        return Examination(findings=findings, view=view)

    @override
    async def why_unproved(self, records: Sequence[SettlementRecord]) -> dict[str, str]:
        proofs = await self._settlements.proofs([record.session_id for record in records])
        faults = {record.session_id: why_unproved(record, proofs.get(record.session_id)) for record in records}
        return {session_id: fault for session_id, fault in faults.items() if fault is not None}


def settle_call(record: SettlementRecord) -> SettleCall:
    """Return the call that settles one session."""
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


def difference(record: SettlementRecord, event: SettledEvent) -> SettlementPayload | None:
    """Return the payload with the event's parties and numbers; None if they equal those of the database."""
    ours = record.payload
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
