"""The thief's walk: what each party can take from the others with the keys that it has. One test for each row.

Every row prints what was taken. The last tests walk through SessionSettlement, which has no holds, to show what is open
there.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from sightline.chain.contracts.abi import SettleCall, settlement_constructor
from sightline.chain.contracts.artefacts import artefact
from sightline.chain.contracts.messages import NOBODY, EscrowHold, TypedMessage, batch_of
from sightline.domain.value import replace
from tests.chain.contracts.escrow_world import (
    ADMIN_DELAY_S,
    FUNDS,
    MAX_FEE_BPS,
    MAX_RATE,
    RATE,
    SECONDS,
    SESSION_CAP,
    EscrowWorld,
    sign,
)
from tests.chain.contracts.ground import CHAIN_ID
from tests.chain.evm import RevertedError

CAP = RATE * SECONDS
THIEF = "stranger"


def told(row: str, amount: int) -> None:
    sys.stdout.write(f"{row}: {amount:,} micro-USDC taken\n")


def tries(*attempts: Callable[[], Any]) -> int:
    """Try everything; returns how many attempts the contract accepted."""
    accepted = 0
    for attempt in attempts:
        try:
            attempt()
        except RevertedError:
            continue
        accepted += 1
    return accepted


def everything_that_a_key_can_try(world: EscrowWorld, hold: EscrowHold, key: str) -> list[Callable[[], Any]]:
    """Every call that could bring the money of an open hold, or of a payer with an allowance, to the thief."""
    thief = world.address(THIEF)
    own = world.terms(payee=thief)
    stolen = replace(hold, payee=thief)
    extension = world.extension(hold, CAP)
    mandate = world.mandate()

    def as_meter(message: TypedMessage) -> bytes:
        return world.signed(key, message)

    def exact() -> tuple[Any, ...]:
        paid = world.transfer(key, CAP, sender=own.payer)
        return (*world.exact(own, paid, key)[:-1], world.opening(own, meter=key))

    opening, stolen_batch = world.opening(own, meter=key), [world.item(stolen, SECONDS)]
    mandated = world.mandated(own, mandate, payer=key, delegate=key, meter=key)
    pull = "transferFrom(address,address,uint256)"
    return [
        lambda: world.call("openWithConsent", own, thief, world.signed(key, own), opening, sender=key),
        lambda: world.call("openWithAuthorization", own, thief, world.authorized(key, own), opening, sender=key),
        lambda: world.call("openExact", *exact(), sender=key),
        lambda: world.call("openWithMandate", *mandated, sender=key),
        lambda: world.call(
            "extendWithConsent", hold, CAP, extension.extend_by_s, as_meter(extension), as_meter(extension), sender=key
        ),
        lambda: world.call("captureMany", stolen_batch, as_meter(batch_of(stolen_batch)), sender=key),
        lambda: world.call("captureMany", [world.item(hold, SECONDS)], b"", sender=key),
        lambda: world.call("claim", *world.statement(stolen, SECONDS, meter=key), sender=key),
        lambda: world.call("claim", *world.statement(hold, SECONDS, meter=key), sender=key),
        lambda: world.call("reclaim", hold, sender=key),
        lambda: world.call("withdraw", thief, sender=key),
        lambda: world.return_stray(THIEF, 1, b"r" * 32, meter=key),
        lambda: world.send(key, world.escrow, "allowMeter(address)", thief),
        lambda: world.send(key, world.escrow, "acceptOwnership()"),
        lambda: world.send(key, world.token, pull, world.address("payer"), thief, CAP),
        lambda: world.send(key, world.token, pull, world.escrow, thief, CAP),
    ]


def an_open_hold(world: EscrowWorld) -> EscrowHold:
    hold = world.open_consented(world.terms())
    world.ground.wait(SECONDS)
    return hold


def test_the_gas_key_takes_nothing(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    attempts = everything_that_a_key_can_try(world, hold, "gas")
    # Of all that, the gas key can only make the relay's own calls fail.
    assert len(attempts) >= 16
    assert tries(*attempts) == 0
    told("the gas key", world.worth(THIEF, "gas"))
    assert (world.worth(THIEF, "gas"), world.balance("payer"), world.state(hold)) == (0, FUNDS - CAP, hold.hash())


def test_write_access_to_the_database_takes_nothing(world: EscrowWorld) -> None:
    """It has every signature that was stored, and can change every row, but signs nothing."""
    hold = an_open_hold(world)
    waiting = world.terms()
    consent, opening = world.signed("payer", waiting), world.opening(waiting)
    statement = world.statement(hold, 60, is_final=False)
    thief = world.address(THIEF)
    forged = [
        lambda: world.call("openWithConsent", replace(waiting, payee=thief), thief, consent, opening),
        lambda: world.call("openWithConsent", waiting, thief, consent, opening),
        lambda: world.call(
            "openWithConsent", replace(waiting, max_amount=SESSION_CAP), waiting.payee, consent, opening
        ),
        lambda: world.call("claim", replace(hold, payee=thief), *statement[1:]),
        lambda: world.call("claim", hold, SECONDS, *statement[2:]),
        lambda: world.call("claim", hold, 60, statement[2], True, statement[4]),
        *everything_that_a_key_can_try(world, hold, THIEF),
    ]
    assert tries(*forged) == 0
    told("write access to the database", world.worth(THIEF))
    assert world.worth(THIEF) == 0


def test_the_owners_key_takes_nothing_within_its_delay(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    thief = world.address(THIEF)
    world.send("owner", world.escrow, "proposeMeter(address)", thief)
    world.send("owner", world.escrow, "transferOwnership(address)", thief)
    world.send("owner", world.escrow, "setPaused(bool)", True)
    world.ground.wait(ADMIN_DELAY_S - 1)
    attempts = [
        *everything_that_a_key_can_try(world, hold, "owner"), *everything_that_a_key_can_try(world, hold, THIEF),
        lambda: world.send("owner", world.escrow, "allowMeter(address)", thief),
        lambda: world.send(THIEF, world.escrow, "acceptOwnership()"),
    ]  # fmt: skip
    assert tries(*attempts) == 0
    told("the owner's key within 48 h", world.worth(THIEF, "owner"))
    assert world.worth(THIEF, "owner") == 0
    world.ground.wait(1)
    world.send("owner", world.escrow, "allowMeter(address)", thief)  # and everybody has seen MeterProposed


def test_the_meters_key_takes_nothing_of_open_holds(world: EscrowWorld) -> None:
    """The seconds of an open hold go to its payee only, at most those that have passed; the rest to the payer."""
    hold = world.open_consented(world.terms())
    world.ground.wait(60)
    stolen = world.item(replace(hold, payee=world.address(THIEF)), 60)
    world.capture(stolen, world.item(hold, 91), sender="meter")
    assert world.state(hold) == hold.hash()
    world.capture(world.item(hold, 90), sender="meter")
    told("the meter's key, of open holds", world.worth(THIEF, "meter"))
    assert (world.worth(THIEF, "meter"), world.worth("payee", "feeReceiver")) == (0, 90 * RATE)
    assert world.balance("payer") == FUNDS - 90 * RATE


@pytest.mark.parametrize("way", ["terms without payee", "x402 payment in flight", "mandate without delegate"])
def test_the_meters_key_takes_rate_times_time_of_signatures_that_name_no_payee(world: EscrowWorld, way: str) -> None:
    """The thief names itself payee, and charges two holds: one while it can, one after removeMeter.

    For x402 the payer signs no rate, so the thief chooses the contract's highest.
    """
    thief, passed_s, held = world.address(THIEF), 20, SESSION_CAP if way.startswith("x402") else CAP

    def opened() -> EscrowHold:
        if way == "terms without payee":
            terms = world.terms(payee=NOBODY, fee_bps=0)
            opening = world.opening(terms, payee=thief)
            return world.opened(world.call("openWithConsent", terms, thief, world.signed("payer", terms), opening))
        if way == "x402 payment in flight":
            return world.open_exact(world.terms(payee=thief, fee_bps=0, rate=MAX_RATE, max_amount=SESSION_CAP))
        return world.open_mandated(world.terms(payee=thief, fee_bps=0), world.mandate(delegate=NOBODY))

    first, second = opened(), opened()
    world.ground.wait(passed_s)
    world.capture(world.item(first, passed_s + 31), sender="meter")
    assert world.worth(THIEF) == 0
    world.capture(world.item(first, passed_s + 30), sender="meter")
    world.send("owner", world.escrow, "removeMeter(address)", world.address("meter"))
    world.ground.wait(SECONDS)
    assert tries(
        lambda: world.capture(world.item(second, passed_s), sender="meter"),
        lambda: world.call("claim", *world.statement(second, passed_s), sender=THIEF),
    ) == 0  # fmt: skip
    world.capture(world.item(second, 0), sender="standby")
    told(f"the meter's key, {way}, {passed_s} s before it is removed", world.worth(THIEF))
    assert world.worth(THIEF) == first.rate * (passed_s + 30) < held
    assert world.balance("payer") == FUNDS - world.worth(THIEF)


def test_the_meters_key_takes_stray_money_only_beside_holds(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    world.fund(world.escrow, 7)
    assert tries(lambda: world.return_stray(THIEF, 8, b"r" * 32)) == 0
    world.return_stray(THIEF, 7, b"r" * 32)
    told("the meter's key, of money without a hold", world.worth(THIEF))
    assert (world.worth(THIEF), world.state(hold), world.stray()) == (7, hold.hash(), 0)


def test_a_consumer_who_empties_its_wallet_has_paid_before(world: EscrowWorld) -> None:
    hold = world.open_consented(world.terms())
    world.approve("payer", 0)
    world.send("payer", world.token, "transfer(address,uint256)", world.address(THIEF), FUNDS - CAP)
    world.ground.wait(SECONDS)
    world.capture(world.item(hold, SECONDS))
    lost = CAP - world.worth("payee", "feeReceiver")
    told("a consumer who empties its wallet after the video", lost)
    assert lost == 0


def test_a_consumer_uses_one_payment_for_one_session_on_one_chain(world: EscrowWorld) -> None:
    first, second = world.terms(), world.terms()
    signature = world.authorized("payer", first)
    world.call("openWithAuthorization", first, first.payee, signature, world.opening(first))
    paid = world.transfer("payer", CAP)
    world.call("openExact", *world.exact(second, paid))
    third = world.terms()
    assert tries(
        lambda: world.call("openWithAuthorization", first, first.payee, signature, world.opening(first)),
        lambda: world.call("openWithAuthorization", third, third.payee, signature, world.opening(third)),
        lambda: world.call("openExact", *world.exact(third, paid)),
    ) == 0  # fmt: skip
    elsewhere = replace(world.token_domain, chain_id=CHAIN_ID + 1)
    replayed = world.transfer("payer", CAP)
    foreign = sign(world.key("payer"), elsewhere, replayed)
    assert (
        tries(lambda: world.call("openExact", *world.exact(third, replayed)[:-2], foreign, world.opening(third))) == 0
    )
    told("a consumer with one payment for two sessions", 2 * CAP - world.balance(world.escrow))
    assert world.balance(world.escrow) == 2 * CAP


def test_an_operator_gets_no_more_than_real_time_and_nothing_early(world: EscrowWorld) -> None:
    hold = world.open_consented(world.terms())
    world.ground.wait(60)
    attempts = [
        lambda: world.call("claim", *world.statement(hold, 60, is_final=False), sender="payee"),  # early
        lambda: world.call("claim", *world.statement(hold, 91), sender="payee"),  # a meter that was deceived
        lambda: world.call("claim", *world.statement(hold, 60, meter="payee"), sender="payee"),
    ]
    assert tries(*attempts) == 0
    told("an operator that claims early", world.worth("payee"))
    assert world.worth("payee") == 0


def test_a_silent_service_costs_the_operator_one_interval_and_the_payer_nothing(world: EscrowWorld) -> None:
    hold = world.open_consented(world.terms())
    filmed_s, interval_s = 299, 30
    world.ground.wait(filmed_s)
    last = world.statement(hold, filmed_s - filmed_s % interval_s, is_final=False)
    world.ground.wait(hold.latest_end_s + 3_600 - world.ground.now_s)
    world.call("claim", *last, sender="payee")
    lost = filmed_s * RATE - world.worth("payee", "feeReceiver")
    told("a service that dies in mid-session, from the operator", lost)
    assert lost <= interval_s * RATE
    assert world.balance("payer") == FUNDS - 270 * RATE
    forgotten = world.open_consented(world.terms())
    before = world.balance("payer")
    world.ground.wait(SECONDS + 172_800)
    world.call("reclaim", forgotten, sender="payer")
    told("everybody silent, from the consumer", CAP - (world.balance("payer") - before))
    assert world.balance("payer") == before + CAP


def test_the_service_can_not_keep_the_rest(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    world.capture(world.item(hold, 100), sender="meter")
    assert world.balance("payer") == FUNDS - 100 * RATE
    told("the service, of the rest", FUNDS - 100 * RATE - world.balance("payer"))
    # A meter's captureMany is accepted and skips the closed session.
    assert tries(*everything_that_a_key_can_try(world, hold, "meter")[5:10]) == 2
    assert world.balance("payer") == FUNDS - 100 * RATE


def test_an_issuer_that_blocks_one_party_stops_no_other(world: EscrowWorld) -> None:
    hold = an_open_hold(world)
    world.block("payer")
    world.capture(world.item(hold, 100))
    assert (world.balance("payee"), world.credit("payer")) == (85 * RATE, CAP - 100 * RATE)
    told("an issuer that blocks the payer, from the operator", 85 * RATE - world.balance("payee"))


# The same against SessionSettlement.


def settlement_of(world: EscrowWorld, relayer: str) -> str:
    arguments = settlement_constructor(
        token=world.token, owner=world.address("owner"), relayer=world.address(relayer),
        fee_receiver=world.address("feeReceiver"), max_fee_bps=MAX_FEE_BPS, session_cap_micro=SESSION_CAP,
        consent_required=False, admin_delay_s=ADMIN_DELAY_S,
    )  # fmt: skip
    return world.ground.create(artefact("SessionSettlement").bytecode + arguments)


def test_settlement_the_relayers_key_takes_every_allowance(world: EscrowWorld) -> None:
    """Write access to the database takes the same, by the relayer's hand."""
    settlement = settlement_of(world, "gas")
    allowance = 3 * SESSION_CAP
    world.send("payer", world.token, "approve(address,uint256)", settlement, allowance)
    for number in range(10):
        call = SettleCall(
            session_id_hash="0x" + number.to_bytes(32).hex(), payer=world.address("payer"), payee=world.address(THIEF),
            to_amount=SESSION_CAP, fee_amount=0, rate=SESSION_CAP, seconds=1, platform_fee_bps=0,
        )  # fmt: skip
        tries(lambda call=call: world.ground.call(world.key("gas"), settlement, call.data()))  # type: ignore[misc]
    told("SessionSettlement, the relayer's key or write access to the database", world.balance(THIEF))
    assert world.balance(THIEF) == allowance


