"""Structured answers of the MCP tools. Their JSON schemas are the output schemas that hosts read."""

from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from sightline_client.models import (
    KeyLimitsToday,
    Quote,
    Session,
    SessionState,
    SettlementState,
    StoredMandate,
    Wallet,
)
from sightline_client.models.base import Time
from sightline_client.money import MicroUsdc, usdc
from sightline_client.runtime import SECONDS_MAX
from sightline_client.wording import LACKS

ANOTHER_VIEW: Final = "For another view call check_place."
NEXT_STEP: Final = {
    SessionState.ASSIGNED: "An operator is on the way. Call get_session until the state is LIVE, or cancel_request.",
    SessionState.LIVE: "Call get_frame. Call end_session when you have seen enough: the meter runs until then.",
    SessionState.ENDED: f"It is over. verify_receipt checks charge and payment. {ANOTHER_VIEW}",
    SessionState.CANCELLED: f"It is over. {ANOTHER_VIEW}",
    SessionState.EXPIRED: f"It is over. {ANOTHER_VIEW}",
}
NOBODY_THERE: Final = (
    "No operator is free at this place now. request_view waits up to 20 s for one, and costs nothing if none comes."
)
YOURS_RUNS_THERE: Final = (
    "Your own view {session_id} has the operator of this place, so nobody else is free there. Call get_session or "
    "get_frame with it, or end_session before you ask for another view."
)
TOO_LONG: Final = (
    "Funds and limits pay for {seconds} s. Call check_place with at most that many seconds, or tell the user what the "
    "tool wallet shows."
)
UNFUNDED: Final = (
    "Funds and limits pay for no second of a view. Tell the user: the tool wallet shows balance, allowance and limits."
)
VIEW_NEXT: Final = (
    "Call request_view with this quoteId, the same lat, lng and seconds, and a max_charge_usdc of at least priceUsdc "
    "that the user agrees to."
)
CLIP_NEXT: Final = (
    "Give the link to the user, and read it soon: the file has the last seconds before it is read. To look yourself, "
    "call get_frame. The meter runs until end_session."
)
LOOK_AFTER: Final = (
    "Call get_frame with wait_seconds 5 to see what changed. The meter runs until end_session. get_session says "
    "whether the message was shown."
)
NOTHING_ADDED: Final = "Nothing was added: the view has {seconds} s from its start already. Ask for more in all."
ADDED: Final = "Added {more} s: the view has {seconds} s from its start now."
NEW_QUOTE: Final = (
    "Call check_place with the same place and seconds, and request_view with its quoteId. Nothing was requested."
)
NO_MANDATE: Final = (
    "This service holds the amount of a view before it starts, and the workspace has no mandate under which its API "
    "key may pay. Ask the user to run `sightline mandate --per-session 1 --per-day 10` with the wallet of the "
    "workspace in SIGHTLINE_WALLET_KEY."
)
VERIFY_AGAIN: Final = "The payment is not confirmed yet, which takes seconds. Call verify_receipt again."
UNPAID: Final = (
    "The payment was refused: the payer's {lacks} does not cover it. Tell the user: the page Wallet of the service's "
    "console, or `sightline wallet`, shows what is missing. When it covers the charge, the view is paid by "
    "itself. Until then the payer gets no further view."
)

Usdc: TypeAlias = Annotated[str, Field(description="USDC as decimal text", examples=["0.07128"])]


