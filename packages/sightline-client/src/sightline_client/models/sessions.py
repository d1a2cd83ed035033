"""Quotes, sessions and their meters."""

from typing import Annotated, Any

from pydantic import Field

from sightline_client.errors import MaxChargeError
from sightline_client.models.base import (
    CredentialKind,
    EndReason,
    FundsState,
    MeterState,
    Model,
    Money,
    PauseReason,
    Secret,
    SessionState,
    Time,
)
from sightline_client.money import MicroUsdc, require_whole_micro_usdc


class Quote(Model):
    """A price for a place and a duration. Valid for 120 s and for one session."""

    quote_id: str
    rate_per_second_micro_usdc: Money
    estimated_total_micro_usdc: Money
    supply_factor: float
    demand_factor: float
    corridor_multiplier: float
    base_rate_per_second_micro_usdc: Money
    expires_at: Time
    available_operators: int
    own_session_id: str | None = None
    """Where `available_operators` is 0: your own running session whose operator covers the point."""
    lat: float
    lng: float
    duration_seconds: int

    def affordable_s(self, budget: int) -> int:
        """Return the whole seconds that an amount in micro-USDC, such as `usdc("0.50")`, pays for at this rate.

        Raises:
            InvalidArgumentError: The amount is a float or another type, or negative.
        """
        require_whole_micro_usdc("budget", budget)
        return int(budget) // int(self.rate_per_second_micro_usdc)

    def require_within(self, max_charge: int | None, seconds: int) -> None:
        """Raise MaxChargeError if the price of the seconds is above `max_charge`, in micro-USDC."""
        price = int(self.rate_per_second_micro_usdc) * seconds
        if max_charge is not None and price > max_charge:
            is_plain = not isinstance(max_charge, MicroUsdc)
            raise MaxChargeError(price, int(max_charge), self.affordable_s(max_charge), is_plain=is_plain)


class EndedBy(Model):
    """The credential that ended a session: a wallet by its address, an API key by its id."""

    kind: CredentialKind
    id: str


class Delivery(Model):
    """Which pictures reached the consumer of a session, exact to some seconds."""

    first_at: Time
    last_at: Time
    longest_gap_ms: int = 0
    """Longest time between two pictures from the first to the last."""


class OperatorMessage(Model):
    """A short text of the consumer to the operator of a session."""

    number: int
    """Counts the messages of the session from 1."""
    sent_at: Time
    text: str
    shown: bool = False
    """Whether the operator's device has said that it has shown it."""


class Session(Model):
    """A session. The URLs are set while it is LIVE; repr() leaves them out, because they give access."""

    id: str
    consumer_workspace_id: str
    operator_workspace_id: str | None = None
    state: SessionState
    max_duration_seconds: int
    wait_timeout_seconds: int
    consumer_lease_seconds: int | None = None
    require_coverage: bool = False
    rate_per_second_micro_usdc: Money
    hold_micro_usdc: Money
    started_at: Time | None = None
    ended_at: Time | None = None
    clean_seconds: int
    charged_micro_usdc: Money
    accrued_micro_usdc: Money = MicroUsdc(0)
    """Cost so far; the charge is known at the end only. 0 from servers that do not have it."""
    settlement_tx_hash: str | None = None
    video_backend_ref: str | None = None
    created_at: Time
    requested_lat: float
    requested_lng: float
    authorized: bool
    whep_url: str | None = Field(default=None, repr=False)
    whip_url: str | None = Field(default=None, repr=False)
    end_reason: EndReason | None = None
    ended_by: EndedBy | None = None
    """Which credential of your workspace ended it; None if none did."""
    meter_state: MeterState | None = None
    pause_reason: PauseReason | None = None
    assigned_at: Time | None = None
    expires_at: Time | None = None
    radius_meters: int
    platform_fee_bps: int
    minimum_seconds: int = 0
    """Least clean seconds that are charged once position and video were proved together."""
    quote_id: str | None = None
    instructions: str | None = None
    metadata: dict[str, Any] | None = None
    funds_state: FundsState | None = None
    """Where the amount is, if the server holds it in escrow."""
    hold_tx_hash: str | None = None
    """The transaction by which the escrow contract took the hold."""
    messages: list[OperatorMessage] = Field(default_factory=list)
    """The consumer's newest 10 messages to the operator, oldest first, also after the end."""
    delivery: Delivery | None = None
    """None: no picture is known to have reached the consumer. An external media server does not name viewers."""

    @property
    def price_text(self) -> str:
        """What it costs at most, and for each minute, in words."""
        a_minute = MicroUsdc(self.rate_per_second_micro_usdc * 60)
        return f"at most {self.hold_micro_usdc.usdc} USDC, {a_minute.usdc} USDC a minute"

    @property
    def is_unpaid(self) -> bool:
        """Whether the session has ended with a charge for which no payment is confirmed."""
        return self.state == "ENDED" and self.charged_micro_usdc > 0 and self.settlement_tx_hash is None


