"""One purchase as a context manager: requests a session, waits until it is LIVE, and ends what it began."""

import logging
from types import TracebackType
from typing import Final, Self

from sightline_client._sync.dispatch import dispatch_within
from sightline_client._sync.frames import Frames, fetch_next
from sightline_client._sync.receipt import Receipt
from sightline_client._sync.resources import Sessions
from sightline_client._sync.transport import Transport
from sightline_client.clip import Clip
from sightline_client.errors import (
    ABOVE_MAXIMUM,
    CLIP_NOT_RECEIVED,
    ApiError,
    ConflictError,
    EndNotConfirmedError,
    FrameNotAvailableError,
    InvalidArgumentError,
    InvalidStateError,
    MaxChargeError,
    NotReachedError,
    OutcomeUnknownError,
    SessionOverError,
    SightlineError,
    ViewNotEnteredError,
    first_sentence,
    is_suspension,
)
from sightline_client.escrow import Payment, TypedDataSigner, sign_payment
from sightline_client.frame import Frame
from sightline_client.funds import shortage
from sightline_client.interrupts import ViewInterrupts, uninterrupted
from sightline_client.models import EndReason, OperatorMessage, Quote, Session, Wallet
from sightline_client.money import require_whole_micro_usdc
from sightline_client.runtime import INTERRUPTED_SESSION, REQUESTED_SESSION, sync_finish, sync_sleep
from sightline_client.signers import require_wallet
from sightline_client.wire import given

LOG: Final = logging.getLogger("sightline_client")
POLL_S: Final = 0.5
EXPECTED_ENDS: Final = (EndReason.MAX_DURATION, EndReason.CONSUMER_ENDED)
"""The ends of a view that its own side agreed to or made."""
FINISH_S: Final = 90.0
"""Longest time that leaving a view takes when the server does not answer."""


