"""SessionEscrow takes a payer's money only with that payer's signature, for the terms that both sides signed."""

from collections.abc import Callable
from typing import Any

import pytest
from eth_abi.abi import encode

from sightline.chain.contracts.escrow import EXTENDED_TOPIC
from sightline.chain.contracts.messages import MAX_SECONDS, NOBODY, EscrowHold, SessionTerms
from sightline.domain.value import replace
from sightline.system.keccak import keccak256
from tests.chain.contracts.escrow_world import (
    MAX_FEE_BPS,
    MAX_RATE,
    RATE,
    SECONDS,
    SESSION_CAP,
    EscrowWorld,
    sign,
)
from tests.chain.contracts.ground import CHAIN_ID, DirectGround, test_source
from tests.chain.evm import RevertedError

CAP = RATE * SECONDS
UNKNOWN = bytes(32)


def open_mandated(world: EscrowWorld, terms: SessionTerms, who: str = "payer") -> EscrowHold:
    return world.open_mandated(terms, world.mandate(max_per_session=SESSION_CAP, max_per_day=SESSION_CAP), payer=who)


WAYS: dict[str, Callable[..., EscrowHold]] = {
    "authorization": EscrowWorld.open_authorized,
    "exact": EscrowWorld.open_exact,
    "consent": EscrowWorld.open_consented,
    "mandate": open_mandated,
}
ways = pytest.mark.parametrize("way", WAYS)


def refuses(world: EscrowWorld, reason: str, function: str, *values: Any, sender: str = "gas") -> None:
    """Expect a revert with this reason, and that nothing has moved."""
    before = (world.balance("payer"), world.balance(world.escrow), world.ask("totalHeld()"))
    with pytest.raises(RevertedError, match=reason):
        world.call(function, *values, sender=sender)
    assert (world.balance("payer"), world.balance(world.escrow), world.ask("totalHeld()")) == before


@ways
def test_an_open_moves_the_cap_into_the_contract(world: EscrowWorld, way: str) -> None:
    before = world.balance("payer")
    terms = world.terms()
    hold = WAYS[way](world, terms)
    assert world.balance("payer") == before - CAP
    assert world.balance(world.escrow) == world.ask("totalHeld()") == CAP
    assert world.state(terms) == hold.hash()
    assert hold == EscrowHold(
        session_id_hash=terms.session_id_hash, payer=terms.payer.lower(), payee=terms.payee.lower(), max_amount=CAP,
        rate=RATE, fee_bps=1_500, opened_at_s=world.ground.now_s,
    )  # fmt: skip


@ways
def test_only_the_payer_can_sign_for_its_money(world: EscrowWorld, way: str) -> None:
    before = world.balance("payer")
    for thief in ("stranger", "payee", "meter", "owner", "delegate", "gas"):
        with pytest.raises(RevertedError, match=r"invalid signature|signature of somebody else"):
            WAYS[way](world, world.terms(), who=thief)
    assert (world.balance("payer"), world.stray()) == (before, 0)


def test_every_open_needs_a_meters_signature(world: EscrowWorld) -> None:
    terms, mandate = world.terms(), world.mandate()
    for nobody in ("stranger", "payee", "payer", "owner", "gas"):
        opening = world.opening(terms, meter=nobody)
        paid = world.exact(terms, world.transfer("payer", CAP))[:-1]
        reason = "not signed by a meter"
        refuses(world, reason, "openWithAuthorization", terms, terms.payee, world.authorized("payer", terms), opening)
        refuses(world, reason, "openExact", *paid, opening)
        refuses(world, reason, "openWithConsent", terms, terms.payee, world.signed("payer", terms), opening)
        refuses(world, reason, "openWithMandate", *world.mandated(terms, mandate, meter=nobody))
    refuses(world, "has not 65 bytes", "openWithConsent", terms, terms.payee, world.signed("payer", terms), b"")
    broken = world.opening(terms)[:64] + b"\x00"
    refuses(world, "not signed by a meter", "openWithConsent", terms, terms.payee, b"", broken)


