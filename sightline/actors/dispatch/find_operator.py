"""Finding an operator for a session: the steps between a dispatch or an accept and the assignment.

Runs beside the session's turns, as its helper. Each half can be lost to a crash; a claim that no session stands by is
given back by the operator's own doubt.
"""

from typing import Any, Final, assert_never

import trio

from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, WORKSPACE, Deps
from sightline.actors.kernel.errors import ActorParkedError, OverloadedError
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import ClaimOperator, FreeOperator, OperatorFound, PickOperator
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Operator, Session
from sightline.ports.relations import Relations, Staged, TupleUpdate, operator_edge

TRIES_MAX: Final = 50
"""Operators that may be lost to others in one dispatch before it gives up."""

NO_OPERATOR: Final = Refusal(Code.UNAVAILABLE, "dispatch:noOperator", "No operator available", retry_after_s=5)


async def find_operator(registry: Registry, deps: Deps, session: Session) -> OperatorFound:
    """Pick the longest-idle operator and claim it; one that is lost meanwhile is passed over.

    Raises:
        RefusedError: UNAVAILABLE, when nobody is there.
        AuthzUnavailableError: The relation could not be written; nobody is left claimed.
    """
    terms = session.terms
    dispatcher = registry.ref(DISPATCHER, DISPATCHER_ID)
    excluded: frozenset[str] = frozenset()
    for _ in range(TRIES_MAX):
        pick = PickOperator(terms.lat, terms.lng, excluded)
        workspace_id = await dispatcher.ask(pick, timeout_s=deps.limits.ask_timeout_s)
        if workspace_id is None:
            break
        try:
            return await claim_and_stage(registry, deps, session.id, workspace_id, is_dispatch=True)
        except (RefusedError, OverloadedError, ActorParkedError):
            excluded |= {workspace_id}
    raise RefusedError(NO_OPERATOR)


async def claim_and_stage(
    registry: Registry, deps: Deps, session_id: str, workspace_id: str, *, is_dispatch: bool
) -> OperatorFound:
    """Claim one operator for the session and stage the relation between them.

    Raises:
        RefusedError: The operator cannot be claimed.
        AuthzUnavailableError: See above.
    """
    operator = await _claim(registry, deps, session_id, workspace_id, is_dispatch=is_dispatch)
    try:
        staged = await _stage(deps.relations, session_id, workspace_id)
    except BaseException:
        registry.ref(WORKSPACE, workspace_id).tell(FreeOperator(session_id), lane=Lane.CONTROL)
        raise
    return OperatorFound(operator, staged)


async def _claim(registry: Registry, deps: Deps, session_id: str, workspace_id: str, *, is_dispatch: bool) -> Operator:
    workspace = registry.ref(WORKSPACE, workspace_id)
    try:
        answer: Any = await workspace.ask(
            ClaimOperator(session_id, is_dispatch), timeout_s=deps.limits.ask_timeout_s, command_id=session_id
        )
    except OutcomeUnknownError as error:
        # Behind the claim in the same lane, so that it finds the claim if there is going to be one.
        workspace.tell(FreeOperator(session_id))
        raise UnavailableError("the operator's workspace did not answer") from error
    except trio.Cancelled:
        workspace.tell(FreeOperator(session_id))
        raise
    match answer:
        case Refusal():
            raise RefusedError(answer)
        case Operator():
            return answer
        case _:
            assert_never(answer)


async def _stage(relations: Relations, session_id: str, workspace_id: str) -> Staged:
    return await relations.stage([TupleUpdate(operator_edge(session_id, workspace_id))])
