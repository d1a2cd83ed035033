"""SessionSettlement on the EVM: it conserves money, settles a session once, and takes only what was agreed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.chain.contracts.abi import SETTLED_TOPIC, Consent, SettleCall, call_data, settle_many_data
from sightline.domain.value import replace
from sightline.system.ids import SystemIds
from sightline.system.keccak import session_id_hash
from tests.chain.evm import Evm, RevertedError, an_evm

ids = SystemIds()
few = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
rates = st.integers(1, 10**6)
durations = st.integers(0, 14_400)
fee_rates = st.integers(0, 3_000)

# Gas limits of the contract's calls. A change raises or lowers the cost of every settlement, so it must be visible in
# review.
SETTLE_GAS_PLAIN = 105_200
SETTLE_GAS_CONSENTED = 113_450
FREE_GAS_EACH = 31_000
ZERO_BYTES_GAS = 250  # random hashes and signatures contain some zero bytes, which cost less gas


@pytest.fixture(scope="module")
def evm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evm]:
    """An EVM whose payer has money and approved all of it."""
    evm = an_evm(tmp_path_factory.mktemp("evm"))
    evm.treasury.fund(evm.address("payer"), 10**15)
    evm.approve("payer", 2**256 - 1)
    yield evm
    evm.machine.store.close()


def a_call(evm: Evm, *, rate: int = 1_000, seconds: int = 60, fee_bps: int = 1_500) -> SettleCall:
    total = rate * seconds
    fee = total * fee_bps // 10_000
    return SettleCall(
        session_id_hash=session_id_hash(ids.uuid()),
        payer=evm.address("payer"),
        payee=evm.address("payee"),
        to_amount=total - fee,
        fee_amount=fee,
        rate=rate,
        seconds=seconds,
        platform_fee_bps=fee_bps,
    )


def holdings(evm: Evm) -> tuple[int, int, int, int]:
    roles = ("payer", "payee", "feeReceiver")
    payer, payee, fees = (evm.balance(evm.address(role)) for role in roles)
    return payer, payee, fees, evm.balance(evm.settlement)


@few
@given(rates, durations, fee_rates)
def test_a_settlement_moves_exactly_the_charge_and_keeps_nothing(
    evm: Evm, rate: int, seconds: int, fee_bps: int
) -> None:
    call = a_call(evm, rate=rate, seconds=seconds, fee_bps=fee_bps)
    before = holdings(evm)
    receipt = evm.settle(call)
    after = holdings(evm)
    total = rate * seconds
    assert after[0] == before[0] - total
    assert after[1] == before[1] + call.to_amount
    assert after[2] == before[2] + call.fee_amount
    assert after[3] == 0
    assert call.to_amount + call.fee_amount == total
    settled = [log for log in receipt["logs"] if log["topics"][0] == SETTLED_TOPIC]
    assert [log["topics"][1] for log in settled] == [call.session_id_hash]


@few
@given(
    rates,
    st.integers(1, 14_400),
    fee_rates,
    st.sampled_from(["to", "fee", "rate", "seconds", "bps"]),
    st.integers(1, 50),
)
def test_no_number_can_be_changed_alone(evm: Evm, rate: int, seconds: int, fee_bps: int, which: str, by: int) -> None:
    call = a_call(evm, rate=rate, seconds=seconds, fee_bps=fee_bps)
    changed = {
        "to": replace(call, to_amount=call.to_amount + by),
        "fee": replace(
            call,
            to_amount=call.to_amount - min(by, call.to_amount),
            fee_amount=call.fee_amount + min(by, call.to_amount),
        ),
        "rate": replace(call, rate=rate + by),
        "seconds": replace(call, seconds=seconds + by),
        "bps": replace(call, platform_fee_bps=3_000 + by),
    }[which]
    if changed == call:
        return
    before = holdings(evm)
    with pytest.raises(RevertedError, match=r"total is not rate times seconds|fee is not floored|fee over the bound"):
        evm.settle(changed)
    assert holdings(evm) == before


def test_a_session_settles_once(evm: Evm) -> None:
    call = a_call(evm)
    evm.settle(call)
    before = holdings(evm)
    with pytest.raises(RevertedError, match="already settled"):
        evm.settle(call)
    with pytest.raises(RevertedError, match="already settled"):
        evm.settle(replace(a_call(evm), session_id_hash=call.session_id_hash))
    assert holdings(evm) == before


def test_only_a_relayer_settles(evm: Evm) -> None:
    for role in ("stranger", "payee", "deployer"):
        with pytest.raises(RevertedError, match="not a relayer"):
            evm.settle(a_call(evm), role)


def test_a_free_session_settles_without_moving_anything(evm: Evm) -> None:
    call = a_call(evm, seconds=0)
    before = holdings(evm)
    receipt = evm.settle(call)
    assert holdings(evm) == before
    assert len(receipt["logs"]) == 1


def test_one_person_may_pay_themselves(evm: Evm) -> None:
    call = replace(a_call(evm), payee=evm.address("payer"))
    before = holdings(evm)
    evm.settle(call)
    assert holdings(evm)[0] == before[0] - call.fee_amount


@pytest.mark.parametrize("role", ["payee", "feeReceiver"])
def test_a_blacklisted_receiver_stops_no_other_part_and_is_paid_later(evm: Evm, role: str) -> None:
    receiver, call = evm.address(role), a_call(evm)
    part = call.to_amount if role == "payee" else call.fee_amount
    block_receiver = "setBlacklisted(address,bool)"
    evm.send("deployer", evm.token, call_data(block_receiver, [receiver, True]))
    before = holdings(evm)
    evm.settle(call)
    after = holdings(evm)
    assert (after[0], after[3]) == (before[0] - 60_000, part)
    assert sum(after) == sum(before)
    assert evm.ask(evm.settlement, "credit(address)", receiver) == part
    with pytest.raises(RevertedError, match="blacklisted"):
        evm.send("stranger", evm.settlement, call_data("withdraw(address)", [receiver]))
    evm.send("deployer", evm.token, call_data(block_receiver, [receiver, False]))
    evm.send("stranger", evm.settlement, call_data("withdraw(address)", [receiver]))
    assert (holdings(evm)[3], evm.ask(evm.settlement, "credit(address)", receiver)) == (0, 0)
    assert evm.balance(receiver) == (before[1] if role == "payee" else before[2]) + part
    with pytest.raises(RevertedError, match="no credit"):
        evm.send("stranger", evm.settlement, call_data("withdraw(address)", [receiver]))


def test_a_blacklisted_payer_pays_nothing(evm: Evm) -> None:
    payer = evm.address("payer")
    evm.send("deployer", evm.token, call_data("setBlacklisted(address,bool)", [payer, True]))
    before = holdings(evm)
    with pytest.raises(RevertedError, match="blacklisted"):
        evm.settle(a_call(evm))
    assert holdings(evm) == before
    evm.send("deployer", evm.token, call_data("setBlacklisted(address,bool)", [payer, False]))


def test_free_sessions_settle_together_and_settled_ones_stop_none(evm: Evm) -> None:
    calls = [a_call(evm, seconds=0) for _ in range(20)]
    evm.settle(calls[7])
    before = holdings(evm)
    receipt = evm.send("relayer", evm.settlement, settle_many_data(calls), gas=3_000_000)
    assert [log["topics"][1] for log in receipt["logs"]] == [
        call.session_id_hash for number, call in enumerate(calls) if number != 7
    ]
    assert holdings(evm) == before
    assert int(receipt["gasUsed"], 16) // len(calls) <= FREE_GAS_EACH
    for call in calls:
        with pytest.raises(RevertedError, match="already settled"):
            evm.settle(call)
    with pytest.raises(RevertedError, match="not a relayer"):
        evm.send("stranger", evm.settlement, settle_many_data([a_call(evm, seconds=0)]))
    with pytest.raises(ValueError, match="without a charge"):
        settle_many_data([a_call(evm)])


def test_a_fee_below_the_floor_is_refused_by_one_micro(evm: Evm) -> None:
    call = a_call(evm, rate=1_001, seconds=61)
    low = replace(call, fee_amount=call.fee_amount - 1, to_amount=call.to_amount + 1)
    with pytest.raises(RevertedError, match="fee is not floored"):
        evm.settle(low)
    evm.settle(call)


def test_a_charge_over_allowance_or_balance_is_refused_whole(evm: Evm) -> None:
    evm.approve("payer", 59_999)
    before = holdings(evm)
    with pytest.raises(RevertedError, match="exceeds allowance"):
        evm.settle(a_call(evm))
    evm.approve("payer", 2**256 - 1)
    assert holdings(evm) == before


def test_the_session_cap_holds(tmp_path_factory: pytest.TempPathFactory) -> None:
    evm = an_evm(tmp_path_factory.mktemp("capped"), session_cap_micro=60_000)
    evm.treasury.fund(evm.address("payer"), 10**9)
    evm.approve("payer", 10**9)
    evm.settle(a_call(evm))
    with pytest.raises(RevertedError, match="over the session cap"):
        evm.settle(a_call(evm, seconds=61))
    evm.machine.store.close()


def test_a_payers_limits_hold_per_session_and_per_day(evm: Evm) -> None:
    day = evm.ask(
        evm.settlement,
        "spentOnDay(address,uint256)",
        evm.address("payer"),
        int(evm.machine.head["timestamp"], 16) // 86_400,
    )
    evm.send("payer", evm.settlement, call_data("setLimits(uint256,uint256)", [60_000, day + 100_000]))
    with pytest.raises(RevertedError, match="session limit"):
        evm.settle(a_call(evm, seconds=61))
    evm.settle(a_call(evm))
    with pytest.raises(RevertedError, match="day limit"):
        evm.settle(a_call(evm))
    evm.send("payer", evm.settlement, call_data("clearLimits()"))
    evm.settle(a_call(evm))


def test_pause_stops_settling_and_only_the_owner_pauses(evm: Evm) -> None:
    with pytest.raises(RevertedError, match="not the owner"):
        evm.send("stranger", evm.settlement, call_data("setPaused(bool)", [True]))
    evm.send("deployer", evm.settlement, call_data("setPaused(bool)", [True]))
    with pytest.raises(RevertedError, match="paused"):
        evm.settle(a_call(evm))
    evm.send("deployer", evm.settlement, call_data("setPaused(bool)", [False]))
    evm.settle(a_call(evm))


@dataclass
class SteppedClock:
    """A clock with which the test sets block timestamps."""

    ms: int = 1_900_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def delayed(tmp_path: Path) -> Iterator[tuple[Evm, SteppedClock]]:
    """A deployment with an admin delay of two days."""
    clock = SteppedClock()
    evm = an_evm(tmp_path, clock=clock, admin_delay_s=172_800)
    evm.treasury.fund(evm.address("payer"), 10**12)
    evm.approve("payer", 2**256 - 1)
    yield evm, clock
    evm.machine.store.close()


def test_a_relayer_settles_only_after_its_delay_and_is_removed_at_once(delayed: tuple[Evm, SteppedClock]) -> None:
    evm, clock = delayed
    thief = evm.address("stranger")
    allow, remove = call_data("allowRelayer(address)", [thief]), call_data("removeRelayer(address)", [thief])
    with pytest.raises(RevertedError, match="was not proposed"):
        evm.send("deployer", evm.settlement, allow)
    for role in ("stranger", "relayer"):
        for name in ("proposeRelayer(address)", "allowRelayer(address)", "removeRelayer(address)"):
            with pytest.raises(RevertedError, match="not the owner"):
                evm.send(role, evm.settlement, call_data(name, [thief]))
    evm.send("deployer", evm.settlement, call_data("proposeRelayer(address)", [thief]))
    clock.ms += 172_799_000
    with pytest.raises(RevertedError, match="delay has not passed"):
        evm.send("deployer", evm.settlement, allow)
    with pytest.raises(RevertedError, match="not a relayer"):
        evm.settle(a_call(evm), "stranger")
    clock.ms += 2_000
    evm.send("payer", evm.token, call_data("approve(address,uint256)", [evm.settlement, 60_000]))
    evm.send("deployer", evm.settlement, allow)
    evm.settle(a_call(evm), "stranger")
    evm.send("deployer", evm.settlement, remove)
    with pytest.raises(RevertedError, match="not a relayer"):
        evm.settle(a_call(evm), "stranger")
    with pytest.raises(RevertedError, match="was not proposed"):
        evm.send("deployer", evm.settlement, allow)


def test_a_withdrawn_proposal_is_void(delayed: tuple[Evm, SteppedClock]) -> None:
    evm, clock = delayed
    thief = evm.address("stranger")
    evm.send("deployer", evm.settlement, call_data("proposeRelayer(address)", [thief]))
    evm.send("deployer", evm.settlement, call_data("removeRelayer(address)", [thief]))
    clock.ms += 10**9
    with pytest.raises(RevertedError, match="was not proposed"):
        evm.send("deployer", evm.settlement, call_data("allowRelayer(address)", [thief]))


def test_ownership_moves_in_two_steps_after_its_delay(delayed: tuple[Evm, SteppedClock]) -> None:
    evm, clock = delayed
    stranger = evm.address("stranger")
    evm.send("deployer", evm.settlement, call_data("transferOwnership(address)", [stranger]))
    with pytest.raises(RevertedError, match="not the pending owner"):
        evm.send("payee", evm.settlement, call_data("acceptOwnership()"))
    clock.ms += 172_799_000
    with pytest.raises(RevertedError, match="delay has not passed"):
        evm.send("stranger", evm.settlement, call_data("acceptOwnership()"))
    clock.ms += 2_000
    evm.treasury.fund(evm.address("payer"), 1)  # mine a block at the new time
    evm.send("stranger", evm.settlement, call_data("acceptOwnership()"))
    with pytest.raises(RevertedError, match="not the owner"):
        evm.send("deployer", evm.settlement, call_data("setPaused(bool)", [True]))
    evm.send("stranger", evm.settlement, call_data("removeRelayer(address)", [evm.address("relayer")]))
    with pytest.raises(RevertedError, match="not a relayer"):
        evm.settle(a_call(evm))


# Consent.


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evm]:
    """A deployment that requires the payer's signature for each settlement."""
    evm = an_evm(tmp_path_factory.mktemp("strict"), consent_required=True)
    evm.treasury.fund(evm.address("payer"), 10**12)
    evm.approve("payer", 2**256 - 1)
    yield evm
    evm.machine.store.close()