def test_the_senders_identity_changes_nothing(world: EscrowWorld) -> None:
    """I8: each open sent by each party has the same outcome."""
    for sender in ("payer", "payee", "stranger", "meter", "owner"):
        for way in (world.open_exact, world.open_consented):
            hold = way(world.terms(), sender=sender)
            assert (hold.payer, hold.payee) == (world.address("payer").lower(), world.address("payee").lower())


def test_a_named_payee_is_the_only_payee(world: EscrowWorld) -> None:
    terms, thief = world.terms(), world.address("stranger")
    opening = world.opening(terms, payee=thief)
    reason = "payee is not that of the terms"
    refuses(world, reason, "openWithAuthorization", terms, thief, world.authorized("payer", terms), opening)
    refuses(world, reason, "openWithConsent", terms, thief, world.signed("payer", terms), opening)


def test_where_the_terms_name_no_payee_the_meter_does_and_not_the_sender(world: EscrowWorld) -> None:
    terms = world.terms(payee=NOBODY)
    payee, thief = world.address("payee"), world.address("stranger")
    opening, consent = world.opening(terms, payee=payee), world.signed("payer", terms)
    refuses(world, "not signed by a meter", "openWithConsent", terms, thief, consent, opening)
    hold = world.opened(world.call("openWithConsent", terms, payee, consent, opening))
    assert hold.payee == payee.lower()


@ways
def test_an_open_session_is_not_opened_again(world: EscrowWorld, way: str) -> None:
    terms = world.terms()
    WAYS[way](world, terms)
    for again in WAYS.values():
        with pytest.raises(RevertedError, match="session is known"):
            again(world, terms)


def test_a_closed_session_is_never_opened_again(world: EscrowWorld) -> None:
    """I2: closed by capture, claim and reclaim; the same signatures open nothing."""
    terms = [world.terms(open_by_s=world.ground.now_s + 10**7) for _ in range(3)]
    holds = [world.open_consented(each) for each in terms]
    world.ground.wait(SECONDS)
    world.capture(world.item(holds[0], 5))
    world.call("claim", *world.statement(holds[1], 5))
    world.ground.wait(172_800)
    world.call("reclaim", holds[2])
    for each in terms:
        assert world.state(each) == (1).to_bytes(32)
        refuses(
            world, "session is known", "openWithConsent", each, each.payee, world.signed("payer", each),
            world.opening(each),
        )  # fmt: skip


def test_terms_have_bounds(world: EscrowWorld) -> None:
    escrow, stranger = world.escrow, world.address("stranger")
    longest = RATE * MAX_SECONDS
    world.open_consented(world.terms(max_amount=longest + RATE - 1))
    world.open_consented(world.terms(max_amount=SESSION_CAP, rate=MAX_RATE, fee_bps=MAX_FEE_BPS))
    for changed, reason in (
        ({"rate": 0}, "rate is 0"),
        ({"max_amount": RATE - 1}, "less than a second"),
        ({"max_amount": longest + RATE}, "over the longest session"),
        ({"max_amount": SESSION_CAP + 1, "rate": 10**6}, "over the session cap"),
        ({"max_amount": SESSION_CAP, "rate": MAX_RATE + 1}, "over the highest rate"),
        ({"max_amount": 2**256 - 1, "rate": MAX_RATE}, "over the session cap"),
        ({"max_amount": 2**256 - 1, "rate": 2**255}, "over the highest rate"),
        ({"fee_bps": MAX_FEE_BPS + 1}, "fee over the bound"),
        ({"payer": NOBODY}, "zero address"),
        ({"payee": NOBODY}, "zero address"),
        ({"payee": escrow}, "no party"),
        ({"payer": escrow}, "no party"),
        ({"open_by_s": world.ground.now_s}, "terms expired"),
        ({"payer": stranger}, "signature of somebody else"),
    ):
        terms = world.terms(**changed)
        consent, opening = world.signed("payer", terms), world.opening(terms)
        refuses(world, reason, "openWithConsent", terms, terms.payee, consent, opening)


