"""Requests and JSON of the administrators' calls on the internal listener."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, cast

from pydantic import Field, StringConstraints

from sightline.actors.types import SessionHistory
from sightline.domain.operator.model import Workspace
from sightline.domain.session.status import SessionStatus
from sightline.http.schemas.base import INTEGER_TEXT, MONEY_PATTERN, TEXT_PATTERN, Input, Query, Uuid, iso, iso_or_none
from sightline.http.schemas.receipts import receipt_json
from sightline.http.schemas.sessions import session_json
from sightline.http.schemas.workspaces import own_workspace_json
from sightline.ports.administration import AuditEntry, Refund, SessionNote, Suspension
from sightline.ports.chain import ChainConfig
from sightline.ports.ledger import SettlementRecord

_JUDGED: Final = (
    "maxDurationSeconds", "radiusMeters", "minimumSeconds", "platformFeeBps", "instructions",
    "endedBy", "fundsState", "holdTxHash", "delivery",
)  # fmt: skip
"""Fields of `Session` that a dispute is judged by, beside those of the list."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=TEXT_PATTERN)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=TEXT_PATTERN)]


class ActBody(Input):
    """Why someone acts, and by which name. Both are recorded in the audit log's reason as they are sent."""

    AREA = "admin"

    operator: Name = Field(description="Name of the person who acts")
    reason: Reason

    @property
    def stated(self) -> str:
        """The reason in the audit log, with the name that the caller gave."""
        return f"{self.operator}: {self.reason}"


class RefundBody(ActBody):
    """A refund of a part of a session's charge."""

    amount_micro_usdc: Annotated[str, StringConstraints(pattern=MONEY_PATTERN, max_length=18)]
    key: Name = Field("1", description="Identifies the refund within the session; a repeat with it pays nothing more")

    @property
    def stated(self) -> str:
        """The reason with the amount and the key, by which a reader of the log tells a repeat from a further refund."""
        return f"{super().stated} (refund {self.key} of {self.amount_micro_usdc} micro-USDC)"


class FindKeyBody(Input):
    """The plaintext of a leaked API key."""

    AREA = "admin"

    key: Annotated[str, StringConstraints(max_length=200)]


class AdoptBody(ActBody):
    """Which payments a person has seen and adopts."""

    through_block: Annotated[int, Field(ge=0)] = Field(description="The payments of the blocks up to this one")
    count: Annotated[int, Field(ge=1)] = Field(description="Number of payments that the person has seen")


class SessionsQuery(Query):
    """Which sessions to list."""

    AREA = "admin"

    state: Literal["REQUESTED", "ASSIGNED", "LIVE", "ENDED", "CANCELLED", "EXPIRED"] | None = None
    workspace_id: Uuid | None = None
    limit: Annotated[int, Field(ge=1, le=1000), INTEGER_TEXT] = 100


class WorkspacesQuery(Query):
    """Which workspaces to list."""

    AREA = "admin"

    slug: Annotated[str, StringConstraints(max_length=32, pattern=TEXT_PATTERN)] | None = Field(
        None, description="Beginning of the slug"
    )
    limit: Annotated[int, Field(ge=1, le=1000), INTEGER_TEXT] = 100


class AuditQuery(Query):
    """Which entries of the audit log to read, in ascending order."""

    AREA = "admin"

    after: Annotated[int, Field(ge=0), INTEGER_TEXT] = 0
    target: Annotated[str, StringConstraints(max_length=200, pattern=TEXT_PATTERN)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000), INTEGER_TEXT] = 1000


class JournalQuery(Query):
    """Which entries of the journal to read, in ascending order."""

    AREA = "admin"

    after: Annotated[int, Field(ge=0), INTEGER_TEXT] = 0