def test_without_consent_nothing_is_taken_where_it_is_required(strict: Evm) -> None:
    with pytest.raises(RevertedError, match="consent required"):
        strict.settle(a_call(strict))


def test_consent_of_the_payer_settles(strict: Evm) -> None:
    call = a_call(strict)
    before = holdings(strict)
    strict.settle(replace(call, consent=strict.consent(call)))
    assert holdings(strict)[0] == before[0] - 60_000


def test_pause_stops_a_settlement_with_consent_too(strict: Evm) -> None:
    call = a_call(strict)
    consented = replace(call, consent=strict.consent(call))
    strict.send("deployer", strict.settlement, call_data("setPaused(bool)", [True]))
    with pytest.raises(RevertedError, match="paused"):
        strict.settle(consented)
    with pytest.raises(RevertedError, match="paused"):
        strict.send("relayer", strict.settlement, settle_many_data([a_call(strict, seconds=0)]))
    strict.send("deployer", strict.settlement, call_data("setPaused(bool)", [False]))
    strict.settle(consented)


def test_consent_is_valid_to_the_last_second_of_its_deadline(tmp_path: Path) -> None:
    clock = SteppedClock()
    strict = an_evm(tmp_path, clock=clock, consent_required=True)
    strict.treasury.fund(strict.address("payer"), 10**12)
    strict.approve("payer", 2**256 - 1)
    now_s = clock.ms // 1_000
    first, second = a_call(strict), a_call(strict)
    strict.settle(replace(first, consent=strict.consent(first, deadline_s=now_s)))
    with pytest.raises(RevertedError, match="consent expired"):
        strict.settle(replace(second, consent=strict.consent(second, deadline_s=now_s - 1)))
    strict.machine.store.close()