def changed_terms(world: EscrowWorld, terms: SessionTerms) -> list[SessionTerms]:
    """The terms with each of their fields changed."""
    return [
        replace(terms, session_id_hash=keccak256(b"another")), replace(terms, payee=world.address("stranger")),
        replace(terms, payee=NOBODY), replace(terms, max_amount=CAP + 1), replace(terms, rate=RATE + 1),
        replace(terms, fee_bps=1_501), replace(terms, open_by_s=terms.open_by_s + 1),
    ]  # fmt: skip


def test_a_signature_of_one_session_opens_no_other(world: EscrowWorld) -> None:
    """The meter signs whatever it is asked here: the payer's signature alone refuses each change of the terms."""
    terms = world.terms()
    authorized, consent = world.authorized("payer", terms), world.signed("payer", terms)
    for other in changed_terms(world, terms):
        payee = world.address("stranger")
        opening = world.opening(other, payee=payee)
        if other.payee not in (payee, NOBODY):
            payee, opening = other.payee, world.opening(other)
        refuses(world, "invalid signature", "openWithAuthorization", other, payee, authorized, opening)
        refuses(world, "signature of somebody else", "openWithConsent", other, payee, consent, opening)
    world.call("openWithAuthorization", terms, terms.payee, authorized, world.opening(terms))


def test_a_meters_opening_of_one_session_opens_no_other(world: EscrowWorld) -> None:
    terms = world.terms()
    opening = world.opening(terms)
    for other in changed_terms(world, terms):
        payee = terms.payee if other.payee == NOBODY else other.payee
        refuses(
            world, "not signed by a meter", "openWithConsent", other, payee, world.signed("payer", other), opening
        )  # fmt: skip


def test_a_payment_of_x402_is_bound_to_amount_time_and_nonce(world: EscrowWorld) -> None:
    terms = world.terms()
    paid = world.transfer("payer", CAP)
    right = world.exact(terms, paid)
    larger = world.exact(replace(terms, max_amount=CAP + RATE), paid)
    refuses(world, "invalid signature", "openExact", *larger)
    for position, value in ((2, paid.valid_after_s - 1), (3, paid.valid_before_s + 1), (4, keccak256(b"other"))):
        changed = [*right[:position], value, *right[position + 1 :]]
        refuses(world, "invalid signature", "openExact", *changed)
    world.call("openExact", *right)
    again = world.exact(world.terms(), paid)
    refuses(world, "used or canceled", "openExact", *again)


def test_a_signature_is_valid_for_one_contract_on_one_chain(world: EscrowWorld) -> None:
    terms = world.terms()
    here = world.domain
    for elsewhere in (replace(here, chain_id=CHAIN_ID + 1), replace(here, contract=world.token)):
        world.domain = elsewhere
        consent = world.signed("payer", terms)
        world.domain = here
        refuses(
            world, "signature of somebody else", "openWithConsent", terms, terms.payee, consent, world.opening(terms)
        )
    assert isinstance(world.ground, DirectGround)
    old = (world.signed("payer", terms), world.opening(terms))
    world.ground.fork(CHAIN_ID + 1)
    world.domain = replace(here, chain_id=CHAIN_ID + 1)
    assert world.ask("DOMAIN_SEPARATOR()") == int.from_bytes(world.domain.separator())
    refuses(world, "not signed by a meter", "openWithConsent", terms, terms.payee, *old)
    world.open_consented(terms)


def test_a_mirrored_signature_is_no_consent(world: EscrowWorld) -> None:
    terms = world.terms()
    consent = world.signed("payer", terms)
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    mirrored = (order - int.from_bytes(consent[32:64])).to_bytes(32)
    signature = consent[:32] + mirrored + bytes([55 - consent[64]])
    refuses(world, "signature of somebody else", "openWithConsent", terms, terms.payee, signature, world.opening(terms))


