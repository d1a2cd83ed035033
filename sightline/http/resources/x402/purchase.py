"""Sale of a view for a signed payment: quotes, checks, guest workspace, key, session, dispatch.

Every id follows from the payment, so each step can be repeated: a repeat of the payment goes on where the last one
ended, and finds the view that it made (ADR 0211).
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, final
from weakref import WeakValueDictionary

import trio
from msgspec import Struct

from sightline.actors.dispatch.find_operator import NO_COVERING_OPERATOR
from sightline.actors.types import Caller, NewSession, NewWorkspace, PaidSession
from sightline.domain.addresses import shown_address
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.operator.model import WorkspaceRole
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import EndReason, SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.units import DAY_MS, SECOND_MS, MicroUsdc
from sightline.domain.value import Value
from sightline.http.pipeline.errors import ApiError
from sightline.http.schemas.x402 import BuyViewBody, PaymentSignature, payment_required
from sightline.http.services import Services
from sightline.ports.escrow import ExactPayment
from sightline.ports.store import IdempotencyKey

VIEWS_PATH: Final = "/api/v1/x402/views"
WAIT_S: Final = 60
"""How long a view waits for an operator, after one has declined it or was silent."""
PAYING_S: Final = 60
"""How long a client may take to sign, beyond what its payment must be valid for."""
QUOTED_MS: Final = 120 * SECOND_MS
RADIUS_M: Final = 500
ATTEMPTS_MAX: Final = 8
"""How often one payment may be tried while there is no operator."""
KEY_AFTER_END_MS: Final = DAY_MS
"""How long a view's key reads it after its latest end."""
WALLET_WAIT_S: Final = 10.0
"""How long a purchase waits until the watcher has read the payer's balance."""
WALLET_LOOK_S: Final = 0.1

PAYMENT_USED: Final = Refusal(Code.CONFLICT, "x402:paymentUsed", "The payment was used. Ask again and sign a new one")


@final
class _Turn(Struct, eq=False, weakref=True):
    """Lets the purchases of one payer take turns at this server."""

    lock: trio.Lock


@final
class Purchase(Value, kw_only=True):
    """A view that was bought, and its key."""

    status: SessionStatus
    payer: str
    key: str


