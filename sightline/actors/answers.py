"""Recorded answers: how the answer to a command is stored with its effect and read back for a replay."""

from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from sightline.actors.types import Answer, BatchVerdict, CancelledAssignments
from sightline.domain.errors import RefusedError
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import SessionStatus
from sightline.ports.relations import Relations
from sightline.ports.store import IdempotencyKey, IdempotencyRecord

Recordable: TypeAlias = SessionStatus | Workspace | BatchVerdict | CancelledAssignments

NOT_REPLAYABLE: Final = Refusal(
    Code.CONFLICT, "idempotency:notReplayable", "The call has taken effect, but its answer was not kept"
)
_ADAPTERS: Final[dict[str, tuple[type, TypeAdapter[Any]]]] = {
    "session": (SessionStatus, TypeAdapter(SessionStatus)),
    "workspace": (Workspace, TypeAdapter(Workspace)),
    "batch": (BatchVerdict, TypeAdapter(BatchVerdict)),
    "cancelled": (CancelledAssignments, TypeAdapter(CancelledAssignments)),
}


def record_of(key: IdempotencyKey, answer: Answer[Recordable]) -> IdempotencyRecord:
    """The record from which a repeat of the call is answered."""
    kind, adapter = next((kind, adapter) for kind, (of, adapter) in _ADAPTERS.items() if isinstance(answer.value, of))
    value = adapter.dump_python(answer.value, mode="json")
    return IdempotencyRecord(key=key, result={"kind": kind, "value": value, "token": answer.token}, at_ms=answer.at_ms)


def recorded_answer(record: IdempotencyRecord, relations: Relations) -> Answer[Any]:
    """The answer of a record.

    Raises:
        RefusedError: CONFLICT `idempotency:notReplayable` for a record of another version of Sightline.
    """
    kind = record.result.get("kind")
    if not isinstance(kind, str) or kind not in _ADAPTERS:
        raise RefusedError(NOT_REPLAYABLE)
    value = _ADAPTERS[kind][1].validate_python(record.result["value"])
    token: Any = record.result["token"]
    if isinstance(value, SessionStatus) and value.state is SessionState.ASSIGNED:
        if token is None and record.revision is not None:
            token = relations.token_for(record.revision)
        return Answer(value, record.at_ms, token)
    return Answer(value, record.at_ms)