class AssignedSession(Session):
    """A session that was just assigned to an operator."""

    distance_meters: int | None = None
    """From the operator's newest position, else from the centre of its coverage, to the place."""
    covers_place: bool | None = None
    consistency_token: str


class SessionPage(Model):
    """One page of sessions."""

    items: list[Session]
    next_cursor: str | None = None


class StartedSession(Model):
    """A session that was just started."""

    session: Session
    video_backend_ref: str
    whip_url: Secret
    whep_url: Secret


class ViewerToken(Model):
    """Where to play a session by WHEP."""

    video_backend_ref: str
    whep_url: Secret


class Share(Model):
    """A link by which others see one view. `expires_at` is when it ends, or has ended if it was revoked."""

    share_id: str
    session_id: str
    label: str
    created_at: Time
    expires_at: Time
    is_open: bool
    last_used_at: Time | None = None


class MadeShare(Share):
    """A new link. `url` and `key` are shown once; repr() leaves them out."""

    url: Secret
    url_hint: str | None = None
    """Why another device cannot open the URL, and what the host can set; None if it can."""
    key: Secret


class ShareList(Model):
    """The newest links of a session."""

    items: list[Share]
    next_cursor: None = None


class SharedView(Model):
    """What a share link shows of a session."""

    session_id: str
    state: SessionState
    meter_state: MeterState | None = None
    pause_reason: PauseReason | None = None
    end_reason: EndReason | None = None
    lat: float
    lng: float
    radius_meters: int
    started_at: Time | None = None
    ended_at: Time | None = None
    max_duration_seconds: int
    """Seconds from the start after which the view ends at the latest."""
    whep_url: str | None = Field(default=None, repr=False)
    shared_until: Time | None = None
    """When the link of the caller ends; None for the session's parties."""


class CancelledAssignments(Model):
    """Assignments that an operator gave back, oldest first."""

    count: int
    cancelled: list[str]


class MeterWindow(Model):
    """Time that is not charged. `to` is None while it lasts."""

    from_: Annotated[Time, Field(alias="from")]
    to: Time | None = None
    reason: PauseReason


class Meter(Model):
    """Clean seconds and charge of a session."""

    session_id: str
    started_at: Time | None = None
    ended_at: Time | None = None
    meter_state: MeterState | None = None
    clean_seconds: int
    windows: list[MeterWindow]
    rate_per_second_micro_usdc: Money
    charged_micro_usdc: Money
    accrued_micro_usdc: Money = MicroUsdc(0)
    head_hash: str
    ended_head_hash: str | None = None


class SessionLocation(Model):
    """Where the operator's device is. `in_geofence` is None while the position proves neither."""

    session_id: str
    lat: float
    lng: float
    accuracy_meters: float
    captured_at: Time
    received_at: Time
    in_geofence: bool | None = None


class StreamTicket(Model):
    """A ticket with which a browser opens one stream."""

    ticket: Secret
    expires_at: Time


class AssignmentClosed(Model):
    """An assignment that the workspace no longer operates: it was declined or withdrawn."""

    session_id: str


class RequestClosed(Model):
    """An open request that can no longer be accepted."""

    session_id: str
