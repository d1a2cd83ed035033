"""Recorded answers: how the answer to a command is stored with its effect and read back for a replay."""

from typing import Any, Final, TypeAlias

import msgspec

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
_KINDS: Final[dict[str, type[Recordable]]] = {
    "session": SessionStatus,
    "workspace": Workspace,
    "batch": BatchVerdict,
    "cancelled": CancelledAssignments,
}
_KIND_OF: Final = {made: kind for kind, made in _KINDS.items()}


def record_of(key: IdempotencyKey, answer: Answer[Recordable]) -> IdempotencyRecord:
    """The record from which a repeat of the call is answered."""
    result = {"kind": _KIND_OF[type(answer.value)], "value": msgspec.to_builtins(answer.value), "token": answer.token}
    return IdempotencyRecord(key=key, result=result, at_ms=answer.at_ms)


def recorded_answer(record: IdempotencyRecord, relations: Relations) -> Answer[Any]:
    """The answer of a record.

    Raises:
        RefusedError: CONFLICT `idempotency:notReplayable` for a record of another version of Sightline.
    """
    kind = record.result.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise RefusedError(NOT_REPLAYABLE)
    try:
        value = msgspec.convert(record.result["value"], _KINDS[kind])
    except msgspec.ValidationError as error:
        raise RefusedError(NOT_REPLAYABLE) from error
    token: Any = record.result["token"]
    if isinstance(value, SessionStatus) and value.state is SessionState.ASSIGNED:
        if token is None and record.revision is not None:
            token = relations.token_for(record.revision)
        return Answer(value, record.at_ms, token)
    return Answer(value, record.at_ms)