def test_a_payer_who_can_not_pay_opens_nothing(world: EscrowWorld) -> None:
    terms = world.terms()
    world.approve("payer", CAP - 1)
    refuses(
        world, "exceeds allowance", "openWithConsent", terms, terms.payee, world.signed("payer", terms),
        world.opening(terms),
    )  # fmt: skip
    poor = world.terms(payer=world.address("stranger"))
    refuses(
        world, "exceeds balance", "openWithAuthorization", poor, poor.payee, world.authorized("stranger", poor),
        world.opening(poor),
    )  # fmt: skip
    assert (world.state(terms), world.state(poor)) == (UNKNOWN, UNKNOWN)


def test_a_contract_wallet_opens_by_its_code(world: EscrowWorld) -> None:
    wallet = world.ground.create(test_source("Wallet") + encode(["address"], [world.address("payer")]))
    world.fund(wallet)
    world.send("stranger", wallet, "approve(address,address,uint256)", world.token, world.escrow, 2**255)
    world.open_authorized(world.terms(payer=wallet))
    world.open_consented(world.terms(payer=wallet))
    terms = world.terms(payer=wallet)
    long = world.signed("payer", terms) + b"p" * 900  # such as a passkey's
    world.call("openWithConsent", terms, terms.payee, long, world.opening(terms))
    mandate = world.mandate(payer=wallet)
    hold = world.open_mandated(world.terms(payer=wallet), mandate)
    assert hold.payer == wallet.lower()
    for way in (world.open_authorized, world.open_consented):
        with pytest.raises(RevertedError, match=r"invalid signature|refused by the wallet"):
            way(world.terms(payer=wallet), who="stranger")


def test_an_account_with_delegated_code_consents_by_its_key(world: EscrowWorld) -> None:
    """EIP-7702: USDC asks the code alone, so an authorization of such an account fails and a consent does not."""
    assert isinstance(world.ground, DirectGround)
    world.ground.delegate(world.key("payer"), world.token)
    world.open_consented(world.terms())
    world.open_mandated(world.terms(), world.mandate())
    with pytest.raises(RevertedError, match="invalid signature"):
        world.open_authorized(world.terms())
    with pytest.raises(RevertedError):
        world.open_consented(world.terms(), who="stranger")


# Mandates.


def test_a_mandate_bounds_session_rate_fee_and_time(world: EscrowWorld) -> None:
    other = world.address("stranger")
    for changed, reason in (
        ({"max_per_session": CAP - 1}, "session limit"),
        ({"max_per_day": CAP - 1}, "day limit"),
        ({"max_rate": RATE - 1}, "over the mandate's rate"),
        ({"max_fee_bps": 1_499}, "over the mandate's fee"),
        ({"valid_until_s": world.ground.now_s}, "mandate expired"),
        ({"payer": other}, "mandate of another payer"),
    ):
        refuses(world, reason, "openWithMandate", *world.mandated(world.terms(), world.mandate(**changed)))
    world.open_mandated(world.terms(), world.mandate(max_per_day=CAP, valid_until_s=world.ground.now_s + 1))


def test_a_mandate_has_a_limit_for_each_utc_day(world: EscrowWorld) -> None:
    """I9."""
    mandate = world.mandate(max_per_day=2 * CAP)
    world.ground.wait(86_400 - world.ground.now_s % 86_400)  # to midnight
    for _ in range(2):
        world.open_mandated(world.terms(), mandate)
    refuses(world, "day limit", "openWithMandate", *world.mandated(world.terms(), mandate))
    world.open_mandated(world.terms(), world.mandate())  # another mandate has a limit of its own
    world.ground.wait(86_399)
    refuses(world, "day limit", "openWithMandate", *world.mandated(world.terms(), mandate))
    world.ground.wait(1)
    world.open_mandated(world.terms(), mandate)


def test_a_revoked_mandate_opens_nothing(world: EscrowWorld) -> None:
    first, second = world.mandate(), world.mandate()
    world.open_mandated(world.terms(), first)
    refuses(world, "mandate of another payer", "revokeMandate", first, sender="stranger")
    refuses(
        world, "signature of somebody else", "revokeMandateFor", first,
        world.signed("stranger", world.revocation(first)),
    )  # fmt: skip
    world.call("revokeMandate", first, sender="payer")
    world.call("revokeMandateFor", second, world.signed("payer", world.revocation(second)), sender="stranger")
    for mandate in (first, second):
        refuses(world, "mandate is revoked", "openWithMandate", *world.mandated(world.terms(), mandate))
    world.open_mandated(world.terms(), world.mandate())


