"""What a payer signs before a session, and what the meter has signed about it."""

from contextlib import suppress
from typing import Any, Final, NamedTuple, final

from sightline.actors.deps import Deps
from sightline.actors.refusals import NOT_PARTY
from sightline.actors.service.look_up import LookUp
from sightline.actors.service.pricing import Pricing
from sightline.actors.types import Answer, Caller
from sightline.domain.errors import ChainUnavailableError, RefusedError
from sightline.domain.escrow import ConsentKind, PayerConsent, SignedMandate
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.machine import not_live_yet, why_not_extended
from sightline.domain.session.model import Live, Session, SessionExtension, SessionState
from sightline.domain.session.status import meter_status, parties_of
from sightline.domain.units import SECOND_MS, MicroUsdc
from sightline.ports.escrow import (
    AllowancePermit,
    Escrow,
    EscrowTerms,
    ExactAsset,
    ExactPayment,
    PermitTerms,
    SignedPermit,
    SignedStatement,
)

OPEN_FOR_MS: Final = 2 * 3_600 * SECOND_MS
"""How long the contract may open a hold after its terms were offered: the longest wait, and the start after it."""
EXTEND_FOR_MS: Final = 15 * 60 * SECOND_MS
"""How long the contract may add to a hold after the terms of an extension were offered."""
PERMIT_FOR_MS: Final = 3_600 * SECOND_MS
"""How long the token takes a permit after its terms were offered."""
NO_ESCROW: Final = Refusal(Code.NOT_FOUND, "session:escrow", "This service does not hold payments in escrow")
NO_MANDATE: Final = Refusal(Code.NOT_FOUND, "wallet:mandate", "The workspace has no mandate")
NO_HOLD: Final = Refusal(Code.NOT_FOUND, "session:hold", "The session has no open hold")


class Offer(NamedTuple):
    """The terms of a session that a payer may sign, as typed data for each kind of consent."""

    terms: EscrowTerms
    typed_data: dict[ConsentKind, dict[str, Any]]


class MandateToday(NamedTuple):
    """A stored mandate, and how far it is used."""

    mandate: SignedMandate
    held_today: MicroUsdc | None
    """What the contract has held under it on this UTC day; None while the chain does not answer."""


class ExtensionOffer(NamedTuple):
    """The terms of an extension that a payer may sign, as typed data for each kind of consent."""

    session: Session
    seconds: int
    amount: MicroUsdc
    extend_by_s: int
    typed_data: dict[ConsentKind, dict[str, Any]]


