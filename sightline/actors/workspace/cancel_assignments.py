"""Cancels all assignments of an operator: one call, several sessions, one transaction for each."""

from collections.abc import Sequence
from typing import cast

from sightline.actors.deps import COMMAND_TIMEOUT_S, SESSION, Deps
from sightline.actors.kernel import ActorStoppedError, Directory
from sightline.actors.messages import DropAssignment
from sightline.actors.types import Caller
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.session.model import SessionState
from sightline.domain.value import replace
from sightline.ports.store import IdempotencyKey, IdempotencyRecord


async def assignments_to_drop(deps: Deps, caller: Caller) -> Sequence[str]:
    """Assignments of the caller's workspace; with an idempotency key those of the first call.

    Each session is cancelled in a transaction of its own. A repeat after a crash continues with the same sessions and
    answers for all of them.
    """
    mark = _mark_of(caller, "begun")
    begun = await deps.store.find_idempotent(mark) if mark is not None else None
    if begun is not None:
        return [str(session_id) for session_id in cast(Sequence[object], begun.result["sessions"])]
    ids = await deps.store.sessions_of_operator(caller.workspace_id, SessionState.ASSIGNED)
    if mark is not None:
        record = IdempotencyRecord(key=mark, result={"sessions": list(ids)}, at_ms=deps.clock.now_ms())
        await deps.store.record_idempotent(record)
    return ids


async def drop_assignment(registry: Directory, deps: Deps, session_id: str, caller: Caller) -> bool:
    """Cancel one assignment; True if this call did. A session that does not answer keeps its operator."""
    session, mark = registry.ref(SESSION, session_id), _mark_of(caller, session_id)
    try:
        dropped = await session.ask(DropAssignment(caller.workspace_id, mark), timeout_s=COMMAND_TIMEOUT_S)
    except ActorStoppedError as error:
        raise OutcomeUnknownError("the server is stopping; some assignments may have been dropped") from error
    except UnavailableError:
        dropped = False
    return dropped or (mark is not None and await deps.store.find_idempotent(mark) is not None)


def _mark_of(caller: Caller, part: str) -> IdempotencyKey | None:
    """Idempotency key of one part of a call."""
    key = caller.idempotency
    return replace(key, path=f"{key.path}#{part}") if key is not None else None
