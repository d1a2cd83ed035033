"""Amounts that SessionEscrow adds to the holds of LIVE sessions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from eth_abi.abi import decode
from typing_extensions import override

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.escrow import CLOSED, EXTENDED_TOPIC, escrow_call
from sightline.chain.contracts.messages import EscrowHold, Extension
from sightline.chain.meter import Meter
from sightline.chain.relayer.openings import differs_from, hold_of, mandate_of, state_in
from sightline.chain.relayer.work import (
    HOLD_MISSING,
    ContractCall,
    EventLog,
    Examination,
    Finding,
    HoldMissingError,
    OutboxWork,
    PreflightVerdict,
    ask_with_view,
)
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import fault_text, hex_bytes, is_call_fault
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.escrow import ConsentKind
from sightline.domain.session.model import Session
from sightline.domain.value import replace
from sightline.ports.escrow import ExtensionOutbox, HoldExtension, OpeningOutbox
from sightline.ports.ledger import ChainIdentity, Inclusion, SettlementState

EXTEND_GAS: Final = 300_000
"""Gas limit of an extension; they take 75,000 to 130,000."""


@final
class ExtensionWork(OutboxWork[HoldExtension]):
    """Adds to holds, one in each transaction."""

    event_topic = EXTENDED_TOPIC

    def __init__(
        self, rpc: JsonRpc, outbox: ExtensionOutbox, openings: OpeningOutbox, identity: ChainIdentity, meter: Meter,
        *, start_block: int,
    ) -> None:  # fmt: skip
        super().__init__(rpc, outbox, identity, start_block=start_block)
        self._extensions = outbox
        self._openings = openings
        self._meter = meter

    @override
    async def call(self, records: Sequence[HoldExtension]) -> ContractCall:
        (record,) = records
        opening = (await self._openings.openings([record.of_session])).get(record.of_session)
        hold = None if opening is None else hold_of(opening)
        if hold is None:
            raise HoldMissingError
        return await self._call(record, hold)

    async def _call(self, record: HoldExtension, hold: EscrowHold) -> ContractCall:
        message = Extension(
            hold_hash=hold.hash(), extra_amount=record.amount, extend_by_s=record.consent.open_by_s
        )  # fmt: skip
        return ContractCall(data=_extend_data(hold, record, await self._meter.sign(message)), gas=EXTEND_GAS)

    @override
    async def examine(self, relayer: str, records: Sequence[HoldExtension]) -> Examination:
        openings = await self._openings.openings(sorted({record.of_session for record in records}))
        found = {session_id: hold_of(opening) for session_id, opening in openings.items()}
        holds = {session_id: hold for session_id, hold in found.items() if hold is not None}
        sessions = await self._openings.sessions([record.of_session for record in records])
        requests: list[Request] = []
        for record in records:
            asked = call_data("stateOf(bytes32)", [bytes.fromhex(record.session_id_hash[2:])])
            requests.append(("eth_call", [{"to": self.contract, "data": "0x" + asked.hex()}, "latest"]))
            hold = holds.get(record.of_session)
            if hold is None:
                requests.append(("eth_chainId", []))  # keeps the answers in pairs
                continue
            made = await self._call(record, hold)
            trial = {"from": relayer, "to": self.contract, "data": "0x" + made.data.hex(), "gas": hex(made.gas)}
            requests.append(("eth_call", [trial, "latest"]))
        view, answers = await ask_with_view(self.rpc, self.identity, relayer, requests)
        findings = [
            _finding(record, holds.get(record.of_session), sessions.get(record.of_session), state, trial)
            for record, state, trial in zip(records, answers[::2], answers[1::2], strict=True)
        ]
        # Also an earlier extension that was given up after wrong answers may be mined.
        grown = [
            record.of_session
            for record, state, finding in zip(records, answers[::2], findings, strict=True)
            if finding.verdict is PreflightVerdict.WAIT and differs_from(holds.get(record.of_session), state_in(state))
        ]
        if grown:
            await self._extensions.revive(grown)
        return Examination(findings=findings, view=view)

    @override
    async def why_unproved(self, records: Sequence[HoldExtension]) -> dict[str, str]:
        sessions = await self._openings.sessions([record.of_session for record in records])
        return {
            record.session_id: "not proved: the session's record does not ask for this extension"
            for record in records
            if not _is_proved(record, sessions.get(record.of_session))
        }

    @override
    async def record_difference(
        self, record: HoldExtension, inclusion: Inclusion, event: EventLog, *, now_ms: int
    ) -> bool:
        extra_amount, _ = decode(["uint256"] * 2, event.data)
        if extra_amount == record.amount:
            return False
        await self.outbox.mark_waiting(
            record.session_id, SettlementState.FAILED, reason="the contract has added another amount",
            retry_at_ms=now_ms, now_ms=now_ms,
        )  # fmt: skip
        return True

    @override
    async def drop(self, record: HoldExtension, *, now_ms: int) -> None:
        """Give up the extension of a session that is over and did not count it."""
        await self._extensions.withdraw(record.session_id, now_ms=now_ms)


def _extend_data(hold: EscrowHold, record: HoldExtension, meter_signature: bytes) -> bytes:
    consent, amount = record.consent, record.amount
    extend_by_s, signature = consent.open_by_s, hex_bytes(consent.signature or "0x")
    match consent.kind:
        case ConsentKind.AUTHORIZATION if consent.exact is not None:
            nonce = hex_bytes(consent.exact.nonce)
            return escrow_call(
                "extendExact", hold, amount, extend_by_s, consent.exact.valid_after_s, extend_by_s, nonce, signature,
                meter_signature,
            )  # fmt: skip
        case ConsentKind.AUTHORIZATION:
            return escrow_call("extendWithAuthorization", hold, amount, extend_by_s, signature, meter_signature)
        case ConsentKind.CONSENT:
            return escrow_call("extendWithConsent", hold, amount, extend_by_s, signature, meter_signature)
        case ConsentKind.MANDATE:
            assert consent.mandate is not None
            mandate, signature = mandate_of(consent.mandate), hex_bytes(consent.mandate.signature)
            return escrow_call(
                "extendWithMandate", hold, amount, extend_by_s, mandate, signature, b"", meter_signature
            )  # fmt: skip


def _finding(
    record: HoldExtension, hold: EscrowHold | None, session: Session | None, state: Any, trial: Any
) -> Finding:  # fmt: skip
    known = state_in(state)
    counts = session is not None and any(each.id == record.session_id for each in session.extensions)
    if hold is not None and known == replace(hold, max_amount=hold.max_amount + record.amount).hash():
        return Finding(verdict=PreflightVerdict.ADOPT)
    if known == CLOSED or session is None or (session.is_terminal and not counts):
        return Finding(verdict=PreflightVerdict.DROP)
    if hold is None:
        return _too_early()
    if known != hold.hash():
        return _too_early()
    if not isinstance(trial, RpcResponseError):
        return Finding(verdict=PreflightVerdict.SIGN)
    if not is_call_fault(trial):
        raise ChainUnavailableError(trial.message) from trial
    return Finding(verdict=PreflightVerdict.WAIT, reason=fault_text(trial))


def _too_early() -> Finding:
    return Finding(verdict=PreflightVerdict.WAIT, reason=HOLD_MISSING, is_refused=False)


def _is_proved(record: HoldExtension, session: Session | None) -> bool:
    """Whether the recorded session asks for this extension, or counts it: a row of the outbox is not enough to sign."""
    if session is None:
        return False
    asked = () if session.extending is None else (session.extending,)
    proofs: Mapping[str, tuple[object, object]] = {
        each.id: (each.amount, each.consent) for each in (*session.extensions, *asked)
    }
    return proofs.get(record.session_id) == (record.amount, record.consent)