class Answer(BaseModel):
    """Base of the answers: names in camelCase, as in the HTTP interface."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class PlaceAnswer(Answer):
    """Price of a view of a place."""

    quote_id: Annotated[str, Field(description="Pass it to request_view; it is for one session")]
    price_usdc: Annotated[str, Field(description="Price of all seconds in USDC, the most that the view can cost")]
    rate_per_second_usdc: Usdc
    seconds: int
    available_operators: Annotated[int, Field(description="Operators who are free at the place now")]
    own_session_id: Annotated[str | None, Field(description="Your running view that has the operator of this place")]
    max_seconds_affordable: Annotated[
        int | None, Field(description="Seconds that funds and limits of this API key pay for; null: not known")
    ]
    expires_at: Time
    next_step: Annotated[str, Field(description="What to call next")]

    @classmethod
    def of(cls, quote: Quote, available: MicroUsdc | None) -> "PlaceAnswer":
        """Show a quote. `available` is the most that a view can cost, if that is known."""
        affordable_s = None if available is None else min(SECONDS_MAX, quote.affordable_s(available))
        return cls(
            quote_id=quote.quote_id,
            price_usdc=str(quote.estimated_total_micro_usdc.usdc),
            rate_per_second_usdc=str(quote.rate_per_second_micro_usdc.usdc),
            seconds=quote.duration_seconds,
            available_operators=quote.available_operators,
            own_session_id=quote.own_session_id,
            max_seconds_affordable=affordable_s,
            expires_at=quote.expires_at,
            next_step=_next_step(quote, affordable_s),
        )


def _next_step(quote: Quote, affordable_s: int | None) -> str:
    if quote.own_session_id is not None:
        return YOURS_RUNS_THERE.format(session_id=quote.own_session_id)
    if affordable_s is not None and affordable_s < quote.duration_seconds:
        return TOO_LONG.format(seconds=affordable_s) if affordable_s else UNFUNDED
    return VIEW_NEXT if quote.available_operators else NOBODY_THERE


class MessageAnswer(Answer):
    """A message to the operator of a session."""

    number: Annotated[int, Field(description="Counts the messages of the session from 1")]
    text: str
    shown: Annotated[
        bool, Field(description="Whether the operator's device has shown it; a plain camera never says so")
    ]


class SessionAnswer(Answer):
    """State and cost of a session."""

    session_id: str
    state: Annotated[str, Field(description="REQUESTED, ASSIGNED, LIVE, ENDED, CANCELLED or EXPIRED")]
    end_reason: str | None
    lat: float
    lng: float
    max_seconds: int
    clean_seconds: Annotated[int, Field(description="Seconds that are charged so far")]
    cost_so_far_usdc: Usdc
    charged_usdc: Annotated[str, Field(description="USDC as decimal text; 0 until the session is over")]
    hold_usdc: Annotated[str | None, Field(description="The most that it can cost, in USDC; null when it is over")]
    expires_at: Time | None
    messages: Annotated[list[MessageAnswer], Field(description="The newest 10 messages to the operator, oldest first")]
    next_step: Annotated[str | None, Field(description="What to call next")]

    @classmethod
    def of(cls, session: Session) -> "SessionAnswer":
        """Show a session, with the next step."""
        return cls(
            session_id=session.id,
            state=str(session.state),
            end_reason=session.end_reason,
            lat=session.requested_lat,
            lng=session.requested_lng,
            max_seconds=session.max_duration_seconds,
            clean_seconds=session.clean_seconds,
            cost_so_far_usdc=str(session.accrued_micro_usdc.usdc),
            charged_usdc=str(session.charged_micro_usdc.usdc),
            hold_usdc=None if session.state.is_over else str(session.hold_micro_usdc.usdc),
            expires_at=session.expires_at,
            messages=[MessageAnswer(number=sent.number, text=sent.text, shown=sent.shown) for sent in session.messages],
            next_step=NEXT_STEP.get(session.state),
        )


class ToldAnswer(Answer):
    """A message that was sent to the operator of a session."""

    session_id: str
    number: Annotated[int, Field(description="Counts the messages of the session from 1")]
    text: str
    sent_at: Time
    next_step: Annotated[str, Field(description="What to call next")]

    @classmethod
    def of(cls, session: Session) -> "ToldAnswer":
        """Show the newest message of a session."""
        sent = session.messages[-1]
        return cls(
            session_id=session.id, number=sent.number, text=sent.text, sent_at=sent.sent_at, next_step=LOOK_AFTER
        )


class SessionsAnswer(Answer):
    """Sessions, newest first."""

    sessions: list[SessionAnswer]


class WalletAnswer(Answer):
    """Funds of the workspace."""

    address: str
    balance_usdc: Usdc
    allowance_usdc: Usdc
    held_usdc: Usdc
    available_usdc: Annotated[str, Field(description="The most that a new view can cost, in USDC")]
    limit_per_session_usdc: Annotated[str | None, Field(description="Set by the wallet on the chain; null: none")]
    limit_per_day_usdc: str | None
    key_limit_per_session_usdc: Annotated[str | None, Field(description="Limit of this API key; null: none")]
    key_limit_per_day_usdc: str | None
    key_left_today_usdc: Annotated[str | None, Field(description="What the key's limit per day leaves today (UTC)")]
    mandate_per_session_usdc: Annotated[
        str | None, Field(description="Limit of the mandate under which the key pays in escrow; null: none")
    ] = None
    mandate_per_day_usdc: str | None = None
    mandate_left_today_usdc: Annotated[
        str | None,
        Field(description="What the mandate leaves today (UTC). What is held for a view counts, not its cost"),
    ] = None
    mandate_ends_at: Time | None = None
    next_step: Annotated[str | None, Field(description="What is missing, if the key cannot buy")] = None

    @classmethod
    def of(cls, wallet: Wallet) -> "WalletAnswer":
        """Show a wallet."""
        limits, key = wallet.limits, wallet.key_limits or KeyLimitsToday()
        return cls(
            address=wallet.wallet_address,
            balance_usdc=str(wallet.tracked_balance.usdc),
            allowance_usdc=str(wallet.tracked_allowance.usdc),
            held_usdc=str(wallet.held_micro_usdc.usdc),
            available_usdc=str(wallet.spendable_micro_usdc.usdc),
            limit_per_session_usdc=None if limits is None else str(limits.per_session_micro_usdc.usdc),
            limit_per_day_usdc=None if limits is None else str(limits.per_day_micro_usdc.usdc),
            key_limit_per_session_usdc=_amount(key.per_session_micro_usdc),
            key_limit_per_day_usdc=_amount(key.per_day_micro_usdc),
            key_left_today_usdc=_amount(key.left_today_micro_usdc),
        )

    def under(self, mandate: StoredMandate | None) -> "WalletAnswer":
        """Add the valid mandate of a workspace whose payments are held in escrow: without one, its key buys nothing."""
        if mandate is None:
            return self.model_copy(update={"available_usdc": "0", "next_step": NO_MANDATE})
        limits = (mandate.max_per_session, mandate.left_today, usdc(self.available_usdc))
        return self.model_copy(
            update={
                "available_usdc": str(MicroUsdc(min(limits)).usdc),
                "mandate_per_session_usdc": str(mandate.max_per_session.usdc),
                "mandate_per_day_usdc": str(mandate.max_per_day.usdc),
                "mandate_left_today_usdc": str(mandate.left_today.usdc),
                "mandate_ends_at": datetime.fromtimestamp(mandate.valid_until, UTC),
            }
        )


def _amount(amount: MicroUsdc | None) -> str | None:
    return None if amount is None else str(amount.usdc)


def payment_step(state: SettlementState, refused_for: str | None) -> str | None:
    """Say what to do for a payment that is not confirmed."""
    if state != SettlementState.PENDING:
        return None
    return UNPAID.format(lacks=LACKS[refused_for]) if refused_for in LACKS else VERIFY_AGAIN


class ReceiptAnswer(Answer):
    """What was verified of a session's charge and payment."""

    verified: Annotated[bool, Field(description="Whether every check was made and passed")]
    not_checked: Annotated[dict[str, str], Field(description="Reason by check that could not be made")]
    charged_usdc: Usdc
    seconds: int
    payment: Annotated[str, Field(description="NOT_READY, PENDING or CONFIRMED")]
    tx_hash: str | None
    next_step: Annotated[str | None, Field(description="What to call next")]