def test_the_signature_domain_names_the_chain_it_runs_on(tmp_path: Path) -> None:
    """A consent signed for one chain id is invalid on a chain with another id."""
    first, other = tmp_path / "first", tmp_path / "other"
    first.mkdir()
    other.mkdir()
    strict = an_evm(other, chain_id=84_532_002, consent_required=True)
    home = an_evm(first, consent_required=True)
    assert strict.settlement != home.settlement or strict.machine.chain_id != home.machine.chain_id
    strict.treasury.fund(strict.address("payer"), 10**12)
    strict.approve("payer", 2**256 - 1)
    call = a_call(strict)
    with pytest.raises(RevertedError, match="consent of somebody else"):
        strict.settle(replace(call, consent=strict.consent(call, signed_for_chain=84_532_001)))
    strict.settle(replace(call, consent=strict.consent(call, signed_for_chain=84_532_002)))
    for evm in (strict, home):
        evm.machine.store.close()


def test_nobody_else_can_consent(strict: Evm) -> None:
    call = a_call(strict)
    for role in ("stranger", "payee", "relayer"):
        with pytest.raises(RevertedError, match="consent of somebody else"):
            strict.settle(replace(call, consent=strict.consent(call, role=role)))


def test_an_account_with_delegated_code_consents_by_its_key_and_by_its_code(tmp_path: Path) -> None:
    evm = an_evm(tmp_path, consent_required=True)
    try:
        evm.treasury.fund(evm.address("payer"), 10**12)
        evm.approve("payer", 2**256 - 1)
        # The token's code answers no question of ERC-1271: only the key can consent.
        evm.delegate("payer", evm.token)
        call = a_call(evm)
        with pytest.raises(RevertedError):
            evm.settle(replace(call, consent=evm.consent(call, role="stranger")))
        before = holdings(evm)
        evm.settle(replace(call, consent=evm.consent(call)))
        assert holdings(evm)[0] == before[0] - 60_000
    finally:
        evm.machine.store.close()


