"""Holds that SessionEscrow opens before a session starts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from eth_abi.abi import decode
from typing_extensions import override

from sightline.chain.contracts.abi import call_data, topic_address
from sightline.chain.contracts.escrow import CLOSED, OPENED_TOPIC, escrow_call
from sightline.chain.contracts.messages import NOBODY, EscrowHold, Mandate, Opening, SessionTerms
from sightline.chain.meter import Meter
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
from sightline.chain.rpc.reader import fault_text, hex_bytes, is_call_fault
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.escrow import ConsentKind, SignedMandate
from sightline.domain.session.model import Assigned, Session
from sightline.ports.escrow import HoldOpening, OpeningOutbox
from sightline.ports.ledger import ChainIdentity, Inclusion, SettlementState

OPEN_GAS: Final = 300_000
"""Gas limit of an open; they take 94,000 to 150,000."""
OPEN_GAS_MAX: Final = 1_000_000
"""Gas limit of an open where the node estimates more. The payer's wallet decides what the check of its signature takes
(ERC-1271), and the relayer pays it.
"""


def terms_of(opening: HoldOpening) -> SessionTerms:
    """Return what the payer agreed to. Its payee is open: the meter names the operator."""
    return SessionTerms(
        session_id_hash=bytes.fromhex(opening.session_id_hash[2:]), payer=opening.payer, payee=NOBODY,
        max_amount=opening.max_amount, rate=opening.rate, fee_bps=opening.fee_bps,
        open_by_s=opening.consent.open_by_s,
    )  # fmt: skip


def hold_of(opening: HoldOpening) -> EscrowHold | None:
    """Return the hold as the contract knows it, extensions in blocks included; None while it is in no block."""
    if opening.opened_at_s is None:
        return None
    return EscrowHold(
        session_id_hash=bytes.fromhex(opening.session_id_hash[2:]), payer=opening.payer, payee=opening.payee,
        max_amount=opening.max_amount + opening.extended, rate=opening.rate, fee_bps=opening.fee_bps,
        opened_at_s=opening.opened_at_s,
    )  # fmt: skip


def differs_from(hold: EscrowHold | None, state: bytes) -> bool:
    """Return whether the contract has a hold of the session that is not the one that is known here."""
    return hold is not None and any(state) and state not in (CLOSED, hold.hash())


def mandate_of(signed: SignedMandate) -> Mandate:
    """Return a payer's mandate as the contract knows it."""
    return Mandate(
        payer=signed.payer, delegate=NOBODY, max_per_session=signed.max_per_session, max_per_day=signed.max_per_day,
        max_rate=signed.max_rate, max_fee_bps=signed.max_fee_bps, valid_until_s=signed.valid_until_s,
        salt=hex_bytes(signed.salt),
    )  # fmt: skip


@final
class OpeningWork(OutboxWork[HoldOpening]):
    """Opens holds, one in each transaction."""

    event_topic = OPENED_TOPIC
    counts_in_block = True

    def __init__(
        self, rpc: JsonRpc, outbox: OpeningOutbox, identity: ChainIdentity, meter: Meter, *, start_block: int
    ) -> None:
        super().__init__(rpc, outbox, identity, start_block=start_block)
        self._openings = outbox
        self._meter = meter

    @override
    async def call(self, records: Sequence[HoldOpening]) -> ContractCall:
        (record,) = records
        terms = terms_of(record)
        meter_signature = await self._meter.sign(Opening(terms_hash=terms.struct_hash(), payee=record.payee))
        return ContractCall(data=_open_data(terms, record, meter_signature), gas=OPEN_GAS, gas_max=OPEN_GAS_MAX)

    @override
    async def examine(self, relayer: str, records: Sequence[HoldOpening]) -> Examination:
        requests: list[Request] = []
        for record in records:
            asked = call_data("stateOf(bytes32)", [bytes.fromhex(record.session_id_hash[2:])])
            requests.append(("eth_call", [{"to": self.contract, "data": "0x" + asked.hex()}, "latest"]))
            made = await self.call([record])
            trial = {"from": relayer, "to": self.contract, "data": "0x" + made.data.hex(), "gas": hex(made.gas_max)}
            requests.append(("eth_call", [trial, "latest"]))
        view, answers = await ask_with_view(self.rpc, self.identity, relayer, requests)
        findings = [_finding(*pair) for pair in zip(answers[::2], answers[1::2], strict=True)]
        return Examination(findings=findings, view=view)

    @override
    async def why_unproved(self, records: Sequence[HoldOpening]) -> dict[str, str]:
        sessions = await self._openings.sessions([record.session_id for record in records])
        faults = {record.session_id: _fault(record, sessions.get(record.session_id)) for record in records}
        return {session_id: fault for session_id, fault in faults.items() if fault is not None}

    @override
    async def record_difference(
        self, record: HoldOpening, inclusion: Inclusion, event: EventLog, *, now_ms: int
    ) -> bool:
        opened = _opened(event)
        ours = (record.payer, record.payee, record.max_amount, record.rate, record.fee_bps)
        if (opened.payer, opened.payee, opened.max_amount, opened.rate, opened.fee_bps) == ours:
            return False
        await self.outbox.mark_waiting(
            record.session_id, SettlementState.FAILED, reason="the contract holds other terms",
            retry_at_ms=now_ms, now_ms=now_ms,
        )  # fmt: skip
        return True

    @override
    def at(self, inclusion: Inclusion, event: EventLog) -> Inclusion:
        return Inclusion(
            tx_hash=inclusion.tx_hash,
            block_number=inclusion.block_number,
            block_hash=inclusion.block_hash,
            log_index=event.log_index,
            opened_at_s=_opened(event).opened_at_s,
        )


