"""`sightline save-statement` says what the statement that it saved is good for."""

from pathlib import Path

import pytest

from sightline_client.commands.escrow import use_of_statement
from sightline_client.models import Settlement, SettlementState, Statement
from sightline_client.models.money import SettlementPayload
from sightline_client.money import MicroUsdc

FILE = Path("statement.json")


def a_statement(*, is_final: bool) -> Statement:
    return Statement.model_construct(is_final=is_final, clean_seconds=3)


@pytest.mark.parametrize(
    ("to_amount", "said"), [(70, "The session is paid"), (0, "The session is settled without a charge")]
)
def test_of_a_session_that_is_settled_nothing_is_left_to_claim(to_amount: int, said: str) -> None:
    payload = SettlementPayload.model_construct(to_amount=MicroUsdc(to_amount))
    settled = Settlement.model_construct(
        session_id="one", state=SettlementState.CONFIRMED, tx_hash="0x12", payload=payload
    )
    text = use_of_statement(FILE, a_statement(is_final=True), settled)
    assert text == f"{said} in 0x12: nothing is left to claim or to reclaim."


def test_a_statement_that_is_not_final_is_claimed_an_hour_after_the_latest_end() -> None:
    text = use_of_statement(FILE, a_statement(is_final=False), None)
    assert "`sightline claim statement.json --rpc-url URL` pays its operator from an hour after the session" in text
    assert "`sightline reclaim statement.json --rpc-url URL` returns the hold to its payer 48 hours after" in text


def test_a_final_statement_of_a_session_that_is_not_paid_is_claimed_at_once() -> None:
    text = use_of_statement(FILE, a_statement(is_final=True), None)
    assert "`sightline claim statement.json --rpc-url URL` pays its operator. `sightline reclaim" in text
