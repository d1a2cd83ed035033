"""A test USDC and a SessionEscrow with the keys of everybody who signs for them."""

from dataclasses import dataclass, field
from typing import Any

from eth_utils.address import to_canonical_address

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.artefacts import artefact
from sightline.chain.contracts.escrow import OPENED_TOPIC, escrow_call, escrow_constructor, opened_hold
from sightline.chain.contracts.messages import (
    NOBODY,
    CaptureItem,
    EscrowHold,
    Extension,
    Mandate,
    MandateRevocation,
    MeterStatement,
    Opening,
    SessionTerms,
    SigningDomain,
    StrayReturn,
    TransferWithAuthorization,
    TypedMessage,
    authorization_to_extend,
    authorization_to_open,
    batch_of,
    escrow_domain,
)
from sightline.chain.signer import Signer
from sightline.domain.value import replace
from sightline.system.keccak import keccak256
from tests.chain.contracts.ground import CHAIN_ID, Done, Ground, ask, signer_of

RATE = 1_000
SECONDS = 600
MAX_FEE_BPS = 3_000
SESSION_CAP = 100_000_000
MAX_RATE = 1_000_000
ADMIN_DELAY_S = 172_800
FUNDS = 10**12


def sign(key: Signer, domain: SigningDomain, message: TypedMessage) -> bytes:
    """Sign a message as a wallet does: r, s, v in 65 bytes."""
    v, r, s = key.sign_digest(domain.digest(message))
    return r + s + bytes([v])