def test_a_mandate_needs_its_delegate_for_each_session(world: EscrowWorld) -> None:
    mandate = world.mandate()
    for nobody in ("stranger", "payee", "meter", "gas"):
        arguments = world.mandated(world.terms(), mandate, delegate=nobody)
        refuses(world, "signature of somebody else", "openWithMandate", *arguments)
    used = world.mandated(world.terms(), mandate)[4]
    arguments = world.mandated(world.terms(), mandate)
    refuses(world, "signature of somebody else", "openWithMandate", *arguments[:4], used, arguments[5])
    world.open_mandated(world.terms(), world.mandate(delegate=NOBODY))


# Extensions.


def test_an_extension_adds_to_the_hold_in_each_way(world: EscrowWorld) -> None:
    mandate = world.mandate(max_per_session=2 * CAP)
    extend: dict[str, Callable[[EscrowHold], EscrowHold]] = {
        "authorization": lambda hold: world.extend_authorized(hold, CAP),
        "exact": lambda hold: world.extend_exact(hold, CAP),
        "consent": lambda hold: world.extend_consented(hold, CAP),
        "mandate": lambda hold: world.extend_mandated(hold, CAP, mandate),
    }
    for number, way in enumerate(extend, 1):
        hold = world.open_consented(world.terms())
        before = world.balance("payer")
        grown = extend[way](hold)
        assert world.balance("payer") == before - CAP
        assert (world.state(hold), grown.max_amount) == (grown.hash(), 2 * CAP)
        assert (world.ask("totalHeld()"), world.stray()) == (number * 2 * CAP, 0)


def test_an_extension_needs_payer_and_meter(world: EscrowWorld) -> None:
    hold = world.open_consented(world.terms())
    for way in (world.extend_authorized, world.extend_exact, world.extend_consented):
        with pytest.raises(RevertedError, match=r"invalid signature|signature of somebody else"):
            way(hold, CAP, who="stranger")
    for nobody in ("stranger", "payer", "payee"):
        with pytest.raises(RevertedError, match="not signed by a meter"):
            world.extend_consented(hold, CAP, meter=nobody)
    with pytest.raises(RevertedError, match="signature of somebody else"):
        world.extend_mandated(hold, CAP, world.mandate(max_per_session=2 * CAP), delegate="stranger")
    assert world.state(hold) == hold.hash()


def test_an_extension_has_the_bounds_of_an_open(world: EscrowWorld) -> None:
    hold = world.open_consented(world.terms())
    longest = RATE * MAX_SECONDS - CAP
    for extra, reason in ((0, "by nothing"), (longest + RATE, "longest session"), (SESSION_CAP, "session cap")):
        with pytest.raises(RevertedError, match=reason):
            world.extend_consented(hold, extra)
    late = world.extension(hold, CAP, extend_by_s=world.ground.now_s)
    refuses(
        world, "extension expired", "extendWithConsent", hold, CAP, late.extend_by_s, world.signed("payer", late),
        world.signed("meter", late),
    )  # fmt: skip
    other = replace(hold, payee=world.address("stranger"))
    with pytest.raises(RevertedError, match="no such hold"):
        world.extend_consented(other, CAP)
    world.ground.wait(SECONDS)
    with pytest.raises(RevertedError, match="session is over"):
        world.extend_consented(hold, CAP)


def test_a_mandates_limits_count_extensions(world: EscrowWorld) -> None:
    mandate = world.mandate(max_per_session=CAP + 10 * RATE, max_per_day=CAP + 15 * RATE)
    hold = world.open_mandated(world.terms(), mandate)
    with pytest.raises(RevertedError, match="session limit"):
        world.extend_mandated(hold, 11 * RATE, mandate)
    world.extend_mandated(hold, 10 * RATE, mandate)
    second = world.open_consented(world.terms(max_amount=10 * RATE))
    with pytest.raises(RevertedError, match="day limit"):
        world.extend_mandated(second, 6 * RATE, mandate)
    world.extend_mandated(second, 5 * RATE, mandate)


