"""Dropping all of an operator's assignments: one call, several sessions, each in a transaction of its own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from sightline.actors.deps import COMMAND_TIMEOUT_S, SESSION, Deps
from sightline.actors.kernel.errors import ActorStoppedError
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import DropAssignment
from sightline.actors.types import Caller
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.session.model import SessionState
from sightline.ports.store import IdempotencyKey, IdempotencyRecord


async def assignments_to_drop(deps: Deps, caller: Caller) -> Sequence[str]:
    """The assignments of the caller's workspace: as they stood when the call was first made, if it has a key.

    One call drops several sessions, each in a transaction of its own. A repeat after a crash in between goes on
    with the same ones, and answers for all of them.
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


async def drop_assignment(registry: Registry, deps: Deps, session_id: str, caller: Caller) -> bool:
    """Drop one assignment; True if this call did. A session that cannot be reached keeps its operator."""
    session, mark = registry.ref(SESSION, session_id), _mark_of(caller, session_id)
    try:
        dropped: bool = await session.ask(DropAssignment(caller.workspace_id, mark), timeout_s=COMMAND_TIMEOUT_S)
    except ActorStoppedError as error:
        raise OutcomeUnknownError("the server is stopping; some assignments may have been dropped") from error
    except UnavailableError:
        dropped = False
    return dropped or (mark is not None and await deps.store.find_idempotent(mark) is not None)


def _mark_of(caller: Caller, part: str) -> IdempotencyKey | None:
    """The key under which one part of a call with an idempotency key is recorded."""
    key = caller.idempotency
    return replace(key, path=f"{key.path}#{part}") if key is not None else None