@dataclass
class EscrowWorld:
    """Contracts on one ground, and a signer by name for each party. A test changes what it needs."""

    ground: Ground
    token: str
    escrow: str
    domain: SigningDomain
    token_domain: SigningDomain
    code: bytes | None = None
    sessions: int = 0
    holds: dict[bytes, EscrowHold] = field(default_factory=dict)

    # Parties.

    def key(self, name: str) -> Signer:
        return signer_of(name)

    def address(self, name: str) -> str:
        return signer_of(name).address

    def send(self, sender: str, to: str, signature: str, *values: Any) -> Done:
        """Call a function of static parameters, such as approve(address,uint256)."""
        return self.ground.call(self.key(sender), to, call_data(signature, values))

    def call(self, function: str, *values: Any, sender: str = "gas") -> Done:
        """Call a function of the escrow contract."""
        return self.ground.call(self.key(sender), self.escrow, escrow_call(function, *values))

    def ask(self, signature: str, *values: Any) -> int:
        return ask(self.ground, self.escrow, signature, *values)

    def state(self, hold: EscrowHold | SessionTerms) -> bytes:
        return self.ask("stateOf(bytes32)", hold.session_id_hash).to_bytes(32)

    def balance(self, who: str) -> int:
        return ask(self.ground, self.token, "balanceOf(address)", self._address_of(who))

    def credit(self, who: str) -> int:
        return self.ask("credit(address)", self._address_of(who))

    def _address_of(self, who: str) -> str:
        return who if who.startswith("0x") else self.address(who)

    def fund(self, who: str, amount: int = FUNDS) -> None:
        self.send("owner", self.token, "mint(address,uint256)", self._address_of(who), amount)

    def approve(self, who: str, amount: int = 2**256 - 1) -> None:
        self.send(who, self.token, "approve(address,uint256)", self.escrow, amount)

    def block(self, who: str, blocked: bool = True) -> None:
        self.send("owner", self.token, "setBlacklisted(address,bool)", self._address_of(who), blocked)

    # What is signed.

    def terms(self, **changed: Any) -> SessionTerms:
        """Terms of a new session: 600 s at 1,000 micro-USDC, between payer and payee."""
        self.sessions += 1
        return SessionTerms(
            **{
                "session_id_hash": keccak256(b"session %d" % self.sessions),
                "payer": self.address("payer"),
                "payee": self.address("payee"),
                "max_amount": RATE * SECONDS,
                "rate": RATE,
                "fee_bps": 1_500,
                "open_by_s": self.ground.now_s + 300,
            }
            | changed
        )

    def signed(self, who: str, message: TypedMessage) -> bytes:
        return sign(self.key(who), self.domain, message)

    def opening(self, terms: SessionTerms, *, payee: str | None = None, meter: str = "meter") -> bytes:
        return self.signed(meter, Opening(terms_hash=terms.struct_hash(), payee=payee or terms.payee))

    def authorized(self, who: str, terms: SessionTerms) -> bytes:
        return sign(self.key(who), self.token_domain, authorization_to_open(terms, self.escrow))

    def transfer(self, who: str, value: int, **changed: Any) -> TransferWithAuthorization:
        """An authorization as x402's clients make it: any nonce, valid from ten minutes ago."""
        self.sessions += 1
        return TransferWithAuthorization(
            **{
                "sender": self.address(who),
                "receiver": self.escrow,
                "value": value,
                "valid_after_s": self.ground.now_s - 600,
                "valid_before_s": self.ground.now_s + 240,
                "nonce": keccak256(b"nonce %d" % self.sessions),
            }
            | changed
        )

    def mandate(self, **changed: Any) -> Mandate:
        """A mandate for ten sessions of `terms` a day."""
        self.sessions += 1
        return Mandate(
            **{
                "payer": self.address("payer"),
                "delegate": self.address("delegate"),
                "max_per_session": RATE * SECONDS,
                "max_per_day": 10 * RATE * SECONDS,
                "max_rate": RATE,
                "max_fee_bps": 1_500,
                "valid_until_s": self.ground.now_s + 30 * 86_400,
                "salt": keccak256(b"salt %d" % self.sessions),
            }
            | changed
        )

    def statement(
        self, hold: EscrowHold, seconds: int, *, is_final: bool = True, meter: str = "meter", head: bytes = b"h" * 32
    ) -> tuple[EscrowHold, int, bytes, bool, bytes]:
        """The arguments of `claim`."""
        message = MeterStatement(hold_hash=hold.hash(), clean_seconds=seconds, head_hash=head, is_final=is_final)
        return hold, seconds, head, is_final, self.signed(meter, message)

    # The ways to open, each with everything signed as it should be.

    def opened(self, done: Done) -> EscrowHold:
        ((topics, data),) = done.of(OPENED_TOPIC)
        hold = opened_hold(topics, data)
        self.holds[hold.session_id_hash] = hold
        return hold

    def open_authorized(self, terms: SessionTerms, *, who: str = "payer", payee: str | None = None) -> EscrowHold:
        signature = self.authorized(who, terms)
        named = payee or terms.payee
        opening = self.opening(terms, payee=named)
        return self.opened(self.call("openWithAuthorization", terms, named, signature, opening))

    def open_exact(self, terms: SessionTerms, *, who: str = "payer", sender: str = "gas") -> EscrowHold:
        paid = self.transfer(who, terms.max_amount)
        return self.opened(self.call("openExact", *self.exact(terms, paid, who), sender=sender))

    def exact(self, terms: SessionTerms, paid: TransferWithAuthorization, who: str = "payer") -> tuple[Any, ...]:
        """The arguments of `openExact`."""
        signature = sign(self.key(who), self.token_domain, paid)
        times = (paid.valid_after_s, paid.valid_before_s, paid.nonce)
        return (terms, terms.payee, *times, signature, self.opening(terms))

    def open_consented(self, terms: SessionTerms, *, who: str = "payer", sender: str = "gas") -> EscrowHold:
        arguments = (terms, terms.payee, self.signed(who, terms), self.opening(terms))
        return self.opened(self.call("openWithConsent", *arguments, sender=sender))

    def mandated(self, terms: SessionTerms, mandate: Mandate, **changed: Any) -> tuple[Any, ...]:
        """The arguments of `openWithMandate`. `changed` may name other signers: payer, delegate, meter."""
        who = {"payer": "payer", "delegate": "delegate", "meter": "meter"} | changed
        by_delegate = b"" if mandate.delegate == NOBODY else self.signed(who["delegate"], terms)
        return (
            terms, terms.payee, mandate, self.signed(who["payer"], mandate), by_delegate,
            self.opening(terms, meter=who["meter"]),
        )  # fmt: skip

    def open_mandated(self, terms: SessionTerms, mandate: Mandate, **changed: Any) -> EscrowHold:
        return self.opened(self.call("openWithMandate", *self.mandated(terms, mandate, **changed)))

    # Extensions.

    def extension(self, hold: EscrowHold, extra: int, **changed: Any) -> Extension:
        return Extension(
            **{"hold_hash": hold.hash(), "extra_amount": extra, "extend_by_s": self.ground.now_s + 60} | changed
        )

    def extend_authorized(self, hold: EscrowHold, extra: int, *, who: str = "payer") -> EscrowHold:
        extension = self.extension(hold, extra)
        payment = authorization_to_extend(extension, hold.payer, self.escrow)
        self.call(
            "extendWithAuthorization", hold, extra, extension.extend_by_s,
            sign(self.key(who), self.token_domain, payment), self.signed("meter", extension),
        )  # fmt: skip
        return self.grown(hold, extra)

    def extend_exact(self, hold: EscrowHold, extra: int, *, who: str = "payer") -> EscrowHold:
        extension, paid = self.extension(hold, extra), self.transfer(who, extra)
        self.call(
            "extendExact", hold, extra, extension.extend_by_s, paid.valid_after_s, paid.valid_before_s, paid.nonce,
            sign(self.key(who), self.token_domain, paid), self.signed("meter", extension),
        )  # fmt: skip
        return self.grown(hold, extra)

    def extend_consented(self, hold: EscrowHold, extra: int, *, who: str = "payer", meter: str = "meter") -> EscrowHold:
        extension = self.extension(hold, extra)
        self.call(
            "extendWithConsent", hold, extra, extension.extend_by_s, self.signed(who, extension),
            self.signed(meter, extension),
        )  # fmt: skip
        return self.grown(hold, extra)

    def extend_mandated(
        self, hold: EscrowHold, extra: int, mandate: Mandate, *, delegate: str = "delegate"
    ) -> EscrowHold:
        extension = self.extension(hold, extra)
        by_delegate = b"" if mandate.delegate == NOBODY else self.signed(delegate, extension)
        self.call(
            "extendWithMandate", hold, extra, extension.extend_by_s, mandate, self.signed("payer", mandate),
            by_delegate, self.signed("meter", extension),
        )  # fmt: skip
        return self.grown(hold, extra)

    def grown(self, hold: EscrowHold, extra: int) -> EscrowHold:
        grown = replace(hold, max_amount=hold.max_amount + extra)
        self.holds[hold.session_id_hash] = grown
        return grown

    # Ends.

    def item(self, hold: EscrowHold, seconds: int) -> CaptureItem:
        return CaptureItem(hold=hold, clean_seconds=seconds, head_hash=keccak256(hold.session_id_hash))

    def capture(self, *items: CaptureItem, sender: str = "meter") -> Done:
        """captureMany, sent by a meter."""
        return self.call("captureMany", list(items), b"", sender=sender)

    def capture_signed(self, *items: CaptureItem, sender: str = "gas", meter: str = "meter") -> Done:
        """captureMany with the meter's signature, sent by somebody else."""
        return self.call("captureMany", list(items), self.signed(meter, batch_of(list(items))), sender=sender)

    def revocation(self, mandate: Mandate) -> MandateRevocation:
        return MandateRevocation(mandate_hash=mandate.struct_hash())

    def return_stray(self, who: str, amount: int, reference: bytes, *, meter: str = "meter") -> Done:
        message = StrayReturn(receiver=self.address(who), amount=amount, reference=reference)
        return self.call("returnStray", *message.values(), self.signed(meter, message))

    # Sums.

    def stray(self) -> int:
        """Balance less everything that is owed; never negative (I1)."""
        return self.balance(self.escrow) - self.ask("totalHeld()") - self.ask("totalCredit()")

    def worth(self, *names: str) -> int:
        """What these parties have, credits included."""
        return sum(self.balance(name) + self.credit(name) for name in names)