def test_an_extension_is_used_once_and_voids_earlier_statements(world: EscrowWorld) -> None:
    hold = world.open_consented(world.terms())
    extension = world.extension(hold, CAP)
    arguments = (hold, CAP, extension.extend_by_s, world.signed("payer", extension), world.signed("meter", extension))
    done = world.call("extendWithConsent", *arguments)
    ((topics, data),) = done.of(EXTENDED_TOPIC)
    assert (topics[1], data) == ("0x" + hold.session_id_hash.hex(), encode(["uint256"] * 2, [CAP, 2 * CAP]))
    refuses(world, "no such hold", "extendWithConsent", *arguments)
    world.ground.wait(30)
    refuses(world, "no such hold", "claim", *world.statement(hold, 30))
    world.call("claim", *world.statement(world.grown(hold, CAP), 30))


def test_a_pause_stops_what_takes_money_and_nothing_else(world: EscrowWorld) -> None:
    """I7."""
    first, second, third, blocked = (world.open_consented(world.terms()) for _ in range(4))
    world.block("payee")
    world.ground.wait(60)
    world.capture(world.item(blocked, 60))
    world.block("payee", False)
    with pytest.raises(RevertedError, match="not the owner"):
        world.send("stranger", world.escrow, "setPaused(bool)", True)
    world.send("owner", world.escrow, "setPaused(bool)", True)
    for way in WAYS.values():
        with pytest.raises(RevertedError, match="paused"):
            way(world, world.terms())
    for extend in (world.extend_authorized, world.extend_exact, world.extend_consented):
        with pytest.raises(RevertedError, match="paused"):
            extend(first, CAP)
    world.capture(world.item(first, 1))
    world.call("claim", *world.statement(second, 1))
    world.call("withdraw", world.address("payee"), sender="stranger")
    world.ground.wait(SECONDS + 172_800)
    world.call("reclaim", third, sender="stranger")
    assert (world.balance(world.escrow), world.ask("totalHeld()")) == (0, 0)
    world.send("owner", world.escrow, "setPaused(bool)", False)
    world.open_consented(world.terms())


# Money without a hold.


def test_a_payment_that_was_sent_past_the_contract_is_returned(world: EscrowWorld) -> None:
    paid, terms = world.transfer("payer", CAP), world.terms()
    before = world.balance("payer")
    arguments = world.exact(terms, paid)
    signature = sign(world.key("payer"), world.token_domain, paid)
    name = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)"
    world.send("stranger", world.token, name, *paid.values(), signature[64], signature[:32], signature[32:64])
    assert (world.stray(), world.state(terms)) == (CAP, UNKNOWN)
    refuses(world, "used or canceled", "openExact", *arguments)
    world.return_stray("payer", CAP, paid.nonce)
    assert (world.stray(), world.balance("payer")) == (0, before)


def test_stray_returns_reach_no_held_and_no_credited_money(world: EscrowWorld) -> None:
    held, credited = world.open_consented(world.terms()), world.open_consented(world.terms())
    world.block("payee")
    world.ground.wait(60)
    world.capture(world.item(credited, 60))
    assert world.ask("totalCredit()") > 0
    world.fund(world.escrow, 5)
    with pytest.raises(RevertedError, match="not that much is stray"):
        world.return_stray("stranger", 6, b"r" * 32)
    with pytest.raises(RevertedError, match="not signed by a meter"):
        world.return_stray("stranger", 5, b"r" * 32, meter="stranger")
    world.return_stray("stranger", 4, b"r" * 32)
    with pytest.raises(RevertedError, match="stray is returned"):
        world.return_stray("stranger", 1, b"r" * 32)
    world.return_stray("stranger", 1, b"s" * 32)
    assert world.stray() == 0
    assert world.state(held) == held.hash()
