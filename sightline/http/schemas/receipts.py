"""Recorded events of a session, and the receipt that anyone can verify."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from sightline.actors.types import SessionHistory
from sightline.domain.addresses import shown_address
from sightline.domain.session.messages import EventKind
from sightline.http.cursors import EVENT_CURSOR
from sightline.http.schemas.base import INTEGER_TEXT, Address, Instant, Money, Output, Query, Uuid
from sightline.http.schemas.money import MISMATCHED_DESCRIPTION, SettlementPayload, settlement_json
from sightline.http.schemas.sessions import EndReason, MeterWindow, meter_json, session_json
from sightline.ports.chain import ChainConfig
from sightline.ports.ledger import SettlementRecord
from sightline.ports.store import RecordedEvent

HASH_DESCRIPTION: Final = (
    "SHA-256 in hex over the previous hash and this event; see the API page, section Verify a receipt"
)


class MeterEventsQuery(Query):
    """A page of recorded events, oldest first."""

    AREA = "meter"
    LABELS: ClassVar[Mapping[str, str]] = {"limit": "pagination:limit", "cursor": "pagination:cursor"}

    limit: Annotated[int, Field(ge=1, le=500), INTEGER_TEXT] = 100
    cursor: str | None = Field(default=None, pattern=EVENT_CURSOR, description="nextCursor of the page before")


class EventFact(Output):
    """One named value of an event. The order of the facts of an event is part of its hash."""

    name: str
    value: str | int | None


class MeterEvent(Output):
    """A recorded event of a session."""

    sequence: int = Field(description="Counts from 1 without gaps")
    kind: Literal[
        "CREATED",
        "ASSIGNED",
        "REOPENED",
        "STARTED",
        "PAUSED",
        "RESUMED",
        "EXTENDED",
        "MESSAGE",
        "MEDIA_LOST",
        "ENDED",
        "CANCELLED",
        "EXPIRED",
        "SETTLED",
    ]
    at_ms: int = Field(description="Epoch milliseconds")
    facts: list[EventFact]
    hash: str = Field(description=HASH_DESCRIPTION)


class MeterEventPage(Output):
    """A page of recorded events, oldest first."""

    items: list[MeterEvent]
    next_cursor: str | None
    head_hash: str = Field(description="Hash of the newest event of the session, which may be on a later page")
    ended_head_hash: str | None = Field(description="Hash of the event ENDED; null before it")


class ReceiptSession(Output):
    """The terms and the outcome of a session."""

    id: Uuid
    consumer_workspace_id: Uuid
    operator_workspace_id: Uuid | None
    state: Literal["ENDED", "CANCELLED", "EXPIRED"]
    end_reason: EndReason
    created_at: Instant
    assigned_at: Instant | None
    started_at: Instant | None
    ended_at: Instant
    requested_lat: float
    requested_lng: float
    radius_meters: int
    max_duration_seconds: int
    rate_per_second_micro_usdc: Money
    hold_micro_usdc: Money
    platform_fee_bps: int
    clean_seconds: int
    charged_micro_usdc: Money
    settlement_tx_hash: str | None


class ReceiptMeter(Output):
    """The meter at the end of a session."""

    started_at: Instant | None
    ended_at: Instant
    clean_seconds: int
    windows: list[MeterWindow]
    head_hash: str
    ended_head_hash: str | None = Field(description="Hash of the event ENDED; null if the session never was LIVE")


class ReceiptSettlement(Output):
    """The settlement of a session and its place on the chain."""

    state: Literal["NOT_READY", "PENDING", "CONFIRMED"]
    mismatched: bool = Field(description=MISMATCHED_DESCRIPTION)
    payload: SettlementPayload | None
    tx_hash: str | None
    block_number: str | None
    log_index: int | None = Field(description="Index of the event Settled in its block")


class ReceiptContracts(Output):
    """Where the service says that it settled. A verifier compares them with the contracts that its caller trusts."""

    chain_id: int
    settlement_address: Address
    usdc_address: Address


class Receipt(Output):
    """Everything that is needed to recompute the charge of a session."""

    session: ReceiptSession
    meter: ReceiptMeter
    events: list[MeterEvent]
    settlement: ReceiptSettlement
    contracts: ReceiptContracts


_SESSION_FIELDS = tuple(field.alias for field in ReceiptSession.model_fields.values())
_METER_FIELDS = tuple(field.alias for field in ReceiptMeter.model_fields.values())


def meter_event_json(recorded: RecordedEvent) -> dict[str, object]:
    """Present a recorded event as `MeterEvent`."""
    event = recorded.event
    return {
        "sequence": recorded.sequence,
        "kind": event.kind,
        "atMs": event.at_ms,
        "facts": [{"name": name, "value": value} for name, value in event.facts],
        "hash": recorded.hash,
    }


def receipt_json(history: SessionHistory, record: SettlementRecord | None, chain: ChainConfig) -> dict[str, object]:
    """Present the history of a session that is over as `Receipt`."""
    session, meter = session_json(history.status), meter_json(history.meter)
    settlement = settlement_json(history.status.terms.id, record)
    ended_hash = next((each.hash for each in history.events if each.event.kind is EventKind.ENDED), None)
    return {
        "session": {name: session[name] for name in _SESSION_FIELDS if name is not None},
        # Sessions that earlier versions ended have no ended head of their own; their events have it.
        "meter": {name: meter[name] for name in _METER_FIELDS if name is not None} | {"endedHeadHash": ended_hash},
        "events": [meter_event_json(recorded) for recorded in history.events],
        "settlement": {
            "state": settlement["state"],
            "mismatched": settlement["mismatched"],
            "payload": settlement["payload"],
            "txHash": settlement["txHash"],
            "blockNumber": None if record is None or record.block_number is None else str(record.block_number),
            "logIndex": None if record is None else record.log_index,
        },
        "contracts": {
            "chainId": chain.chain_id,
            "settlementAddress": shown_address(chain.settlement_address),
            "usdcAddress": shown_address(chain.usdc_address),
        },
    }