def deploy_escrow(ground: Ground, token: str, *, code: bytes | None = None, **changed: Any) -> str:
    """Deploy a SessionEscrow; `code` replaces its creation code, `changed` its terms."""
    address = {role: signer_of(role).address for role in ("owner", "meter", "standby", "feeReceiver")}
    arguments = {
        "token": token, "owner": address["owner"], "meter": address["meter"], "standby_meter": address["standby"],
        "fee_receiver": address["feeReceiver"], "max_fee_bps": MAX_FEE_BPS, "session_cap_micro": SESSION_CAP,
        "max_rate": MAX_RATE, "admin_delay_s": ADMIN_DELAY_S,
    }  # fmt: skip
    return ground.create((code or artefact("SessionEscrow").bytecode) + escrow_constructor(**(arguments | changed)))


def escrow_world(
    ground: Ground, *, code: bytes | None = None, chain_id: int = CHAIN_ID, token: str | None = None, **changed: Any
) -> EscrowWorld:
    """Deploy both contracts, or the escrow beside a token that exists."""
    if token is None:
        owner = to_canonical_address(signer_of("owner").address)
        token = ground.create(artefact("TestUSDC").bytecode + bytes(12) + owner)
    escrow = deploy_escrow(ground, token, code=code, **changed)
    token_domain = SigningDomain(name="Sightline Test USD Coin", version="1", chain_id=chain_id, contract=token)
    return EscrowWorld(ground, token, escrow, escrow_domain(chain_id, escrow), token_domain, code)


def funded(world: EscrowWorld) -> EscrowWorld:
    """Give the payer money and an allowance for the escrow contract."""
    world.fund("payer")
    world.approve("payer")
    return world
