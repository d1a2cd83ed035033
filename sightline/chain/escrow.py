"""Opens holds for sessions that start, and signs statements of the meter."""

import math
from collections.abc import Callable, Collection
from typing import Any, Final, final

import trio

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.messages import (
    NOBODY,
    MeterStatement,
    ReceiveWithAuthorization,
    SessionTerms,
    SigningDomain,
    TransferWithAuthorization,
    authorization_to_extend,
    authorization_to_open,
    transfer_data,
)
from sightline.chain.contracts.messages import Extension as ExtensionMessage
from sightline.chain.meter import Meter
from sightline.chain.permits import PermitRelay
from sightline.chain.relayer.openings import hold_of, mandate_of
from sightline.chain.rpc.reader import hex_bytes
from sightline.domain.addresses import recovered_address
from sightline.domain.errors import ChainUnavailableError, RefusedError, UnavailableError
from sightline.domain.escrow import START_RESERVE_MS, ConsentKind, PayerConsent, SignedMandate
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Session, SessionExtension, Terms
from sightline.domain.units import SECOND_MS, MicroUsdc, usdc_text
from sightline.domain.value import Value
from sightline.ports.chain import CallRevertedError, ChainReader
from sightline.ports.clock import Clock
from sightline.ports.escrow import (
    AllowancePermit,
    EscrowTerms,
    ExactAsset,
    ExactPayment,
    ExtensionOutbox,
    HoldExtension,
    HoldOpening,
    Mandates,
    OpeningOutbox,
    PermitOutbox,
    PermitTerms,
    SignedPermit,
    SignedStatement,
)
from sightline.ports.ledger import DAY_MS, SettlementState
from sightline.system.keccak import session_id_hash

OPEN_WAIT_S: Final = 12.0
"""How long a start waits for its hold. Afterwards it can be repeated; the hold is still opened."""
EXTEND_WAIT_S: Final = 20.0
"""How long an extension waits until its transaction is at its depth. Afterwards its call can be repeated."""
EXTEND_LEAST_S: Final = 30
"""An extension must be possible for this long."""
LOOK_EVERY_S: Final = 0.1
"""How often a start looks for its hold when the relayer runs on another server."""
TRANSFER_GAS: Final = 300_000
"""Gas of the trial of a payment. A payer with code is asked for its signature within it (ERC-1271)."""
NOTHING: Final = MicroUsdc(0)
_OPENED: Final = (SettlementState.MINED, SettlementState.CONFIRMED)
_REFUSED: Final = (SettlementState.FAILED, SettlementState.REVERTED, SettlementState.MISMATCHED)


@final
class Domains(Value, kw_only=True):
    """The EIP-712 domains that payers sign in."""

    token: SigningDomain
    escrow: SigningDomain

    def transfer(self, payment: ExactPayment) -> TransferWithAuthorization:
        """Return what a client of x402's scheme exact signs, in the token's domain."""
        return TransferWithAuthorization(
            sender=payment.payer, receiver=self.escrow.contract, value=payment.amount,
            valid_after_s=payment.transfer.valid_after_s, valid_before_s=payment.valid_before_s,
            nonce=hex_bytes(payment.transfer.nonce),
        )  # fmt: skip


