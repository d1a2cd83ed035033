"""Settlements from holds of SessionEscrow: `captureMany` pays operator and fee, and returns the rest to the payer."""

from collections.abc import Sequence
from typing import Any, Final, final

from typing_extensions import override

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.escrow import CLOSED, escrow_call
from sightline.chain.contracts.messages import SLACK_S, CaptureItem, batch_of
from sightline.chain.meter import Meter
from sightline.chain.relayer.allowance import SettlementWork
from sightline.chain.relayer.openings import differs_from, hold_of, state_in
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.work import (
    HOLD_MISSING,
    ContractCall,
    Examination,
    Finding,
    HoldMissingError,
    PreflightVerdict,
    ask_with_view,
)
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import hex_bytes, hex_int
from sightline.domain.session.machine import settlement_of
from sightline.domain.session.model import Closed, Ended, Session
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.escrow import ExtensionOutbox, HoldOpening, OpeningOutbox
from sightline.ports.ledger import (
    SETTLEMENTS_WAITING,
    ChainIdentity,
    SettlementOutbox,
    SettlementRecord,
    SettlementState,
)

CAPTURE_GAS: Final = 80_000
"""Gas limit for each session of a batch; a payee that never held USDC takes 55,100. Higher where the node estimates
more.
"""
BATCH_GAS: Final = 120_000
NOT_OPENED: Final = "no hold was opened"
REORGANISED_S: Final = 600
"""A block that replaces another one may be older than the newest by less than this."""
MAY_OPEN: Final = "a transaction that opens its hold may still be mined"


