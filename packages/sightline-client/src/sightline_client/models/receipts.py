"""The receipt of a session: everything from which its charge can be computed again."""

from pydantic import Field

from sightline_client.models.base import EndReason, EventKind, Model, Money, SessionState, SettlementState, Time
from sightline_client.models.money import SettlementPayload
from sightline_client.models.sessions import MeterWindow


class EventFact(Model):
    """One named value of a recorded event."""

    name: str
    value: str | int | None = None


class MeterEvent(Model):
    """A recorded event of a session."""

    sequence: int
    kind: EventKind
    at_ms: int
    facts: list[EventFact]
    hash: str


class MeterEventPage(Model):
    """One page of recorded events, oldest first. `head_hash` is that of the newest event of the session."""

    items: list[MeterEvent]
    next_cursor: str | None = None
    head_hash: str
    ended_head_hash: str | None = None


class ReceiptSession(Model):
    """The terms and the outcome of a session."""

    id: str
    consumer_workspace_id: str
    operator_workspace_id: str | None = None
    state: SessionState
    end_reason: EndReason
    created_at: Time
    assigned_at: Time | None = None
    started_at: Time | None = None
    ended_at: Time
    requested_lat: float
    requested_lng: float
    radius_meters: int
    max_duration_seconds: int
    rate_per_second_micro_usdc: Money
    hold_micro_usdc: Money
    platform_fee_bps: int
    clean_seconds: int
    charged_micro_usdc: Money
    settlement_tx_hash: str | None = None


class ReceiptMeter(Model):
    """The meter at the end of a session."""

    started_at: Time | None = None
    ended_at: Time
    clean_seconds: int
    windows: list[MeterWindow]
    head_hash: str
    ended_head_hash: str | None = None


class ReceiptSettlement(Model):
    """The payment and its place on the chain."""

    state: SettlementState
    mismatched: bool = False
    """Whether the contract settled the session with parties or numbers that differ from its recorded events."""
    payload: SettlementPayload | None = None
    tx_hash: str | None = None
    block_number: str | None = None
    log_index: int | None = None


class ReceiptContracts(Model):
    """The chain and the contracts that the receipt names. They prove nothing until they equal those that you trust."""

    chain_id: int
    settlement_address: str
    usdc_address: str


class ReceiptDocument(Model):
    """What `GET /sessions/{id}/receipt` answers."""

    session: ReceiptSession
    meter: ReceiptMeter
    events: list[MeterEvent] = Field(repr=False)
    settlement: ReceiptSettlement
    contracts: ReceiptContracts