class View:
    """A session that lasts as long as the block.

    Entering requests the session, has an operator dispatched, and waits until it is LIVE. Leaving ends the session;
    if it is not LIVE yet, it is cancelled. This also happens when the block fails or is cancelled, and a second Ctrl-C
    does not stop it: it counts after the end. One that comes more than 5 s later gives up, with EndNotConfirmedError.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        lat: float,
        lng: float,
        seconds: int,
        quote: Quote | None,
        max_charge: int | None,
        radius_meters: int | None,
        instructions: str | None,
        operator_wait_s: float,
        lease_s: int | None,
        payer: TypedDataSigner | None,
        payment: Payment | None,
        require_coverage: bool,
        idempotency_key: str | None,
    ) -> None:
        require_whole_micro_usdc("max_charge", max_charge)
        if payer is not None:
            require_wallet(payer)
        self._transport = transport
        self._sessions = Sessions(transport)
        self._place = (lat, lng)
        self._seconds = seconds
        self._max_charge = max_charge
        self._radius_meters = radius_meters
        self._instructions = instructions
        self._operator_wait_s = operator_wait_s
        self._lease_s = lease_s
        self._requires_coverage = require_coverage
        self._key = idempotency_key or transport.new_key()
        self._quote = quote
        self._payer = payer
        self._payment = payment
        self._session: Session | None = None
        self._is_requested = False
        self._interrupts = ViewInterrupts()

    @property
    def session(self) -> Session:
        """The session as it was last read."""
        if self._session is None:
            raise ViewNotEnteredError
        return self._session

    @property
    def is_entered(self) -> bool:
        """Whether the view has a session."""
        return self._session is not None

    @property
    def is_requested(self) -> bool:
        """Whether the request for a session was sent, also if its answer is not known."""
        return self._is_requested

    @property
    def quote(self) -> Quote | None:
        """The quote that set the rate."""
        return self._quote

    def __enter__(self) -> Self:
        if self._session is not None:
            raise InvalidArgumentError("This view was entered before. Make another one: `sl.view(...)`.")
        self._check_price()
        wallet = self._read_wallet()
        try:
            self._interrupts.open()
            self._session = self._create()
            self._note_request(self.session)
            self._warn_of_funds(wallet)
            self._dispatch(is_first=True)
            self._await_live()
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    @staticmethod
    def _note_request(session: Session) -> None:
        """Say what was requested, and its price, before an operator films."""
        said = "Session %s is requested. It costs %s."
        LOG.info(said, session.id, session.price_text, extra={REQUESTED_SESSION: session})

    def _read_wallet(self) -> Wallet | None:
        """Read the wallet that pays; None if it signs the payment, or the credential may not read it."""
        if self._payer is not None or self._payment is not None:
            return None
        try:
            return self._transport.get(Wallet, "/wallet")
        except ApiError:
            return None

    def _warn_of_funds(self, wallet: Wallet | None) -> None:
        """Say before an operator films that the wallet does not cover the view. With escrow its amount is reserved."""
        said = None if wallet is None else shortage(wallet, self.session.hold_micro_usdc)
        if said is not None and self.session.funds_state is None:
            LOG.warning(said)

    @uninterrupted
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    @uninterrupted
    def _give_up(self, error: BaseException) -> None:
        """End what was requested before `error`. Errors in which the request had no effect leave nothing to end."""
        may_exist = self._is_requested and (not isinstance(error, SightlineError) or _may_have_created(error))
        if self._session is not None or may_exist:
            self._leave(error)
        else:
            self._interrupts.close(delivers=True)

    @uninterrupted
    def _leave(self, error: BaseException | None) -> None:
        """End the session. A SIGINT that arrives meanwhile is handled afterwards, unless `error` is one already."""
        self._interrupts.begin_end()
        if self._session is not None and isinstance(error, NotReachedError | OutcomeUnknownError):
            self._transport.note_end(self._session.id)
        is_ended = False
        try:
            self._finish()
            is_ended = True
            if self._session is not None and self._interrupts.is_interrupted:
                # A warning, because the traceback of a KeyboardInterrupt does not say it.
                LOG.warning(
                    "Session %s is %s, after %d s. It costs %s USDC.",
                    self._session.id, self._session.state, self._session.clean_seconds,
                    self._session.charged_micro_usdc.usdc, extra={INTERRUPTED_SESSION: self._session.id},
                )  # fmt: skip
        finally:
            self._interrupts.close(delivers=is_ended and (error is None or isinstance(error, Exception)))

    def _check_price(self) -> None:
        if self._quote is None:
            lat, lng = self._place
            query = given(lat=lat, lng=lng, durationSeconds=self._seconds)
            self._quote = self._transport.get(Quote, "/pricing/quote", query)
        self._quote.require_within(self._max_charge, self._seconds)

    def _create(self) -> Session:
        assert self._quote is not None
        payment = self._sign(self._quote)
        self._is_requested = True
        return self._sessions.create(
            *self._place,
            seconds=self._seconds,
            radius_meters=self._radius_meters,
            quote_id=self._quote.quote_id,
            instructions=self._instructions,
            consumer_lease_seconds=self._lease_s,
            require_coverage=self._requires_coverage,
            max_hold_micro_usdc=self._max_charge,
            payment=payment,
            idempotency_key=self._key,
        )

    def _sign(self, quote: Quote) -> Payment | None:
        if self._payer is None:
            return self._payment
        return sign_payment(self._sessions.terms(quote.quote_id, seconds=self._seconds), self._payer)

    def _dispatch(self, *, is_first: bool = False) -> None:
        self._session = dispatch_within(
            self._sessions,
            self.session,
            self._place,
            self._operator_wait_s,
            self._quote,
            says_unseen=is_first and self._requires_coverage,
        )

    def _await_live(self) -> None:
        while (self.refresh()).state in ("REQUESTED", "ASSIGNED"):
            if self.session.state == "REQUESTED":
                LOG.warning(
                    "The operator of session %s declined or did not start. Asking for another.", self.session.id
                )
                self._dispatch()
            else:
                sync_sleep(POLL_S)
        if self.session.state.is_over:
            raise SessionOverError(self.session.id, self.session.state, self.session.end_reason)

    def refresh(self) -> Session:
        """Read the session again."""
        self._session = self._sessions.get(self.session.id)
        return self._session

    def frame(self, *, width: int | None = None, quality: int | None = None, signed: bool | None = None) -> Frame:
        """Fetch the newest frame; waits until the first one is decoded.

        Raises:
            SessionOverError: The view is over: its block was left, or the session ended by itself.
        """
        for frame in self.frames(width=width, quality=quality, signed=signed):
            return frame
        raise self._over()

    def frames(
        self,
        *,
        fps: float | None = None,
        width: int | None = None,
        quality: int | None = None,
        signed: bool | None = None,
        proved: bool = False,
    ) -> Frames:
        """Iterate over new frames, each once, until the session is over. It may be called before the view is entered.

        The loop ends when the agreed time is over, or when the view was ended by its own side. While the server is
        away it waits as long as the `budget_s` of the client's retry policy, 60 s by default.

        Args:
            fps: At most this many frames a second; frames in between are skipped. Default: as fast as the caller
                reads, up to the server's limit.
            width: Width in pixels; pictures are never enlarged. Default: the source's width.
            quality: JPEG quality, 1 to 95; default 80.
            signed: Whether the pictures carry signed content credentials (C2PA), which `sightline verify` checks. A
                server that does not sign frames refuses this.
            proved: Leave out frames that are not `is_proved`: those of a paused meter, or outside of the geofence.

        Raises:
            InvalidArgumentError: fps is not above 0, or width below 1. The call raises it, not the iteration.
            SessionOverError: The iteration raises it when the session ended for another reason (`end_reason`), such as
                OPERATOR_ENDED, MEDIA_LOST or GEOFENCE_EXIT.
        """

        def fetch(after: int | None) -> Frame | None:
            try:
                return fetch_next(self._transport, self.session.id, after, width=width, quality=quality, signed=signed)
            except InvalidStateError:
                session = self.refresh()
                if session.state.is_over and session.end_reason not in EXPECTED_ENDS:
                    raise self._over() from None
                raise

        return Frames(fetch, self.refresh, fps=fps, width=width, proved=proved)

    def clip(self, seconds: int = 10, *, signed: bool | None = None) -> Clip:
        """Fetch the last seconds as a video file; waits until the first video arrives. See `sessions.clip`.

        Raises:
            SessionOverError: The view is over: its block was left, or the session ended by itself.
        """
        while True:
            try:
                return self._sessions.clip(self.session.id, seconds, signed=signed)
            except FrameNotAvailableError as error:
                if error.detail != CLIP_NOT_RECEIVED:
                    raise
                delay_s = float(error.retry_after_s or 1)
            except InvalidStateError as error:
                self.refresh()
                raise self._over() from error
            sync_sleep(delay_s)

    def _over(self) -> SessionOverError:
        session = self.session
        return SessionOverError(session.id, session.state, session.end_reason, was_live=session.started_at is not None)

    def extend(self, seconds: int, *, max_charge: int | None = None) -> Session:
        """Add seconds to the longest duration of the view, paid as the view is.

        Args:
            max_charge: Highest charge of the whole view in micro-USDC; default: that of the view.

        Raises:
            MaxChargeError: The view could cost more than that. Nothing was added.
        """
        payment = self._payment
        if self._payer is not None:
            payment = sign_payment(self._sessions.extension_terms(self.session.id, seconds=seconds), self._payer)
        limit = self._max_charge if max_charge is None else max_charge
        try:
            self._session = self._sessions.extend(self.session.id, seconds, max_hold_micro_usdc=limit, payment=payment)
        except ConflictError as error:
            if error.detail != ABOVE_MAXIMUM or limit is None:
                raise
            rate, hold = self.session.rate_per_second_micro_usdc, self.session.hold_micro_usdc
            raise MaxChargeError(hold + rate * seconds, limit, max(0, limit - hold) // rate) from error
        return self._session

    def tell(self, text: str) -> OperatorMessage:
        """Tell the operator something in a line, such as "turn left". Returns the message; see `sessions.message`."""
        self._session = self._sessions.message(self.session.id, text)
        return self._session.messages[-1]

    @uninterrupted
    def end(self) -> Session:
        """End the session before the block is left."""
        self._leave(None)
        return self.session

    def receipt(self, *, wait_s: float = 120.0) -> Receipt:
        """Wait until the payment is CONFIRMED, and return the receipt. Call it after the session is over.

        A session without a charge has no payment to wait for: the server settles such sessions in a batch, up to ten
        minutes later.

        Raises:
            ReceiptError: The session is not over, the payment was not confirmed within `wait_s`, or the wallet does not
                cover it (`refused_for`).
        """
        self.refresh()
        return self._sessions.settled_receipt(self.session.id, wait_s=wait_s)

    def _finish(self) -> None:
        """End or cancel the session, although the caller is cancelled.

        Raises:
            EndNotConfirmedError: The server did not confirm the end.
        """
        if self._session is not None and self._session.state.is_over:
            return
        try:
            sync_finish(self._end_what_was_created, FINISH_S)
        except BaseException as error:
            if is_suspension(error):
                return  # the service ends the sessions of a workspace that it suspends, and refuses its calls
            if self._session is not None and self._session.state.is_over:
                raise  # the task was cancelled, and the session has ended nevertheless
            session_id = None if self._session is None else self._session.id
            raise EndNotConfirmedError(session_id, self._key, first_sentence(error)) from error

    def _end_what_was_created(self) -> None:
        if self._session is None:
            self._session = self._create()  # the same key: tells which session the lost call created
        self._end()

    def _end(self) -> None:
        while not (self.refresh()).state.is_over:
            try:
                if self.session.state == "REQUESTED":
                    self._session = self._sessions.cancel(self.session.id, idempotency_key=f"{self._key}-cancel")
                else:
                    self._session = self._sessions.end(self.session.id, idempotency_key=f"{self._key}-end")
            except InvalidStateError:
                continue  # the state changed in between: decide again


def _may_have_created(error: SightlineError) -> bool:
    return isinstance(error, OutcomeUnknownError)
