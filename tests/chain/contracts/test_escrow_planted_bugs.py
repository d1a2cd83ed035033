"""Prove the tests of SessionEscrow by planted bugs: each edits the source, and the named test must fail on it."""

import sys
from collections.abc import Callable

import pytest
from vyper.compiler.settings import OptimizationLevel

from contracts.build import SOURCES
from sightline.domain.value import Value
from tests.chain.contracts import test_escrow_closes as closes
from tests.chain.contracts import test_escrow_opens as opens
from tests.chain.contracts.escrow_world import EscrowWorld, escrow_world, funded
from tests.chain.contracts.ground import DirectGround, compiled
from tests.chain.evm import RevertedError
from tests.groups import rest_at_night

SOURCE = (SOURCES / "SessionEscrow.vy").read_text(encoding="ascii")


class Bug(Value):
    """Text that occurs once in the source, what replaces it, the invariant that it breaks, and a test that notices."""

    name: str
    breaks: str
    found: str
    planted: str
    caught_by: Callable[[EscrowWorld], None]


CLOSE = "    self.stateOf[session_id_hash] = CLOSED\n"
PAYMENTS = """    self._pay(session_id_hash, hold.payee, total - fee)
    self._pay(session_id_hash, hold.payer, hold.maxAmount - total)
"""
SUMS = """    total: uint256 = clean_seconds * hold.ratePerSecond
    fee: uint256 = total * hold.feeBps // BASIS_POINTS
"""
HASH = "    return keccak256(abi_encode(hold))\n"
HASHED = """    return keccak256(
        abi_encode(
            hold.sessionIdHash, hold.payer, {payee}hold.maxAmount, hold.ratePerSecond, hold.feeBps, {opened_at}
        )
    )
"""
DIGEST = """    separator: bytes32 = keccak256(
        abi_encode(DOMAIN_TYPE_HASH, keccak256(NAME), keccak256(VERSION), chain.id, self)
"""
WITHDRAWAL = """    self.totalCredit -= amount
    moved: bool = extcall IERC20(TOKEN).transfer(receiver, amount, default_return_value=True)
    assert moved, "SessionEscrow: token refused"
"""
BUGS = (
    Bug("closed set to 0", "I2", CLOSE, CLOSE.replace("CLOSED", "empty(bytes32)"),
        opens.test_a_closed_session_is_never_opened_again),
    Bug("state after the token call", "I2", CLOSE + SUMS + PAYMENTS, SUMS + PAYMENTS + CLOSE,
        closes.test_a_session_is_closed_before_any_token_moves),
    Bug("hold hash without payee", "I11", HASH, HASHED.format(payee="", opened_at="hold.openedAt"),
        closes.test_a_hold_with_any_other_value_is_no_hold),
    Bug("hold hash without openedAt", "I11", HASH, HASHED.format(payee="hold.payee, ", opened_at=""),
        closes.test_a_hold_with_any_other_value_is_no_hold),
    Bug("slack in minutes", "I4", "SLACK: constant(uint256) = 30\n", "SLACK: constant(uint256) = 30 * 60\n",
        closes.test_a_charge_has_at_most_the_seconds_that_passed),
    Bug("the last second of maxAmount refused", "I8", "if clean_seconds > hold.maxAmount // hold.ratePerSecond:",
        "if clean_seconds >= hold.maxAmount // hold.ratePerSecond:",
        closes.test_a_charge_is_at_most_the_held_amount),
    Bug("fee ceiled", "I3", SUMS, SUMS.replace("total * hold.feeBps //", "(total * hold.feeBps + 9_999) //"),
        closes.test_the_fee_is_floored_and_taken_of_the_charge),
    Bug("fee of maxAmount", "I3", SUMS, SUMS.replace("total * hold.feeBps", "hold.maxAmount * hold.feeBps"),
        closes.test_the_fee_is_floored_and_taken_of_the_charge),
    Bug("rest to sender", "I3", PAYMENTS, PAYMENTS.replace("hold.payer,", "msg.sender,"),
        closes.test_the_rest_returns_to_the_payer_whoever_sends),
    Bug("totalHeld not lowered on claim", "I1",
        "    self.totalHeld -= hold.maxAmount\n    fee: uint256 = self._close(hold, cleanSeconds, headHash)",
        "    fee: uint256 = self._close(hold, cleanSeconds, headHash)",
        closes.test_every_end_lowers_what_is_held),
    Bug("totalHeld not lowered on reclaim", "I1",
        "    self.totalHeld -= hold.maxAmount\n    self._pay(hold.sessionIdHash, hold.payer, hold.maxAmount)",
        "    self._pay(hold.sessionIdHash, hold.payer, hold.maxAmount)",
        closes.test_every_end_lowers_what_is_held),
    Bug("interim claim without the hour", "I10", "self._latest_end(hold) + INTERIM_DELAY", "self._latest_end(hold)",
        closes.test_an_interim_statement_waits_until_the_service_had_its_turn),
    Bug("reclaim at latestEnd", "I10", "self._latest_end(hold) + RECLAIM_DELAY", "self._latest_end(hold)",
        closes.test_anyone_returns_a_forgotten_hold_after_two_days),
    Bug("statement without holdHash", "I11", "abi_encode(STATEMENT_TYPE_HASH, self._hold_hash(hold), cleanSeconds",
        "abi_encode(STATEMENT_TYPE_HASH, empty(bytes32), cleanSeconds",
        closes.test_a_statement_charges_its_own_session_with_its_own_numbers),
    Bug("domain with a fixed chain id", "I11", DIGEST, DIGEST.replace("chain.id", "convert(84532001, uint256)"),
        opens.test_a_signature_is_valid_for_one_contract_on_one_chain),
    Bug("Opening not checked for a named payee", "I11",
        "    assert terms.payee == empty(address) or terms.payee == payee, "
        '"SessionEscrow: payee is not that of the terms"\n', "",
        opens.test_a_named_payee_is_the_only_payee),
    Bug("mandate's day not counted", "I9", "    self.openedOnDay[mandate_hash][day] = opened\n", "",
        opens.test_a_mandate_has_a_limit_for_each_utc_day),
    Bug("revoked mandate accepted", "I5",
        '    assert not self.isMandateRevoked[mandate_hash], "SessionEscrow: mandate is revoked"\n', "",
        opens.test_a_revoked_mandate_opens_nothing),
    Bug("credit lost on withdraw failure", "I3", WITHDRAWAL,
        "    self.totalCredit -= amount\n"
        "    moved: bool = raw_call(\n"
        '        TOKEN, abi_encode(receiver, amount, method_id=method_id("transfer(address,uint256)")),\n'
        "        revert_on_failure=False,\n    )\n",
        closes.test_a_failed_withdrawal_keeps_the_credit),
    Bug("returnStray able to reach held money", "I1", "self.totalHeld + self.totalCredit + amount",
        "self.totalCredit + amount", opens.test_stray_returns_reach_no_held_and_no_credited_money),
)  # fmt: skip