@final
class CaptureWork(SettlementWork):
    """Captures holds, many in one transaction."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, openings: OpeningOutbox, extensions: ExtensionOutbox,
        identity: ChainIdentity, meter: Meter, options: RelayerOptions,
    ) -> None:  # fmt: skip
        super().__init__(rpc, outbox, identity, options)
        self._openings = openings
        self._extensions = extensions
        self._meter = meter

    @override
    async def call(self, records: Sequence[SettlementRecord]) -> ContractCall:
        ids = [record.session_id for record in records]
        holds, sessions = await self._openings.openings(ids), await self._openings.sessions(ids)
        items: list[CaptureItem] = []
        for record in records:
            hold = hold_of(holds[record.session_id])
            if hold is None:
                raise HoldMissingError
            head = _head_of(sessions[record.session_id])
            # A reorganisation beyond the depth may have removed an extension for good: what is left is paid.
            seconds = min(record.payload.chargeable_seconds, hold.max_amount // hold.rate)
            items.append(CaptureItem(hold=hold, clean_seconds=seconds, head_hash=head))
        signature = await self._meter.sign(batch_of(items))
        return ContractCall(data=escrow_call("captureMany", items, signature), gas=BATCH_GAS + CAPTURE_GAS * len(items))

    @override
    async def examine(self, relayer: str, records: Sequence[SettlementRecord]) -> Examination:
        requests: list[Request] = [("eth_getBlockByNumber", ["pending", False])]
        for record in records:
            asked = call_data("stateOf(bytes32)", [bytes.fromhex(record.session_id_hash[2:])])
            requests.append(("eth_call", [{"to": self.contract, "data": "0x" + asked.hex()}, "latest"]))
        view, (coming, *answers) = await ask_with_view(self.rpc, self.identity, relayer, requests)
        holds = await self._openings.openings([record.session_id for record in records])
        # A chain that makes blocks only for transactions has no recent one; not every endpoint knows the coming one.
        now_s = max(hex_int(block["timestamp"]) for block in (view.head, coming) if isinstance(block, dict))
        findings = [
            _finding(record, holds.get(record.session_id), answer, now_s)
            for record, answer in zip(records, answers, strict=True)
        ]
        # Also an extension that was given up after wrong answers may be mined.
        states = {record.session_id: state_in(answer) for record, answer in zip(records, answers, strict=True)}
        grown = [
            session_id for session_id, opening in holds.items() if differs_from(hold_of(opening), states[session_id])
        ]
        if grown:
            await self._extensions.revive(grown)
        for at, (record, finding) in enumerate(zip(records, findings, strict=True)):
            opening = holds.get(record.session_id)
            if finding.verdict is PreflightVerdict.DROP and opening is not None:
                block = hex_int(view.head["number"]) - self._options.depth
                if await self._may_open(relayer, opening, block=max(0, block), now_s=now_s):
                    findings[at] = _too_early(MAY_OPEN)
        return Examination(findings=findings, view=view)

    async def _may_open(self, relayer: str, opening: HoldOpening, *, block: int, now_s: int) -> bool:
        """Return whether a transaction that was signed for a hold can still be mined.

        It cannot once its nonce is used up in a block that no reorganisation reaches, or its time is over.

        Args:
            block: The newest one that no reorganisation reaches.
        """
        if not opening.attempts or opening.state is SettlementState.WRITTEN_OFF:
            return False
        if now_s > opening.consent.open_by_s + REORGANISED_S:
            return False
        newest = max(opening.attempts, key=lambda attempt: attempt.nonce)
        ours = await self._openings.attempts_at(relayer, newest.nonce)
        if newest.tx_hash not in {attempt.tx_hash for attempt in ours}:
            return True  # another key signed it, whose nonces are not known here
        asked = call_data("stateOf(bytes32)", [bytes.fromhex(opening.session_id_hash[2:])])
        used, state = await self.rpc.batch(
            [
                ("eth_getTransactionCount", [relayer, hex(block)]),
                ("eth_call", [{"to": self.contract, "data": "0x" + asked.hex()}, hex(block)]),
            ]
        )
        if isinstance(state, RpcResponseError):
            return True  # the endpoint has no state of that block
        return hex_int(used) <= newest.nonce or any(state_in(state))

    @override
    async def why_unproved(self, records: Sequence[SettlementRecord]) -> dict[str, str]:
        sessions = await self._openings.sessions([record.session_id for record in records])
        return {
            record.session_id: "not proved: the settlement differs from the session's record"
            for record in records
            if _lower(record.payload) != expected_payload(sessions.get(record.session_id))
        }

    @override
    async def drop(self, record: SettlementRecord, *, now_ms: int) -> None:
        """Write a settlement without a charge off whose hold was never opened, and never open it."""
        if await self._openings.withdraw(record.session_id, now_ms=now_ms):
            await self._settlements.write_off(record.session_id, reason=NOT_OPENED, now_ms=now_ms)

    @override
    async def why_failed(self, relayer: str, record: SettlementRecord, block_number: int) -> str:
        return "the contract skipped it"


def expected_payload(session: Session | None) -> SettlementPayload | None:
    """Return the settlement that a session's record proves, with lower-case addresses; None if it proves none."""
    match None if session is None else session.phase:
        case Ended(operator=operator, clean_seconds=seconds, charged=charged):
            pass
        case Closed(operator=operator) if operator is not None:
            seconds, charged = 0, MicroUsdc(0)
        case _:
            return None
    assert session is not None
    return _lower(settlement_of(session.terms, operator, seconds, charged))


def _lower(payload: SettlementPayload) -> SettlementPayload:
    return replace(payload, from_address=payload.from_address.lower(), to_address=payload.to_address.lower())


def _head_of(session: Session) -> bytes:
    return hex_bytes("0x" + (session.ended_head_hash or session.head_hash).removeprefix("0x"))


def _finding(record: SettlementRecord, opening: HoldOpening | None, answer: Any, now_s: int) -> Finding:
    state = state_in(answer)
    if state == CLOSED:
        return Finding(verdict=PreflightVerdict.ADOPT)
    if opening is None or opening.state in SETTLEMENTS_WAITING or opening.state is SettlementState.WRITTEN_OFF:
        if record.total == 0 and not any(state):
            return Finding(verdict=PreflightVerdict.DROP)
        return Finding(verdict=PreflightVerdict.WAIT, reason="its hold is not open")
    hold = hold_of(opening)
    if hold is None or state != hold.hash():
        return _too_early(HOLD_MISSING)
    if record.payload.chargeable_seconds > now_s - hold.opened_at_s + SLACK_S:
        return _too_early("the chain's clock is behind the session's")
    return Finding(verdict=PreflightVerdict.SIGN)


def _too_early(reason: str) -> Finding:
    return Finding(verdict=PreflightVerdict.WAIT, reason=reason, is_refused=False)