def admin_session_json(status: SessionStatus, slugs: Mapping[str, str]) -> dict[str, object]:
    """Present a session in a list of administrators: without media URLs and without the consumer's texts.

    Args:
        slugs: Slugs of workspaces by id.
    """
    terms = status.terms
    return {
        "id": terms.id,
        "state": status.state,
        "consumerWorkspaceId": terms.consumer_workspace_id,
        "consumerSlug": slugs.get(terms.consumer_workspace_id),
        "operatorWorkspaceId": status.operator_workspace_id,
        "operatorSlug": slugs.get(status.operator_workspace_id or ""),
        "payerAddress": terms.payer_address,
        "lat": terms.lat,
        "lng": terms.lng,
        "createdAt": iso(terms.created_at_ms),
        "assignedAt": iso_or_none(status.assigned_at_ms),
        "startedAt": iso_or_none(status.started_at_ms),
        "endedAt": iso_or_none(status.ended_at_ms),
        "endReason": status.end_reason,
        "meterState": status.meter_state,
        "pauseReason": status.pause_reason,
        "cleanSeconds": status.clean_seconds,
        "ratePerSecondMicroUsdc": str(terms.rate),
        "holdMicroUsdc": str(terms.hold),
        "chargedMicroUsdc": str(status.charged),
        "accruedMicroUsdc": str(status.accrued),
        "settlementTxHash": status.settlement_tx_hash,
    }


def admin_history_json(
    history: SessionHistory, record: SettlementRecord | None, chain: ChainConfig, slugs: Mapping[str, str]
) -> dict[str, object]:
    """Present a session by which a dispute can be judged: what its parties' receipt has, and what both wrote.

    It has no media URLs, and not the consumer's metadata. Unlike a receipt, it exists before the session is over.
    """
    session, receipt = session_json(history.status), receipt_json(history, record, chain)
    return (
        admin_session_json(history.status, slugs)
        | {name: session[name] for name in _JUDGED}
        | {"messagesShown": history.status.messages_shown}
        | {name: receipt[name] for name in ("meter", "events")}
        | {"settlement": _settlement_json(receipt["settlement"], record)}
    )


def _settlement_json(shown: object, record: SettlementRecord | None) -> dict[str, object]:
    """Present a settlement as receipts do, but in its own state, with the reason and the tries that parties do not see.

    Args:
        shown: The settlement of the receipt.
    """
    settlement: dict[str, object] = dict(cast("Mapping[str, object]", shown))
    if record is None or settlement["state"] == "NOT_READY":
        return settlement | {"reason": None, "tries": 0}
    return settlement | {"state": record.state, "reason": record.reason, "tries": record.tries}


def note_json(note: SessionNote) -> dict[str, object]:
    """Present a note."""
    return {"at": iso(note.at_ms), "actor": note.actor, "text": note.text}


def refund_json(refund: Refund) -> dict[str, object]:
    """Present a refund."""
    return {
        "sessionId": refund.session_id,
        "key": refund.key,
        "state": refund.state,
        "amountMicroUsdc": str(refund.amount_micro),
        "to": refund.to_address,
        "txHash": refund.tx_hash,
        "reason": refund.reason,
        "actor": refund.actor,
        "at": iso(refund.at_ms),
    }


def suspension_json(suspension: Suspension | None) -> dict[str, object] | None:
    """Present a suspension; None stays None."""
    if suspension is None:
        return None
    return {"at": iso(suspension.at_ms), "actor": suspension.actor, "reason": suspension.reason}


def admin_workspace_json(
    workspace: Workspace, suspension: Suspension | None, passed_over_until_ms: int | None
) -> dict[str, object]:
    """Present a workspace with its suspension."""
    return own_workspace_json(workspace, passed_over_until_ms) | {"suspension": suspension_json(suspension)}


def audit_json(entry: AuditEntry) -> dict[str, object]:
    """Present an entry of the audit log."""
    return {
        "id": entry.id,
        "at": iso(entry.at_ms),
        "actId": entry.act_id,
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "reason": entry.reason,
        "outcome": entry.outcome,
    }
