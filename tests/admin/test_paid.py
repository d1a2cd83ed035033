"""What a refund is bounded by: what the payer has paid, by a settlement that is final."""

import pytest

from sightline.actors.service.administration import paid_micro
from sightline.domain.errors import RefusedError
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import SettlementRecord, SettlementState

PAYER = "0x" + "1a" * 20
PAYLOAD = SettlementPayload(
    session_id="s1", from_address=PAYER, to_address="0x" + "2b" * 20, to_amount=MicroUsdc(900),
    fee_amount=MicroUsdc(100), rate=MicroUsdc(100), chargeable_seconds=10, consumer_workspace_id="c",
    operator_workspace_id="o", platform_fee_bps=1_000,
)  # fmt: skip


def a_record(state: SettlementState, on_chain: SettlementPayload | None = None) -> SettlementRecord:
    return SettlementRecord(
        session_id="s1", session_id_hash="0x1", payload=PAYLOAD, state=state, reason="amount exceeds balance",
        tx_hash=None, block_number=None, block_hash=None, confirmed_at_ms=None, retry_at_ms=0, tries=2, notified=False,
        composed_at_ms=0, updated_at_ms=0, on_chain=on_chain,
    )  # fmt: skip


def refusal_of(record: SettlementRecord | None) -> str:
    with pytest.raises(RefusedError) as refused:
        paid_micro(record, PAYER)
    assert refused.value.refusal.detail == "refunds:session"
    return refused.value.refusal.message or ""


def test_only_a_settlement_that_is_final_was_paid() -> None:
    assert paid_micro(a_record(SettlementState.CONFIRMED), PAYER) == 1_000
    final = {SettlementState.CONFIRMED, SettlementState.MISMATCHED}
    for state in SettlementState:
        if state not in final:
            refusal_of(a_record(state))


def test_what_the_chain_took_counts_and_that_of_another_wallet_does_not() -> None:
    less = replace(PAYLOAD, to_amount=MicroUsdc(450), fee_amount=MicroUsdc(50), from_address=PAYER.upper())
    assert paid_micro(a_record(SettlementState.MISMATCHED, less), PAYER) == 500
    other = replace(PAYLOAD, from_address="0x" + "3c" * 20)
    assert "of another wallet" in refusal_of(a_record(SettlementState.MISMATCHED, other))


def test_a_refusal_names_the_state_and_the_next_step() -> None:
    for state in (SettlementState.COMPOSED, SettlementState.SENT, SettlementState.MINED):
        assert refusal_of(a_record(state)) == f"The payment is {state}, not confirmed yet: try again in some seconds"
    assert "`sightline reconcile`" in refusal_of(None)
    assert "`sightline settlements`" in refusal_of(a_record(SettlementState.MISMATCHED))
    for state in (SettlementState.FAILED, SettlementState.REVERTED):
        said = refusal_of(a_record(state))
        assert f"is {state} (amount exceeds balance): write it off instead, `sightline write-off s1 REASON`" in said
    assert "`sightline settlements`" in refusal_of(a_record(SettlementState.STUCK))
    assert "written off" in refusal_of(a_record(SettlementState.WRITTEN_OFF))