def with_bug(bug: Bug) -> bytes:
    """Compile the source with a bug, without optimisation, which takes half the time."""
    assert SOURCE.count(bug.found) == 1, f"{bug.name}: the text to change occurs {SOURCE.count(bug.found)} times"
    return compiled(SOURCE.replace(bug.found, bug.planted), OptimizationLevel.NONE)


@pytest.mark.parametrize("bug", rest_at_night(BUGS, gate=10), ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(shared_world: EscrowWorld, bug: Bug) -> None:
    ground = shared_world.ground
    assert isinstance(ground, DirectGround)
    with ground.undone():
        code = with_bug(bug)
        world = funded(escrow_world(ground, code=code))
        with pytest.raises((AssertionError, RevertedError, pytest.fail.Exception)) as caught:
            bug.caught_by(world)
        told = str(caught.value).splitlines()[0][:100]
        sys.stdout.write(f"{bug.name}: caught by {bug.caught_by.__name__}: {told}\n")


@pytest.mark.parametrize("check", sorted({bug.caught_by for bug in BUGS}, key=lambda check: check.__name__))
def test_a_test_that_catches_bugs_passes_without_them(
    shared_world: EscrowWorld, check: Callable[[EscrowWorld], None]
) -> None:
    """Compiled as the planted bugs are, so that nothing but the bug makes the test fail."""
    ground = shared_world.ground
    assert isinstance(ground, DirectGround)
    with ground.undone():
        check(funded(escrow_world(ground, code=compiled(SOURCE, OptimizationLevel.NONE))))