@final
class ChainEscrow:
    """Implements `Escrow` with the outbox of the relayer."""

    def __init__(
        self, openings: OpeningOutbox, extensions: ExtensionOutbox, mandates: Mandates, meter: Meter,
        reader: ChainReader, domains: Domains, *, permits: PermitOutbox, clock: Clock,
        own_addresses: Collection[str] = (),
        unpaid_opens_max: int = 0,
    ) -> None:  # fmt: skip
        """Create it.

        Args:
            own_addresses: Of the service's accounts, which never pay for a session.
            unpaid_opens_max: Holds of a payer in 24 hours that may end without a charge; 0: no limit.
        """
        self._unpaid_opens_max = unpaid_opens_max
        self._openings = openings
        self._extensions = extensions
        self._permits = permits
        self._permit_relay = PermitRelay(permits, reader, domains.token, domains.escrow.contract, clock=clock)
        self._permit_relay.require_budget = self._require_gas_budget
        self._permit_relay.wake_relayer = lambda: self.wake_relayer()
        self.mandates = mandates
        self._meter = meter
        self._reader = reader
        self._domains = domains
        self._clock = clock
        self._own_addresses = frozenset(address.lower() for address in (*own_addresses, meter.address))
        self.exact_asset = ExactAsset(
            chain_id=domains.token.chain_id, token=domains.token.contract, name=domains.token.name,
            version=domains.token.version, pay_to=domains.escrow.contract,
        )  # fmt: skip
        self.wake_relayer: Callable[[], None] = lambda: None
        """Called while a start waits for its hold."""
        self._news = trio.Event()

    def on_round(self) -> None:
        """Look for holds at once: the relayer of this server has completed a round."""
        self._news.set()
        self._news = trio.Event()

    async def permit_terms(self, owner: str, amount: MicroUsdc, deadline_s: int) -> PermitTerms:
        """Return what an owner signs to give the contract an allowance without gas."""
        return await self._permit_relay.terms(owner, amount, deadline_s)

    async def relay_permit(self, permit: SignedPermit, owner: str) -> AllowancePermit:
        """Send a permit of this owner to the token, and return it when it is in a block."""
        return await self._permit_relay.relay(permit, owner)

    async def open_hold(self, session: Session) -> str:
        """Open the hold of a session, and return its transaction when it is in a block."""
        now_ms = self._clock.now_ms()
        await self._openings.request(_opening(session, now_ms), now_ms=now_ms)
        with trio.move_on_after(OPEN_WAIT_S):
            while True:
                news = self._news
                self.wake_relayer()
                opening = await self._openings.opening(session.id)
                if opening is not None and opening.state in _OPENED:
                    assert opening.tx_hash is not None, "a hold is in a block by its transaction"
                    return opening.tx_hash
                if opening is not None and opening.state in _REFUSED:
                    raise RefusedError(
                        _not_held(opening.reason, f"{usdc_text(session.terms.hold)} USDC of the session")
                    )
                with trio.move_on_after(LOOK_EVERY_S):
                    await news.wait()
        raise UnavailableError("the hold is not in a block yet; repeat the start")

    async def extend_hold(self, session: Session) -> str:
        """Add the amount that the session asks for to its hold, and return the transaction when it is at its depth."""
        now_ms, extension = self._clock.now_ms(), session.extending
        assert extension is not None, "the caller has recorded the extension"
        await self._extensions.request(_extension(session, extension, now_ms), now_ms=now_ms)
        with trio.move_on_after(EXTEND_WAIT_S):
            while True:
                news = self._news
                self.wake_relayer()
                row = await self._extensions.extension(extension.id)
                assert row is not None, "it was asked for"
                if row.state is SettlementState.CONFIRMED:
                    assert row.tx_hash is not None, "an extension is in a block by its transaction"
                    return row.tx_hash
                if row.state in (*_REFUSED, SettlementState.WRITTEN_OFF) and await self._extensions.withdraw(
                    extension.id, now_ms=self._clock.now_ms()
                ):
                    what = f"{usdc_text(extension.amount)} USDC of an extension by {extension.seconds} s"
                    raise RefusedError(_not_held(row.reason, what))
                with trio.move_on_after(LOOK_EVERY_S):
                    await news.wait()
        raise UnavailableError("the extension is not at its depth on the chain yet; repeat the call")

    async def _extension_message(self, session: Session, amount: MicroUsdc, extend_by_s: int) -> ExtensionMessage:
        opening = await self._openings.opening(session.id)
        hold = None if opening is None else hold_of(opening)
        if hold is None:
            raise UnavailableError("the session's hold is in no block now; repeat the call")
        return ExtensionMessage(hold_hash=hold.hash(), extra_amount=amount, extend_by_s=extend_by_s)

    def _authorization_to_extend(self, message: ExtensionMessage, payer: str) -> ReceiveWithAuthorization:
        return authorization_to_extend(message, payer, self._domains.escrow.contract)

    async def extension_typed_data(
        self, session: Session, amount: MicroUsdc, extend_by_s: int
    ) -> dict[ConsentKind, dict[str, Any]]:
        """Return what the payer signs to add an amount to a session's hold."""
        message = await self._extension_message(session, amount, extend_by_s)
        authorization = self._authorization_to_extend(message, session.terms.payer_address.lower())
        return {
            ConsentKind.AUTHORIZATION: self._domains.token.typed_data(authorization),
            ConsentKind.CONSENT: self._domains.escrow.typed_data(message),
        }

    async def require_extension(self, session: Session, extension: SessionExtension) -> None:
        """Refuse an extension whose consent the contract would refuse."""
        consent, payer = extension.consent, session.terms.payer_address
        assert consent is not None, "the caller has looked for a consent"
        if consent.open_by_s < self._clock.now_ms() // SECOND_MS + EXTEND_LEAST_S:
            raise RefusedError(_refused(f"openBy must be at least {EXTEND_LEAST_S} seconds from now"))
        if consent.exact is not None:
            payment = ExactPayment(
                payer=payer.lower(), amount=extension.amount, valid_before_s=consent.open_by_s,
                transfer=consent.exact, signature=consent.signature,
            )  # fmt: skip
            reason = await self.why_unpayable(payment)
            if reason is not None:
                raise RefusedError(_refused(reason))
            return
        message = await self._extension_message(session, extension.amount, consent.open_by_s)
        match consent.kind:
            case ConsentKind.AUTHORIZATION:
                digest = self._domains.token.digest(self._authorization_to_extend(message, payer.lower()))
                await self._require_signed(payer, digest, consent.signature)
            case ConsentKind.CONSENT:
                await self._require_signed(payer, self._domains.escrow.digest(message), consent.signature)
            case ConsentKind.MANDATE:
                await self._require_allowed(session.terms, consent, extension.amount)

    def typed_data(self, terms: EscrowTerms) -> dict[ConsentKind, dict[str, Any]]:
        """Return what the payer signs for these terms."""
        return {
            ConsentKind.AUTHORIZATION: self._domains.token.typed_data(self._authorization(_session_terms(terms))),
            ConsentKind.CONSENT: self._domains.escrow.typed_data(_session_terms(terms)),
        }

    def _authorization(self, terms: SessionTerms) -> ReceiveWithAuthorization:
        return authorization_to_open(terms, self._domains.escrow.contract)

    async def require_consent(self, terms: Terms) -> None:
        """Refuse a session whose consent the contract would refuse."""
        consent = terms.consent
        assert consent is not None, "the caller has looked for a consent"
        await self._require_gas_budget(terms.payer_address.lower())
        if consent.exact is not None:
            return  # it names no session, and was checked when it was paid
        start_by_ms = terms.wait_deadline_ms + START_RESERVE_MS
        if consent.open_by_s * 1_000 < start_by_ms:
            raise RefusedError(
                _refused(f"openBy is {consent.open_by_s}; the session may start until {start_by_ms // 1_000}")
            )
        signed = _session_terms(
            EscrowTerms(
                session_id=terms.id, payer=terms.payer_address.lower(), max_amount=terms.hold, rate=terms.rate,
                fee_bps=terms.platform_fee_bps, open_by_s=consent.open_by_s,
            )
        )  # fmt: skip
        match consent.kind:
            case ConsentKind.AUTHORIZATION:
                digest = self._domains.token.digest(self._authorization(signed))
                await self._require_signed(terms.payer_address, digest, consent.signature)
            case ConsentKind.CONSENT:
                await self._require_signed(terms.payer_address, self._domains.escrow.digest(signed), consent.signature)
            case ConsentKind.MANDATE:
                await self._require_allowed(terms, consent)

    async def why_unpayable(self, payment: ExactPayment) -> str | None:
        """Return why the contract could not take a payment now. The token decides it, by a call that is not sent."""
        token, payer, transfer = self._domains.token, payment.payer, self._domains.transfer(payment)
        if payer in self._own_addresses or payer == self._domains.escrow.contract.lower():
            return "the payer is an account of this service"
        signature = hex_bytes(payment.signature)
        if recovered_address(token.digest(transfer), signature) != payer and not await self._reader.code(payer):
            return "the signature is not that of the payer"
        try:
            await self._reader.call(token.contract, transfer_data(transfer, signature), gas_cap=TRANSFER_GAS)
        except CallRevertedError as error:
            return error.reason
        await self._require_gas_budget(payer)  # last: only the payer itself is told
        return None

    async def _require_gas_budget(self, payer: str) -> None:
        """Refuse a payer who has used up the gas that the service pays: permits, and holds without a charge."""
        limit, now_ms = self._unpaid_opens_max, self._clock.now_ms()
        if not limit:
            return
        since_ms = now_ms - DAY_MS
        opens_ms = await self._openings.unpaid(payer, since_ms=since_ms, limit=limit)
        permits_ms = await self._permits.paid_for(payer, since_ms=since_ms, limit=limit)
        paid_at_ms = sorted([*opens_ms, *permits_ms], reverse=True)
        if len(paid_at_ms) >= limit:
            wait_ms = max(SECOND_MS, paid_at_ms[limit - 1] + DAY_MS - now_ms)
            raise RefusedError(
                Refusal(
                    Code.RATE_LIMITED, "session:gasBudget",
                    f"The service has paid the gas of {limit} transactions of this payer in 24 hours: permits, and "
                    "sessions that ended without a charge. It pays no more until one of them is a day old",
                    retry_after_s=math.ceil(wait_ms / SECOND_MS),
                )
            )  # fmt: skip

    async def _require_signed(self, payer: str, digest: bytes, signature: str) -> None:
        """Require the payer's key, or an account with code, whose signature the contract itself checks (ERC-1271)."""
        if recovered_address(digest, hex_bytes(signature)) == payer.lower():
            return
        if not await self._reader.code(payer):
            raise RefusedError(_refused("the signature is not that of the workspace's wallet"))

    async def require_mandate(self, mandate: SignedMandate, payer: str) -> None:
        """Refuse a mandate that a payer has not signed, or that is over."""
        if mandate.payer != payer.lower():
            raise RefusedError(_refused("the mandate is of another wallet"))
        if mandate.valid_until_s * SECOND_MS <= self._clock.now_ms():
            raise RefusedError(_refused("the mandate is over"))
        await self._require_signed(payer, self._domains.escrow.digest(mandate_of(mandate)), mandate.signature)

    async def _require_allowed(self, terms: Terms, consent: PayerConsent, extra: MicroUsdc = NOTHING) -> None:
        """Require a mandate that allows the session, or an extra amount for it."""
        mandate = consent.mandate
        assert mandate is not None, "a consent by mandate has one"
        await self.require_mandate(mandate, terms.payer_address)
        limits = (
            ("rate", terms.rate <= mandate.max_rate),
            ("fee", terms.platform_fee_bps <= mandate.max_fee_bps),
            ("end", consent.open_by_s <= mandate.valid_until_s),
        )
        for name, is_within in limits:
            if not is_within:
                raise RefusedError(_refused(f"the mandate's {name} does not allow it"))
        held = terms.hold if extra else NOTHING
        wanted = extra or terms.hold
        _require_left(wanted, MicroUsdc(mandate.max_per_session - held), terms.rate, "for one session")
        try:
            held_today = await self.held_today(mandate)
        except (ChainUnavailableError, CallRevertedError):
            return  # the contract decides at the start
        left_today = MicroUsdc(mandate.max_per_day - held_today)
        period = "for the rest of today (UTC), after what was held for earlier sessions"
        _require_left(wanted, left_today, terms.rate, period)

    async def held_today(self, mandate: SignedMandate) -> MicroUsdc:
        """Return what the contract has held under a mandate on this UTC day, also of sessions that cost less."""
        day = self._clock.now_ms() // DAY_MS
        asked = call_data("openedOnDay(bytes32,uint256)", [mandate_of(mandate).struct_hash(), day])
        return MicroUsdc(int.from_bytes(await self._reader.call(self._domains.escrow.contract, asked), "big"))

    async def statement(
        self, session_id: str, *, clean_seconds: int, head_hash: str, is_final: bool
    ) -> SignedStatement | None:
        """Sign a reading of the meter."""
        opening = await self._openings.opening(session_id)
        hold = None if opening is None else hold_of(opening)
        if opening is None or hold is None:
            return None
        # As in a capture: the contract refuses more than the hold has, and a reorganisation may have lowered it.
        clean_seconds = min(clean_seconds, hold.max_amount // hold.rate)
        message = MeterStatement(
            hold_hash=hold.hash(), clean_seconds=clean_seconds, head_hash=bytes.fromhex(head_hash),
            is_final=is_final,
        )  # fmt: skip
        signature = await self._meter.sign(message)
        return SignedStatement(
            hold=opening, clean_seconds=clean_seconds, head_hash=head_hash, is_final=is_final,
            signature="0x" + signature.hex(),
        )  # fmt: skip


def _opening(session: Session, now_ms: int) -> HoldOpening:
    terms, operator = session.terms, session.operator
    assert operator is not None, "a hold is opened for an assigned session"
    assert terms.consent is not None, "a hold is opened for a session with a consent"
    return HoldOpening(
        session_id=terms.id, session_id_hash=session_id_hash(terms.id), payer=terms.payer_address.lower(),
        payee=operator.wallet_address.lower(), max_amount=terms.hold, rate=terms.rate,
        fee_bps=terms.platform_fee_bps, consent=terms.consent, state=SettlementState.COMPOSED, reason=None,
        tx_hash=None, block_number=None, block_hash=None, confirmed_at_ms=None, retry_at_ms=now_ms, tries=0,
        notified=True, composed_at_ms=now_ms, updated_at_ms=now_ms,
    )  # fmt: skip


def _extension(session: Session, extension: SessionExtension, now_ms: int) -> HoldExtension:
    assert extension.consent is not None, "a hold grows with a consent"
    return HoldExtension(
        session_id=extension.id, of_session=session.id, session_id_hash=session_id_hash(session.id),
        amount=extension.amount, consent=extension.consent, state=SettlementState.COMPOSED, reason=None, tx_hash=None,
        block_number=None, block_hash=None, confirmed_at_ms=None, retry_at_ms=now_ms, tries=0, notified=True,
        composed_at_ms=now_ms, updated_at_ms=now_ms,
    )  # fmt: skip


def _session_terms(terms: EscrowTerms) -> SessionTerms:
    return SessionTerms(
        session_id_hash=hex_bytes(session_id_hash(terms.session_id)), payer=terms.payer, payee=NOBODY,
        max_amount=terms.max_amount, rate=terms.rate, fee_bps=terms.fee_bps, open_by_s=terms.open_by_s,
    )  # fmt: skip


def _refused(reason: str) -> Refusal:
    return Refusal(Code.INVALID_INPUT, "session:consent", f"The payment is not valid for this session: {reason}")


def _require_left(wanted: MicroUsdc, left: MicroUsdc, rate: MicroUsdc, period: str) -> None:
    """Refuse an amount of which a mandate leaves too little."""
    if wanted <= left:
        return
    left = max(left, NOTHING)
    shorter = f"Request at most {left // rate} s, or sign" if left >= rate > 0 else "Sign"
    message = (
        f"This may cost {usdc_text(wanted)} USDC, and the wallet's mandate leaves {usdc_text(left)} USDC {period}. "
        f"{shorter} a mandate with higher limits"
    )
    raise RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "session:mandate", message, left_micro=left))


def _not_held(reason: str | None, what: str) -> Refusal:
    message = f"The contract could not take the {what} from the wallet: {reason or 'refused'}"
    return Refusal(Code.INSUFFICIENT_CREDIT, "session:fundsNotHeld", message)
