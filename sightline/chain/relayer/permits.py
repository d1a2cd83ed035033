"""Permits (EIP-2612) of payers without native coin, sent to the token: each sets an allowance for the contract."""

from collections.abc import Sequence
from typing import Any, Final, final

from eth_utils.address import to_checksum_address
from typing_extensions import override

from sightline.chain.contracts.abi import APPROVAL_TOPIC, call_data
from sightline.chain.contracts.messages import Permit
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
from sightline.chain.rpc.reader import fault_text, hex_bytes, hex_int, is_call_fault
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.escrow import AllowancePermit, PermitOutbox
from sightline.ports.ledger import ChainIdentity, Inclusion, SettlementState

PERMIT_GAS: Final = 150_000
"""Gas limit of a permit. The first one of an owner takes 84,000; of an account with code, what its code takes more."""
USED: Final = "the token has used its nonce"
OVER: Final = "its deadline has passed"


@final
class PermitWork(OutboxWork[AllowancePermit]):
    """Sends permits, one in each transaction."""

    event_topic = APPROVAL_TOPIC

    def __init__(self, rpc: JsonRpc, outbox: PermitOutbox, identity: ChainIdentity, *, start_block: int) -> None:
        super().__init__(rpc, outbox, identity, start_block=start_block)
        self.contract = to_checksum_address(identity.usdc_address)
        self._permits = outbox

    @override
    async def call(self, records: Sequence[AllowancePermit]) -> ContractCall:
        (record,) = records
        return ContractCall(data=permit_data(message_of(record), hex_bytes(record.signature)), gas=PERMIT_GAS)

    @override
    async def examine(self, relayer: str, records: Sequence[AllowancePermit]) -> Examination:
        requests: list[Request] = []
        for record in records:
            made = await self.call([record])
            asked = call_data("nonces(address)", [record.owner])
            requests.append(("eth_call", [{"to": self.contract, "data": "0x" + asked.hex()}, "latest"]))
            trial = {"from": relayer, "to": self.contract, "data": "0x" + made.data.hex(), "gas": hex(made.gas)}
            requests.append(("eth_call", [trial, "latest"]))
        view, answers = await ask_with_view(self.rpc, self.identity, relayer, requests)
        now_s = hex_int(view.head["timestamp"])
        findings = [
            _finding(record, nonce, trial, now_s)
            for record, nonce, trial in zip(records, answers[::2], answers[1::2], strict=True)
        ]
        return Examination(findings=findings, view=view)

    @override
    async def why_unproved(self, records: Sequence[AllowancePermit]) -> dict[str, str]:
        """Nothing need be proved: the token checks the owner's signature over every field of the row."""
        return {}

    @override
    async def record_difference(
        self, record: AllowancePermit, inclusion: Inclusion, event: EventLog, *, now_ms: int
    ) -> bool:
        if int.from_bytes(event.data, "big") == record.amount:
            return False
        await self.outbox.mark_waiting(
            record.session_id, SettlementState.FAILED, reason="the token has set another allowance",
            retry_at_ms=now_ms, now_ms=now_ms,
        )  # fmt: skip
        return True

    @override
    async def drop(self, record: AllowancePermit, *, now_ms: int) -> None:
        """Give up a permit that the token can not take any more."""
        await self._permits.withdraw(record.session_id, reason=record.reason or f"{USED}, or {OVER}", now_ms=now_ms)


def message_of(permit: AllowancePermit) -> Permit:
    """Return what the owner has signed, in the token's domain."""
    return Permit(
        owner=permit.owner, spender=permit.spender, value=permit.amount, nonce=permit.nonce,
        deadline_s=permit.deadline_s,
    )  # fmt: skip


def permit_data(message: Permit, signature: bytes) -> bytes:
    """Encode the call by which the token takes a permit.

    A signature of 65 bytes is passed as v, r and s, which every token with EIP-2612 takes. Any other one is that of an
    account with code, and is passed as bytes, as USDC takes it since version 2.2.
    """
    fields = [message.owner, message.spender, message.value, message.deadline_s]
    if len(signature) == 65:
        v = signature[64] if signature[64] >= 27 else signature[64] + 27
        parts = [*fields, v, signature[:32], signature[32:64]]
        return call_data("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)", parts)
    return call_data("permit(address,address,uint256,uint256,bytes)", [*fields, signature])


def _finding(record: AllowancePermit, nonce: Any, trial: Any, now_s: int) -> Finding:
    if isinstance(nonce, RpcResponseError):
        raise ChainUnavailableError(f"the token does not answer: {nonce.message}") from nonce
    if hex_int(nonce) > record.nonce or now_s > record.deadline_s:
        return Finding(verdict=PreflightVerdict.DROP)
    if not isinstance(trial, RpcResponseError):
        return Finding(verdict=PreflightVerdict.SIGN)
    if not is_call_fault(trial):
        raise ChainUnavailableError(trial.message) from trial
    return Finding(verdict=PreflightVerdict.WAIT, reason=fault_text(trial))