@final
class ViewSales:
    """Sells views."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._keys = services.view_keys
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    async def ask(self, body: BuyViewBody, url: str, *, refused: str | None = None) -> NoReturn:
        """Answer 402 with a price.

        Args:
            refused: Why a payment is not taken; None: none was sent.

        Raises:
            ApiError: PAYMENT_REQUIRED.
            RefusedError: UNAVAILABLE while no operator covers the place; the price is over the contract's limits.
        """
        asset = self._broker.escrow.exact_asset
        await self._require_operator(body)
        rate = await self._broker.pricing.rate_for_stranger(body.lat, body.lng)
        amount = MicroUsdc(rate * body.max_duration_seconds)
        self._broker.require_within_cap(rate, amount)
        expires_at_ms = self._services.clock.now_ms() + QUOTED_MS
        open_quote = f"{expires_at_ms}.{rate}.{self._services.ids.token_bytes(8).hex()}"
        header = payment_required(
            asset, amount, f"{open_quote}.{self._seal(open_quote, body)}", url=url,
            timeout_s=self._broker.escrow.start_by_s(WAIT_S) + PAYING_S, error=refused,
        )  # fmt: skip
        raise ApiError(
            Code.PAYMENT_REQUIRED,
            None if refused is None else "x402:payment",
            f"Pay {amount} micro-USDC as the header PAYMENT-REQUIRED says (x402)"
            if refused is None
            else f"The payment is not taken: {refused}",
            headers=[(b"payment-required", header.encode("ascii"))],
        )

    async def buy(self, body: BuyViewBody, url: str, signed: PaymentSignature) -> Purchase:
        """Make the view that a payment pays for, or find the one that it made.

        Raises:
            ApiError: PAYMENT_REQUIRED: the payment is not taken.
            RefusedError: CONFLICT: it was used. UNAVAILABLE: there is no operator; nothing moves.
            UnavailableError, OutcomeUnknownError: A repeat with the same payment is safe.
        """
        payment, quote_id = signed.payment(), signed.accepted.extra.quote_id
        for attempt in range(ATTEMPTS_MAX):
            session_id = self._keys.session_of(payment.payer, payment.transfer.nonce, attempt)
            known = await self._find(session_id, payment.payer)
            rate = None
            if known is None:
                rate, refused = await self._check(body, signed, payment)
                if rate is None:
                    await self.ask(body, url, refused=refused)
            elif _was_given_up(known):
                continue
            # Only what was checked takes a turn: others could hold up a payer whose address they send.
            turn = self._turns.setdefault(payment.payer, _Turn(trio.Lock()))
            async with turn.lock:
                known = await self._find(session_id, payment.payer)
                if known is None:
                    assert rate is not None, "sessions are not deleted within seconds"
                    await self._prepare(session_id, quote_id, body, payment)
                    known = await self._create(session_id, quote_id, body, rate, payment)
                elif _was_given_up(known):
                    raise RefusedError(NO_COVERING_OPERATOR)  # by the same payment's other request, just now
                key = await self._keys.find(session_id, quote_id, payment.payer)
                if key is None:
                    raise RefusedError(PAYMENT_USED)
                return Purchase(status=await self._dispatched(known), payer=shown_address(payment.payer), key=key)
        raise RefusedError(PAYMENT_USED)

    async def _check(
        self, body: BuyViewBody, signed: PaymentSignature, payment: ExactPayment
    ) -> tuple[MicroUsdc | None, str]:
        """Return the rate that a payment pays; None, and why, if it is not taken."""
        rate = self._quoted_rate(body, signed.accepted.extra.quote_id)
        if rate is None:
            return None, "the quote is not one of this service for this place and duration, or has expired"
        asset = self._broker.escrow.exact_asset
        refused = signed.why_other(asset, rate * body.max_duration_seconds)
        refused = refused or await self._broker.escrow.why_unpayable(payment, WAIT_S)
        return (rate, "") if refused is None else (None, refused)

    def _seal(self, open_quote: str, body: BuyViewBody) -> str:
        return self._keys.seal(f"{open_quote} {body.lat} {body.lng} {body.max_duration_seconds}")

    def _quoted_rate(self, body: BuyViewBody, quote_id: str) -> MicroUsdc | None:
        """Return the rate of a quote of ours that has not expired."""
        open_quote, _, seal = quote_id.rpartition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(open_quote, body).encode()):
            return None
        expires_at_ms, rate, _ = open_quote.split(".")
        return MicroUsdc(int(rate)) if self._services.clock.now_ms() < int(expires_at_ms) else None

    async def _require_operator(self, body: BuyViewBody) -> None:
        if not await self._broker.coverage.has_operator(body.lat, body.lng):
            raise RefusedError(NO_COVERING_OPERATOR)

    async def _find(self, session_id: str, payer: str) -> SessionStatus | None:
        try:
            return (await self._broker.reads.read_session(session_id, self._keys.workspace_of(payer))).value
        except RefusedError as refused:
            if refused.refusal.code is not Code.SESSION_NOT_FOUND:
                raise
            return None

    async def _prepare(self, session_id: str, quote_id: str, body: BuyViewBody, payment: ExactPayment) -> None:
        """Make what a session needs: the payer's guest workspace, the reading of its wallet, and the view's key."""
        await self._require_operator(body)
        workspace_id, owner = self._keys.workspace_of(payment.payer), shown_address(payment.payer)
        try:
            await self._broker.reads.read_workspace(workspace_id)
        except RefusedError as refused:
            if refused.refusal.code is not Code.NOT_FOUND:
                raise
            await self._broker.create_workspace(_guest(workspace_id, owner))
        await self._await_wallet(workspace_id, payment.amount)
        latest_s = self._broker.escrow.start_by_s(WAIT_S) + body.max_duration_seconds
        ends_at_ms = self._services.clock.now_ms() + latest_s * SECOND_MS + KEY_AFTER_END_MS
        if not await self._keys.mint(session_id, quote_id, payer=owner, ends_at_ms=ends_at_ms):
            raise RefusedError(PAYMENT_USED)

    async def _await_wallet(self, workspace_id: str, amount: MicroUsdc) -> None:
        """Wait until the ledger knows the balance that the chain has shown: reservations are made against it."""
        self._services.wake_watcher()
        with trio.move_on_after(WALLET_WAIT_S):
            while True:
                wallet = await self._services.ledger.wallet(workspace_id)
                if wallet is not None and wallet.balance_micro >= amount:
                    return
                await trio.sleep(WALLET_LOOK_S)
        raise UnavailableError("the payer's balance is not read yet; repeat the request with the same payment")

    async def _create(
        self, session_id: str, quote_id: str, body: BuyViewBody, rate: MicroUsdc, payment: ExactPayment
    ) -> SessionStatus:
        workspace_id = self._keys.workspace_of(payment.payer)
        once = IdempotencyKey(
            workspace_id=workspace_id, method="POST", path=VIEWS_PATH, key=session_id,
            body_hash=hashlib.sha256(quote_id.encode()).hexdigest(),
        )  # fmt: skip
        new = NewSession(
            lat=body.lat, lng=body.lng, max_duration_s=body.max_duration_seconds, wait_timeout_s=WAIT_S, quote_id=None,
            radius_m=RADIUS_M, instructions=None, metadata_json=None, requires_coverage=True,
            paid=PaidSession(session_id=session_id, rate=rate), consent=payment.consent(),
        )  # fmt: skip
        try:
            return (await self._broker.create_session(Caller(workspace_id=workspace_id, idempotency=once), new)).value
        except OutcomeUnknownError:
            # Another server may have taken the same payment at the same time: the session is the same.
            known = await self._find(session_id, payment.payer)
            if known is None:
                raise
            return known

    async def _dispatched(self, view: SessionStatus) -> SessionStatus:
        """Assign an operator to a view that has none. Without one it is cancelled, and its payment can be used again.

        Raises:
            RefusedError: UNAVAILABLE.
        """
        if view.state is not SessionState.REQUESTED:
            return view
        caller = Caller(workspace_id=view.terms.consumer_workspace_id)
        try:
            return (await self._broker.dispatch(view.terms.id, caller)).value
        except RefusedError as refused:
            try:
                await self._broker.cancel(view.terms.id, caller)
            except RefusedError:
                # An operator has accepted it meanwhile, or another server has dispatched it.
                now = (await self._broker.reads.read_session(view.terms.id, caller.workspace_id)).value
                if now.state in {SessionState.ASSIGNED, SessionState.LIVE}:
                    return now
            raise refused


def _was_given_up(view: SessionStatus) -> bool:
    """Whether a view was cancelled because there was no operator: nothing of its payment was used."""
    is_cancelled = view.end_reason is EndReason.CONSUMER_CANCELLED
    return view.state is SessionState.CANCELLED and is_cancelled and view.assigned_at_ms is None


def _guest(workspace_id: str, owner: str) -> Callable[[], Awaitable[NewWorkspace]]:
    async def prove() -> NewWorkspace:
        await trio.lowlevel.checkpoint()
        return NewWorkspace(
            id=workspace_id, wallet_address=owner, slug=f"guest-{workspace_id.replace('-', '')[:26]}",
            name=f"Guest {owner}", roles=(WorkspaceRole.CONSUMER,),
        )  # fmt: skip

    return prove
