"""Recorded events of sessions, and receipts."""

from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.budgets import RateClass
from sightline.http.cursors import event_cursor, read_event_cursor
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.receipts import (
    MeterEventPage,
    MeterEventsQuery,
    Receipt,
    meter_event_json,
    receipt_json,
)
from sightline.http.services import Services

TAG: Final = "money"


@final
class ReceiptResources:
    """/sessions/{id}/meter/events and /sessions/{id}/receipt."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/sessions/{id}/meter/events",
        "listMeterEvents",
        TAG,
        "List the recorded events of a session, oldest first",
        description="Each event has the hash of the chain up to it, so that a later change of an event can be found.",
        operation=Operation.READ_SESSION,
        rate=RateClass.LIST,
        query=MeterEventsQuery,
        output=MeterEventPage,
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def events(self, call: Call) -> Reply:
        """A page of events."""
        query: MeterEventsQuery = call.query
        after = 0 if query.cursor is None else read_event_cursor(query.cursor)
        answer = await self._services.broker.reads.history(
            call.params["id"], call.workspace_id, after=after, limit=query.limit + 1
        )
        events, meter = answer.value.events, answer.value.meter
        page = events[: query.limit]
        return Reply(
            {
                "items": [meter_event_json(recorded) for recorded in page],
                "nextCursor": event_cursor(page[-1].sequence) if len(events) > query.limit else None,
                "headHash": meter.head_hash,
                "endedHeadHash": meter.ended_head_hash,
            },
            answer.at_ms,
        )

    @Route(
        "GET",
        "/api/v1/sessions/{id}/receipt",
        "getReceipt",
        TAG,
        "Get the receipt of a session that is over",
        description="Has everything that is needed to recompute the hash chain, the clean seconds, the charge and the "
        "fee, and to find the event Settled on the chain. The events are what this service recorded. To verify the "
        "payment, take the chain and the contracts from another source than the receipt. 409 `session:notOver` before "
        "the session is over.",
        operation=Operation.READ_SESSION,
        rate=RateClass.LIST,
        output=Receipt,
        errors=(Code.SESSION_NOT_FOUND, Code.INVALID_STATE),
    )
    async def receipt(self, call: Call) -> Reply:
        """The receipt of a session the caller is party to."""
        session_id = call.params["id"]
        answer = await self._services.broker.reads.history(session_id, call.workspace_id)
        status = answer.value.status
        if status.end_reason is None:
            message = f"The session is {status.state}; its receipt is available when it is over"
            raise RefusedError(Refusal(Code.INVALID_STATE, "session:notOver", message, state=status.state))
        record = await self._services.ledger.settlement(session_id)
        return Reply(receipt_json(answer.value, record, self._services.chain), answer.at_ms)