@pytest.mark.parametrize("field", ["session_id_hash", "payee", "rate", "max_total", "max_fee_bps", "deadline_s"])
def test_consent_to_one_thing_is_none_to_another(strict: Evm, field: str) -> None:
    call = a_call(strict)
    consent = strict.consent(call)
    other = a_call(strict, rate=500, seconds=120) if field == "rate" else call
    changed = {
        "session_id_hash": replace(call, session_id_hash=session_id_hash(ids.uuid()), consent=consent),
        "payee": replace(call, payee=strict.address("stranger"), consent=consent),
        "rate": replace(other, session_id_hash=call.session_id_hash, consent=consent),
        "max_total": replace(call, consent=replace(consent, max_total=consent.max_total + 1)),
        "max_fee_bps": replace(call, consent=replace(consent, max_fee_bps=consent.max_fee_bps + 1)),
        "deadline_s": replace(call, consent=replace(consent, deadline_s=consent.deadline_s + 1)),
    }[field]
    with pytest.raises(RevertedError, match="consent of somebody else"):
        strict.settle(changed)


def test_consent_bounds_total_fee_and_time(strict: Evm) -> None:
    call = a_call(strict)
    for consent, reason in (
        (strict.consent(call, max_total=59_999), "over the consented total"),
        (strict.consent(call, max_fee_bps=1_499), "over the consented bound"),
        (strict.consent(call, deadline_s=1), "consent expired"),
    ):
        with pytest.raises(RevertedError, match=reason):
            strict.settle(replace(call, consent=consent))