def _open_data(terms: SessionTerms, record: HoldOpening, meter_signature: bytes) -> bytes:
    consent = record.consent
    signature = hex_bytes(consent.signature or "0x")
    match consent.kind:
        case ConsentKind.AUTHORIZATION if consent.exact is not None:
            nonce = hex_bytes(consent.exact.nonce)
            return escrow_call(
                "openExact", terms, record.payee, consent.exact.valid_after_s, consent.open_by_s, nonce, signature,
                meter_signature,
            )  # fmt: skip
        case ConsentKind.AUTHORIZATION:
            return escrow_call("openWithAuthorization", terms, record.payee, signature, meter_signature)
        case ConsentKind.CONSENT:
            return escrow_call("openWithConsent", terms, record.payee, signature, meter_signature)
        case ConsentKind.MANDATE:
            assert consent.mandate is not None
            mandate, signature = mandate_of(consent.mandate), hex_bytes(consent.mandate.signature)
            return escrow_call("openWithMandate", terms, record.payee, mandate, signature, b"", meter_signature)


def _opened(event: EventLog) -> EscrowHold:
    max_amount, rate, fee_bps, opened_at_s = decode(["uint256"] * 4, event.data)
    return EscrowHold(
        session_id_hash=hex_bytes(event.topics[1]), payer=topic_address(event.topics[2]),
        payee=topic_address(event.topics[3]), max_amount=max_amount, rate=rate, fee_bps=fee_bps,
        opened_at_s=opened_at_s,
    )  # fmt: skip


def state_in(answer: Any) -> bytes:
    """Return the contract's state of a session from the answer to stateOf.

    Raises:
        ChainUnavailableError: The contract does not answer.
    """
    if isinstance(answer, RpcResponseError):
        raise ChainUnavailableError(f"the escrow contract does not answer: {answer.message}") from answer
    return hex_bytes(answer)


def _finding(state: Any, trial: Any) -> Finding:
    known = state_in(state)
    if known == CLOSED:
        return Finding(verdict=PreflightVerdict.WAIT, reason="the session is closed on the chain")
    if any(known):
        return Finding(verdict=PreflightVerdict.ADOPT)
    if not isinstance(trial, RpcResponseError):
        return Finding(verdict=PreflightVerdict.SIGN)
    if not is_call_fault(trial):
        raise ChainUnavailableError(trial.message) from trial
    return Finding(verdict=PreflightVerdict.WAIT, reason=fault_text(trial))


def _fault(record: HoldOpening, session: Session | None) -> str | None:
    """Return why a hold must not be signed; None if the recorded session confirms every field of it.

    The meter's signature names the payee. A row of the outbox is therefore not enough to sign.
    """
    if session is None or session.operator is None:
        return "not proved: no session with an operator"
    if isinstance(session.phase, Assigned) and session.phase.funding_at_ms is None:
        return "not proved: the session was not started"
    terms = session.terms
    checks: Mapping[str, tuple[object, object]] = {
        "payer": (record.payer, terms.payer_address.lower()),
        "payee": (record.payee, session.operator.wallet_address.lower()),
        "amount": (record.max_amount, session.first_hold),
        "rate": (record.rate, terms.rate),
        "platform fee": (record.fee_bps, terms.platform_fee_bps),
        "consent": (record.consent, terms.consent),
    }
    for name, (ours, recorded) in checks.items():
        if ours != recorded:
            return f"not proved: the {name} differs from the session's record"
    return None