def test_settlement_a_consumer_who_empties_its_wallet_pays_nothing(world: EscrowWorld) -> None:
    settlement = settlement_of(world, "gas")
    world.send("payer", world.token, "approve(address,uint256)", settlement, FUNDS)
    world.ground.wait(SECONDS)  # the video
    world.send("payer", world.token, "approve(address,uint256)", settlement, 0)
    call = SettleCall(
        session_id_hash="0x" + bytes(32).hex(), payer=world.address("payer"), payee=world.address("payee"),
        to_amount=CAP, fee_amount=0, rate=RATE, seconds=SECONDS, platform_fee_bps=0,
    )  # fmt: skip
    assert tries(lambda: world.ground.call(world.key("gas"), settlement, call.data())) == 0
    told("SessionSettlement, a consumer who empties its wallet after the video", CAP - world.balance("payee"))
    assert world.balance("payee") == 0


def test_settlement_the_owners_key_takes_nothing_within_its_delay(world: EscrowWorld) -> None:
    settlement = settlement_of(world, "gas")
    world.send("payer", world.token, "approve(address,uint256)", settlement, FUNDS)
    thief = world.address(THIEF)
    world.send("owner", settlement, "proposeRelayer(address)", thief)
    world.ground.wait(ADMIN_DELAY_S - 1)
    call = SettleCall(
        session_id_hash="0x" + bytes(32).hex(), payer=world.address("payer"), payee=thief, to_amount=SESSION_CAP,
        fee_amount=0, rate=SESSION_CAP, seconds=1, platform_fee_bps=0,
    )  # fmt: skip
    attempts = [
        lambda: world.send("owner", settlement, "allowRelayer(address)", thief),
        lambda: world.ground.call(world.key("owner"), settlement, call.data()),
        lambda: world.ground.call(world.key(THIEF), settlement, call.data()),
    ]
    assert tries(*attempts) == 0
    told("SessionSettlement, the owner's key within 48 h", world.balance(THIEF))
    assert world.balance(THIEF) == 0