def test_a_mirrored_signature_is_refused(strict: Evm) -> None:
    call = a_call(strict)
    consent = strict.consent(call)
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    mirrored = order - int.from_bytes(consent.signature[32:64], "big")
    signature = consent.signature[:32] + mirrored.to_bytes(32, "big") + bytes([55 - consent.signature[64]])
    with pytest.raises(RevertedError, match="not canonical"):
        strict.settle(replace(call, consent=replace(consent, signature=signature)))


def test_garbage_is_no_consent(strict: Evm) -> None:
    call = a_call(strict)
    for signature in (b"\x01", b"\x00" * 65, b"\xff" * 4096):
        consent = Consent(max_total=60_000, max_fee_bps=1_500, deadline_s=2**40, signature=signature)
        with pytest.raises(RevertedError):
            strict.settle(replace(call, consent=consent))


def test_the_gas_of_a_settlement_is_known(evm: Evm, strict: Evm) -> None:
    evm.settle(a_call(evm))
    plain = int(evm.settle(a_call(evm))["gasUsed"], 16)
    strict.settle(replace(call := a_call(strict), consent=strict.consent(call)))
    consented = int(strict.settle(replace(call := a_call(strict), consent=strict.consent(call)))["gasUsed"], 16)
    assert abs(plain - SETTLE_GAS_PLAIN) <= ZERO_BYTES_GAS
    assert abs(consented - SETTLE_GAS_CONSENTED) <= ZERO_BYTES_GAS