@final
class EscrowService:
    """Offers terms and signed statements."""

    def __init__(self, deps: Deps, look_up: LookUp, pricing: Pricing) -> None:
        self._deps = deps
        self._look_up = look_up
        self._pricing = pricing

    async def offer(self, caller: Caller, quote_id: str, max_duration_s: int) -> Answer[Offer]:
        """Return what the payer of the caller's workspace signs for a session at a quoted rate.

        Raises:
            RefusedError: No escrow; or the quote is unknown, used, expired, or for a shorter session.
        """
        escrow = self._require_escrow()
        workspace = await self._look_up.require_workspace(caller.workspace_id)
        quote = await self._pricing.require_quote(quote_id, caller.workspace_id, max_duration_s)
        now_ms = self._deps.clock.now_ms()
        terms = EscrowTerms(
            session_id=quote.id,
            payer=workspace.wallet_address.lower(),
            max_amount=MicroUsdc(quote.price.rate * max_duration_s),
            rate=quote.price.rate,
            fee_bps=self._deps.limits.platform_fee_bps,
            open_by_s=(now_ms + OPEN_FOR_MS) // SECOND_MS,
        )
        return Answer(Offer(terms, escrow.typed_data(terms)), now_ms)

    async def offer_extension(self, caller: Caller, session_id: str, seconds: int) -> Answer[ExtensionOffer]:
        """Return what the payer of a LIVE session signs to extend it.

        Raises:
            RefusedError: No escrow, the caller is not the consumer, the session is not LIVE, or it would be too long.
            UnavailableError: The session's hold is in no block now.
        """
        escrow, (session, amount) = self._require_escrow(), await self._extendable(caller, session_id, seconds)
        now_ms = self._deps.clock.now_ms()
        extend_by_s = (now_ms + EXTEND_FOR_MS) // SECOND_MS
        typed_data = await escrow.extension_typed_data(session, amount, extend_by_s)
        return Answer(ExtensionOffer(session, seconds, amount, extend_by_s, typed_data), now_ms)

    async def require_extendable(self, caller: Caller, session_id: str, seconds: int) -> Answer[MicroUsdc]:
        """Return what an extension costs.

        Raises:
            RefusedError: As `offer_extension`.
        """
        self._require_escrow()
        _, amount = await self._extendable(caller, session_id, seconds)
        return Answer(amount, self._deps.clock.now_ms())

    async def _extendable(self, caller: Caller, session_id: str, seconds: int) -> tuple[Session, MicroUsdc]:
        session = await self._look_up.require_session(session_id)
        if session.terms.consumer_workspace_id != caller.workspace_id:
            raise RefusedError(NOT_PARTY)
        if not isinstance(session.phase, Live):
            raise RefusedError(not_live_yet(session))
        amount = MicroUsdc(session.terms.rate * seconds)
        refusal = why_not_extended(session, SessionExtension(id="", seconds=seconds, amount=amount))
        if refusal is not None:
            raise RefusedError(refusal)
        return session, amount

    @property
    def exact_asset(self) -> ExactAsset:
        """What is asked of a client of x402's scheme exact.

        Raises:
            RefusedError: No escrow.
        """
        return self._require_escrow().exact_asset

    async def why_unpayable(self, payment: ExactPayment, wait_s: int) -> str | None:
        """Return why a payment can not pay for a session that waits this long for an operator; None if it can."""
        now_s = self._deps.clock.now_ms() // SECOND_MS
        if payment.valid_before_s < now_s + self.start_by_s(wait_s):
            return f"validBefore must be at least {self.start_by_s(wait_s)} seconds from now"
        return await self._require_escrow().why_unpayable(payment)

    def start_by_s(self, wait_s: int) -> int:
        """Return the seconds until a session starts at the latest that waits this long for an operator."""
        return wait_s + self._deps.limits.session.start_timeout_ms // SECOND_MS

    async def statement(self, session_id: str, workspace_id: str) -> Answer[SignedStatement]:
        """Return the meter's signed reading of a session: final once it has ended.

        Raises:
            RefusedError: No escrow, not a party, or no open hold.
        """
        escrow = self._require_escrow()
        session = await self._look_up.require_session(session_id)
        if not parties_of(session, workspace_id):
            raise RefusedError(NOT_PARTY)
        now_ms = self._deps.clock.now_ms()
        meter = meter_status(session, now_ms, self._deps.limits.session)
        is_final = session.state is SessionState.ENDED
        if not is_final and session.state is not SessionState.LIVE:
            raise RefusedError(NO_HOLD)
        statement = await escrow.statement(
            session_id, clean_seconds=meter.clean_seconds, head_hash=meter.ended_head_hash or meter.head_hash,
            is_final=is_final,
        )  # fmt: skip
        if statement is None:
            raise RefusedError(NO_HOLD)
        return Answer(statement, now_ms)

    async def stored_consent(self, workspace_id: str) -> PayerConsent | None:
        """Return the consent by the workspace's stored mandate; None without one, or without escrow."""
        if self._deps.escrow is None:
            return None
        mandate = await self._deps.escrow.mandates.mandate(workspace_id)
        return None if mandate is None else PayerConsent(kind=ConsentKind.MANDATE, open_by_s=0, mandate=mandate)

    async def mandate(self, workspace_id: str) -> Answer[MandateToday]:
        """Return the workspace's stored mandate.

        Raises:
            RefusedError: No escrow, or no mandate.
        """
        mandate = await self._require_escrow().mandates.mandate(workspace_id)
        if mandate is None:
            raise RefusedError(NO_MANDATE)
        return await self._today(mandate)

    async def _today(self, mandate: SignedMandate) -> Answer[MandateToday]:
        held_today = None
        with suppress(ChainUnavailableError):
            held_today = await self._require_escrow().held_today(mandate)
        return Answer(MandateToday(mandate, held_today), self._deps.clock.now_ms())

    async def keep_mandate(self, workspace_id: str, mandate: SignedMandate) -> Answer[MandateToday]:
        """Store a mandate of the workspace's wallet, under which it pays for sessions without a payment of their own.

        Raises:
            RefusedError: No escrow, or the mandate is not valid.
        """
        escrow = self._require_escrow()
        workspace = await self._look_up.require_workspace(workspace_id)
        await escrow.require_mandate(mandate, workspace.wallet_address)
        await escrow.mandates.keep(workspace_id, mandate, now_ms=self._deps.clock.now_ms())
        return await self._today(mandate)

    async def drop_mandate(self, workspace_id: str) -> Answer[MandateToday]:
        """Forget the workspace's mandate, and return it."""
        answer = await self.mandate(workspace_id)
        await self._require_escrow().mandates.drop(workspace_id)
        return answer

    async def permit_terms(self, workspace_id: str, amount: MicroUsdc) -> Answer[PermitTerms]:
        """Return what the workspace's wallet signs to give the contract an allowance without gas.

        Raises:
            RefusedError: No escrow, or the token has no permit.
        """
        escrow = self._require_escrow()
        workspace = await self._look_up.require_workspace(workspace_id)
        now_ms = self._deps.clock.now_ms()
        deadline_s = (now_ms + PERMIT_FOR_MS) // SECOND_MS
        return Answer(await escrow.permit_terms(workspace.wallet_address, amount, deadline_s), now_ms)

    async def relay_permit(self, workspace_id: str, permit: SignedPermit) -> Answer[AllowancePermit]:
        """Send a permit of the workspace's wallet, and return it when it is in a block.

        Raises:
            RefusedError: No escrow, or the permit is not valid.
            UnavailableError: It is not in a block yet.
        """
        escrow = self._require_escrow()
        workspace = await self._look_up.require_workspace(workspace_id)
        relayed = await escrow.relay_permit(permit, workspace.wallet_address)
        return Answer(relayed, self._deps.clock.now_ms())

    def _require_escrow(self) -> Escrow:
        if self._deps.escrow is None:
            raise RefusedError(NO_ESCROW)
        return self._deps.escrow
