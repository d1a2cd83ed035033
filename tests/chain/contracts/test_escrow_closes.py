"""SessionEscrow ends each hold once and pays out all of it, whoever sends the call and whoever refuses money."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.chain.contracts.abi import SETTLED_TOPIC, TRANSFER_TOPIC, SettledEvent, topic_address
from sightline.chain.contracts.escrow import (
    CAPTURES_MAX,
    CLOSED,
    CREDITED_TOPIC,
    EVIDENCE_TOPIC,
    RECLAIMED_TOPIC,
    SKIPPED_TOPIC,
    WITHDRAWN_TOPIC,
    EvidenceEvent,
    SkippedWhy,
)
from sightline.chain.contracts.messages import NOBODY, EscrowHold, batch_of
from sightline.domain.value import replace
from sightline.system.keccak import keccak256
from tests.chain.contracts.escrow_world import MAX_FEE_BPS, RATE, SECONDS, EscrowWorld, deploy_escrow, escrow_world
from tests.chain.contracts.ground import ask, test_source
from tests.chain.evm import RevertedError

CAP = RATE * SECONDS
HOUR_S, TWO_DAYS_S = 3_600, 172_800
few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def an_open_hold(world: EscrowWorld, *, passed_s: int = SECONDS, **changed: object) -> EscrowHold:
    """A hold that was opened some seconds ago."""
    hold = world.open_consented(world.terms(**changed))
    world.ground.wait(passed_s)
    return hold


def skipped(world: EscrowWorld, hold: EscrowHold, seconds: int) -> SkippedWhy | None:
    """Capture a session alone; returns why it was skipped, or None."""
    logs = world.capture(world.item(hold, seconds)).of(SKIPPED_TOPIC)
    return SkippedWhy(int.from_bytes(logs[0][1])) if logs else None


@few
@given(st.integers(1, 10**6), st.integers(1, 14_400), st.integers(0, 999_999), st.integers(0, MAX_FEE_BPS), st.data())
def test_a_hold_is_split_to_the_last_micro(
    world: EscrowWorld, rate: int, seconds: int, odd: int, fee_bps: int, data: st.DataObject
) -> None:
    """I3: payee, fee and rest are the hold; the fee is floored."""
    seconds = min(seconds, 100_000_000 // rate)
    amount = min(rate * seconds + odd % rate, 100_000_000)
    hold = an_open_hold(world, passed_s=seconds, max_amount=amount, rate=rate, fee_bps=fee_bps)
    charged = data.draw(st.integers(0, amount // rate))
    parties = ("payee", "feeReceiver", "payer")
    before = [world.balance(name) for name in parties]
    world.capture(world.item(hold, charged))
    total = charged * rate
    fee = total * fee_bps // 10_000
    assert [world.balance(name) - old for name, old in zip(parties, before, strict=True)] == [
        total - fee, fee, amount - total,
    ]  # fmt: skip
    assert world.stray() == 0


def test_a_capture_tells_the_charge_the_evidence_and_the_rest(world: EscrowWorld) -> None:
    first, second = an_open_hold(world), an_open_hold(world)
    done = world.capture(world.item(first, 60), world.item(second, 0))
    settled = [SettledEvent.of(*log) for log in done.of(SETTLED_TOPIC)]
    assert settled[0] == SettledEvent(
        session_id_hash="0x" + first.session_id_hash.hex(), payer=first.payer, payee=first.payee, to_amount=51_000,
        fee_amount=9_000, rate=RATE, seconds=60, platform_fee_bps=1_500,
    )  # fmt: skip
    assert (settled[1].to_amount, settled[1].fee_amount, settled[1].seconds) == (0, 0, 0)
    told = [EvidenceEvent.of(*log) for log in done.of(EVIDENCE_TOPIC)]
    assert told == [
        EvidenceEvent(session_id_hash=each.session_id_hash, head_hash=keccak256(each.session_id_hash), returned=rest)
        for each, rest in ((first, CAP - 60_000), (second, CAP))
    ]
    order = [(topics[0], topic_address(topics[2])) for _, topics, _ in done.logs if topics[0] == TRANSFER_TOPIC]
    receivers = [receiver for _, receiver in order]
    assert receivers == [first.payee, first.payer, second.payer, world.address("feeReceiver").lower()]
    names = [topics[0] for _, topics, _ in done.logs]
    assert names == [
        TRANSFER_TOPIC, TRANSFER_TOPIC, SETTLED_TOPIC, EVIDENCE_TOPIC, TRANSFER_TOPIC, SETTLED_TOPIC, EVIDENCE_TOPIC,
        TRANSFER_TOPIC,
    ]  # fmt: skip


def test_the_fee_is_floored_and_taken_of_the_charge(world: EscrowWorld) -> None:
    hold = an_open_hold(world, rate=1_001, max_amount=1_001 * SECONDS)
    world.capture(world.item(hold, 61))
    charge = 1_001 * 61
    assert (world.balance("feeReceiver"), world.balance("payee")) == (9_159, charge - 9_159)
    assert charge * 1_500 / 10_000 == 9_159.15


def test_the_rest_returns_to_the_payer_whoever_sends(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    before = world.balance("payer")
    world.capture_signed(world.item(hold, 100), sender="stranger")
    assert (world.balance("payer"), world.balance("stranger")) == (before + CAP - 100 * RATE, 0)


def test_a_session_is_charged_once(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    before = world.balance("payee")
    done = world.capture(world.item(hold, 10), world.item(hold, 20))
    assert len(done.of(SETTLED_TOPIC)) == 1
    assert skipped(world, hold, 10) is SkippedWhy.NO_SUCH_HOLD
    with pytest.raises(RevertedError, match="no such hold"):
        world.call("claim", *world.statement(hold, 10))
    world.ground.wait(TWO_DAYS_S)
    with pytest.raises(RevertedError, match="no such hold"):
        world.call("reclaim", hold)
    assert world.balance("payee") == before + 8_500
    assert world.state(hold) == CLOSED


def test_a_hold_with_any_other_value_is_no_hold(world: EscrowWorld) -> None:
    hold, stranger = an_open_hold(world), world.address("stranger")
    for other in (
        replace(hold, session_id_hash=keccak256(b"unknown")), replace(hold, payer=stranger),
        replace(hold, payee=stranger), replace(hold, max_amount=CAP + RATE), replace(hold, rate=RATE + 1),
        replace(hold, fee_bps=0), replace(hold, opened_at_s=hold.opened_at_s - TWO_DAYS_S),
    ):  # fmt: skip
        assert skipped(world, other, 1) is SkippedWhy.NO_SUCH_HOLD
        with pytest.raises(RevertedError, match="no such hold"):
            world.call("claim", *world.statement(other, 1))
        with pytest.raises(RevertedError, match="no such hold"):
            world.call("reclaim", other)
    assert world.balance(world.escrow) == CAP


def test_a_charge_has_at_most_the_seconds_that_passed(world: EscrowWorld) -> None:
    """I4, with 30 s for clocks that differ."""
    hold = an_open_hold(world, passed_s=100)
    assert skipped(world, hold, 131) is SkippedWhy.OVER_TIME
    with pytest.raises(RevertedError, match="more seconds than have passed"):
        world.call("claim", *world.statement(hold, 131))
    assert skipped(world, hold, 2**256 - 1) is SkippedWhy.OVER_TIME
    assert skipped(world, hold, 130) is None


def test_a_charge_is_at_most_the_held_amount(world: EscrowWorld) -> None:
    hold = an_open_hold(world, passed_s=10 * SECONDS)
    assert skipped(world, hold, SECONDS + 1) is SkippedWhy.OVER_AMOUNT
    with pytest.raises(RevertedError, match="over the held amount"):
        world.call("claim", *world.statement(hold, SECONDS + 1))
    assert skipped(world, hold, SECONDS) is None
    assert world.balance(world.escrow) == 0


def test_one_bad_item_stops_no_other(world: EscrowWorld) -> None:
    holds = [an_open_hold(world, passed_s=0) for _ in range(5)]
    world.ground.wait(100)
    world.capture(world.item(holds[0], 1))
    forged = EscrowHold(
        session_id_hash=b"\xff" * 32, payer=NOBODY, payee=NOBODY, max_amount=2**256 - 1, rate=0, fee_bps=2**256 - 1,
        opened_at_s=2**256 - 1,
    )  # fmt: skip
    done = world.capture(
        world.item(holds[0], 1), world.item(holds[1], 100), world.item(holds[2], 131), world.item(forged, 1),
        world.item(holds[3], 2**256 - 1), world.item(holds[4], 0),
    )  # fmt: skip
    reasons = [SkippedWhy(int.from_bytes(data)) for _, data in done.of(SKIPPED_TOPIC)]
    assert reasons == [
        SkippedWhy.NO_SUCH_HOLD, SkippedWhy.OVER_TIME, SkippedWhy.NO_SUCH_HOLD, SkippedWhy.OVER_TIME,
    ]  # fmt: skip
    settled = [SettledEvent.of(*log).session_id_hash for log in done.of(SETTLED_TOPIC)]
    assert settled == ["0x" + hold.session_id_hash.hex() for hold in (holds[1], holds[4])]
    assert world.ask("totalHeld()") == world.balance(world.escrow) == 2 * CAP


def test_every_end_lowers_what_is_held(world: EscrowWorld) -> None:
    captured, claimed, reclaimed = (an_open_hold(world, passed_s=0) for _ in range(3))
    world.ground.wait(SECONDS)
    held = []
    world.capture(world.item(captured, 1))
    held.append(world.ask("totalHeld()"))
    world.call("claim", *world.statement(claimed, 1))
    held.append(world.ask("totalHeld()"))
    world.ground.wait(TWO_DAYS_S)
    world.call("reclaim", reclaimed)
    held.append(world.ask("totalHeld()"))
    assert held == [2 * CAP, CAP, 0]
    assert world.stray() == 0


def test_a_batch_takes_fifty_and_no_more(world: EscrowWorld) -> None:
    unknown = EscrowHold(
        session_id_hash=b"u" * 32, payer=NOBODY, payee=NOBODY, max_amount=1, rate=1, fee_bps=0, opened_at_s=0
    )
    items = [world.item(unknown, 0)] * CAPTURES_MAX
    assert len(world.capture(*items).of(SKIPPED_TOPIC)) == 50
    with pytest.raises(RevertedError):
        world.capture(*items, items[0])


# Who may charge.


def test_only_a_meter_charges(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    for nobody in ("gas", "payee", "payer", "owner", "feeReceiver", "stranger"):
        with pytest.raises(RevertedError, match="65 bytes"):
            world.capture(world.item(hold, 1), sender=nobody)
        with pytest.raises(RevertedError, match="not signed by a meter"):
            world.capture_signed(world.item(hold, 1), meter=nobody)
        with pytest.raises(RevertedError, match="not signed by a meter"):
            world.call("claim", *world.statement(hold, 1, meter=nobody))
    assert world.state(hold) == hold.hash()


def test_a_batch_that_the_meter_signed_can_not_be_changed(world: EscrowWorld) -> None:
    first, second = an_open_hold(world), an_open_hold(world)
    items = [world.item(first, 10), world.item(second, 10)]
    signature = world.signed("meter", batch_of(items))
    for changed in (
        items[:1], items[::-1], [*items, items[0]], [world.item(first, 11), items[1]],
        [replace(items[0], head_hash=b"x" * 32), items[1]],
    ):  # fmt: skip
        with pytest.raises(RevertedError, match="not signed by a meter"):
            world.call("captureMany", changed, signature)
    world.call("captureMany", items, signature, sender="payee")
    assert world.balance(world.escrow) == 0


def test_the_standby_meter_charges_too(world: EscrowWorld) -> None:
    first, second = an_open_hold(world), an_open_hold(world)
    world.capture(world.item(first, 1), sender="standby")
    world.call("claim", *world.statement(second, 1, meter="standby"))


def test_statements_of_a_removed_meter_are_void_at_once(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    statement = world.statement(hold, 60)
    world.send("owner", world.escrow, "removeMeter(address)", world.address("meter"))
    with pytest.raises(RevertedError, match="not signed by a meter"):
        world.call("claim", *statement)
    with pytest.raises(RevertedError, match="65 bytes"):
        world.capture(world.item(hold, 1))
    with pytest.raises(RevertedError, match="not signed by a meter"):
        world.open_consented(world.terms())
    world.call("claim", *world.statement(hold, 60, meter="standby"))


# Claims.


def test_a_final_statement_is_claimed_at_any_time_by_anyone(world: EscrowWorld) -> None:
    hold = an_open_hold(world, passed_s=60)
    before = world.worth("payer", "payee", "feeReceiver")
    done = world.call("claim", *world.statement(hold, 60, head=b"e" * 32), sender="stranger")
    assert world.worth("payer", "payee", "feeReceiver") == before + CAP
    assert (world.balance("payee"), world.balance("feeReceiver")) == (51_000, 9_000)
    ((topics, data),) = done.of(EVIDENCE_TOPIC)
    assert EvidenceEvent.of(topics, data).head_hash == b"e" * 32
    assert world.ask("totalHeld()") == 0


def test_an_interim_statement_waits_until_the_service_had_its_turn(world: EscrowWorld) -> None:
    hold = an_open_hold(world, passed_s=30)
    statement = world.statement(hold, 30, is_final=False)
    world.ground.wait(hold.latest_end_s + HOUR_S - 1 - world.ground.now_s)
    with pytest.raises(RevertedError, match="too early"):
        world.call("claim", *statement)
    world.ground.wait(1)
    with pytest.raises(RevertedError, match="not signed by a meter"):  # an interim one does not pass as final
        world.call("claim", *statement[:3], True, statement[4])
    world.call("claim", *statement, sender="payee")
    assert world.balance("payee") == 25_500


def test_a_statement_charges_its_own_session_with_its_own_numbers(world: EscrowWorld) -> None:
    first, second = an_open_hold(world), an_open_hold(world)
    _, seconds, head, is_final, signature = world.statement(first, 10)
    for changed in (
        (second, seconds, head, is_final), (first, seconds + 1, head, is_final), (first, seconds, b"x" * 32, is_final),
    ):  # fmt: skip
        with pytest.raises(RevertedError, match="not signed by a meter"):
            world.call("claim", *changed, signature)
    world.call("claim", first, seconds, head, is_final, signature)


# Reclaims.


def test_anyone_returns_a_forgotten_hold_after_two_days(world: EscrowWorld) -> None:
    """I6."""
    hold = an_open_hold(world)
    before = world.balance("payer")
    world.ground.wait(hold.latest_end_s + TWO_DAYS_S - 1 - world.ground.now_s)
    with pytest.raises(RevertedError, match="too early"):
        world.call("reclaim", hold)
    world.ground.wait(1)
    done = world.call("reclaim", hold, sender="stranger")
    assert (world.balance("payer"), world.state(hold), world.ask("totalHeld()")) == (before + CAP, CLOSED, 0)
    assert [topics[1] for topics, _ in done.of(RECLAIMED_TOPIC)] == ["0x" + hold.session_id_hash.hex()]


def test_a_hold_is_returned_though_everybody_else_refuses(world: EscrowWorld) -> None:
    """I6: meters removed, contract paused, payer blocked, token paused."""
    hold = an_open_hold(world)
    before = world.balance("payer")
    for meter in ("meter", "standby"):
        world.send("owner", world.escrow, "removeMeter(address)", world.address(meter))
    world.send("owner", world.escrow, "setPaused(bool)", True)
    world.block("payer")
    world.send("owner", world.token, "setPaused(bool)", True)
    world.ground.wait(TWO_DAYS_S)
    world.call("reclaim", hold, sender="stranger")
    assert (world.credit("payer"), world.stray()) == (CAP, 0)
    world.send("owner", world.token, "setPaused(bool)", False)
    world.block("payer", False)
    world.call("withdraw", world.address("payer"), sender="stranger")
    assert (world.balance("payer"), world.credit("payer")) == (before + CAP, 0)


# Receivers that refuse.


@pytest.mark.parametrize("who", ["payee", "payer", "feeReceiver"])
@pytest.mark.parametrize("way", ["capture", "claim"])
def test_a_blacklisted_party_stops_no_other_and_is_paid_later(world: EscrowWorld, who: str, way: str) -> None:
    others = [name for name in ("payee", "payer", "feeReceiver") if name != who]
    blocked, fine = an_open_hold(world, passed_s=0), an_open_hold(world, passed_s=0)
    world.ground.wait(SECONDS)
    before = {name: world.worth(name) for name in ("payee", "payer", "feeReceiver")}
    world.block(who)
    if way == "capture":
        world.capture(world.item(blocked, 100), world.item(fine, 200))
    else:
        world.call("claim", *world.statement(blocked, 100))
        world.call("claim", *world.statement(fine, 200))
    gained = {name: world.worth(name) - before[name] for name in before}
    assert gained == {"payee": 255_000, "feeReceiver": 45_000, "payer": 2 * CAP - 300_000}
    assert [world.credit(name) for name in others] == [0, 0]
    assert world.credit(who) == world.ask("totalCredit()") == gained[who]
    assert (world.stray(), world.ask("totalHeld()")) == (0, 0)


def test_a_failed_withdrawal_keeps_the_credit(world: EscrowWorld) -> None:
    hold, payee = an_open_hold(world), world.address("payee")
    world.block("payee")
    credited = world.capture(world.item(hold, 100)).of(CREDITED_TOPIC)
    assert [topics[1:] for topics, _ in credited] == [
        ["0x" + bytes(12).hex() + payee[2:].lower(), "0x" + hold.session_id_hash.hex()]
    ]
    with pytest.raises(RevertedError, match="blacklisted"):
        world.call("withdraw", payee)
    assert (world.credit("payee"), world.ask("totalCredit()")) == (85_000, 85_000)
    world.block("payee", False)
    assert len(world.call("withdraw", payee, sender="stranger").of(WITHDRAWN_TOPIC)) == 1
    assert (world.balance("payee"), world.ask("totalCredit()"), world.balance(world.escrow)) == (85_000, 0, 0)
    with pytest.raises(RevertedError, match="no credit"):
        world.call("withdraw", payee)


def test_a_paused_token_turns_all_parts_into_credits(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    world.send("owner", world.token, "setPaused(bool)", True)
    world.capture(world.item(hold, 100))
    assert [world.credit(name) for name in ("payee", "feeReceiver", "payer")] == [85_000, 15_000, CAP - 100_000]
    assert world.stray() == 0


def test_payer_and_payee_may_be_one_wallet(world: EscrowWorld) -> None:
    hold = an_open_hold(world, payee=world.address("payer"))
    before = world.balance("payer")
    world.capture(world.item(hold, 100))
    assert world.balance("payer") == before + CAP - 15_000


def test_a_session_is_closed_before_any_token_moves(world: EscrowWorld) -> None:
    """Whatever the token calls while it moves money sees the new state, also a view of this contract."""
    ends: dict[str, Callable[[EscrowWorld, EscrowHold], object]] = {
        "capture": lambda here, hold: here.capture(here.item(hold, 10)),
        "claim": lambda here, hold: here.call("claim", *here.statement(hold, 10)),
        "reclaim": lambda here, hold: here.call("reclaim", hold),
    }
    for end in ends.values():
        token = world.ground.create(test_source("WatchingToken"))
        here = escrow_world(world.ground, token=token, code=world.code)
        here.send("owner", token, "mint(address,uint256)", here.address("payer"), CAP)
        terms = here.terms()
        here.send("owner", token, "watch(bytes32)", terms.session_id_hash)
        hold = here.open_consented(terms)
        assert ask(here.ground, token, "seen(uint256)", 0).to_bytes(32) == hold.hash()
        here.ground.wait(TWO_DAYS_S + SECONDS)
        end(here, hold)
        assert ask(here.ground, token, "seen(uint256)", 1).to_bytes(32) == CLOSED


# Administration.


def test_a_meter_signs_only_after_its_delay(world: EscrowWorld) -> None:
    hold, thief = an_open_hold(world, passed_s=0), world.address("stranger")
    for nobody in ("stranger", "meter", "gas"):
        for name in ("proposeMeter(address)", "allowMeter(address)", "removeMeter(address)"):
            with pytest.raises(RevertedError, match="not the owner"):
                world.send(nobody, world.escrow, name, thief)
    with pytest.raises(RevertedError, match="was not proposed"):
        world.send("owner", world.escrow, "allowMeter(address)", thief)
    with pytest.raises(RevertedError, match="zero address"):
        world.send("owner", world.escrow, "proposeMeter(address)", NOBODY)
    world.send("owner", world.escrow, "proposeMeter(address)", thief)
    world.ground.wait(TWO_DAYS_S - 1)
    with pytest.raises(RevertedError, match="delay has not passed"):
        world.send("owner", world.escrow, "allowMeter(address)", thief)
    with pytest.raises(RevertedError, match="not signed by a meter"):
        world.call("claim", *world.statement(hold, 10, meter="stranger"))
    world.ground.wait(1)
    world.send("owner", world.escrow, "allowMeter(address)", thief)
    world.call("claim", *world.statement(hold, 10, meter="stranger"))
    world.send("owner", world.escrow, "proposeMeter(address)", world.address("payee"))
    world.send("owner", world.escrow, "removeMeter(address)", world.address("payee"))
    world.ground.wait(TWO_DAYS_S)
    with pytest.raises(RevertedError, match="was not proposed"):
        world.send("owner", world.escrow, "allowMeter(address)", world.address("payee"))


def test_ownership_moves_in_two_steps_after_the_delay(world: EscrowWorld) -> None:
    with pytest.raises(RevertedError, match="not the owner"):
        world.send("stranger", world.escrow, "transferOwnership(address)", world.address("stranger"))
    world.send("owner", world.escrow, "transferOwnership(address)", world.address("stranger"))
    with pytest.raises(RevertedError, match="not the pending owner"):
        world.send("payee", world.escrow, "acceptOwnership()")
    world.ground.wait(TWO_DAYS_S - 1)
    with pytest.raises(RevertedError, match="delay has not passed"):
        world.send("stranger", world.escrow, "acceptOwnership()")
    world.ground.wait(1)
    world.send("stranger", world.escrow, "acceptOwnership()")
    with pytest.raises(RevertedError, match="not the owner"):
        world.send("owner", world.escrow, "setPaused(bool)", True)
    world.send("stranger", world.escrow, "setPaused(bool)", True)


def test_a_deployment_with_wrong_terms_reverts(world: EscrowWorld) -> None:
    changes: tuple[dict[str, object], ...] = (
        {"token": world.address("stranger")}, {"owner": NOBODY}, {"meter": NOBODY}, {"fee_receiver": NOBODY},
        {"max_fee_bps": 10_001}, {"session_cap_micro": 2**128 + 1},
    )  # fmt: skip
    for changed in changes:
        with pytest.raises(RevertedError):
            deploy_escrow(world.ground, **({"token": world.token} | changed))  # type: ignore[arg-type]
    deploy_escrow(world.ground, world.token, standby_meter=NOBODY, max_fee_bps=10_000, session_cap_micro=2**128)
