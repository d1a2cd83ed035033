"""Finds and claims an operator for a session: the steps between a dispatch or an accept and the assignment.

Runs as a helper of the session actor. A crash between the steps can leave a claim without an assignment; the operator's
workspace finds and releases it (see workspace/claim_reconciliation.py).
"""

from typing import Final

import trio

from sightline.actors.deps import DISPATCHER, DISPATCHER_ID, WORKSPACE, Deps
from sightline.actors.kernel import ActorParkedError, Directory, OverloadedError
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.messages import ClaimOperator, FreeOperator, OperatorFound, PickOperator
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Operator, Session
from sightline.ports.relations import Relations, Staged, TupleUpdate, operator_edge

TRIES_MAX: Final = 50
"""Operators whose claim may fail before a dispatch gives up."""

NO_OPERATOR: Final = Refusal(Code.UNAVAILABLE, "dispatch:noOperator", "No operator available", retry_after_s=5)


async def find_operator(registry: Directory, deps: Deps, session: Session) -> OperatorFound:
    """Pick the longest-idle operator and claim it; on a refused claim pick the next one.

    Raises:
        RefusedError: UNAVAILABLE if no operator can be claimed.
        AuthzUnavailableError: The relation cannot be written; the claim is released.
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
    registry: Directory, deps: Deps, session_id: str, workspace_id: str, *, is_dispatch: bool
) -> OperatorFound:
    """Claim one operator for the session and stage the relation between them.

    Raises:
        RefusedError: The operator cannot be claimed.
        AuthzUnavailableError: The relation cannot be written; the claim is released.
    """
    operator = await _claim(registry, deps, session_id, workspace_id, is_dispatch=is_dispatch)
    try:
        staged = await _stage(deps.relations, session_id, workspace_id)
    except BaseException:
        registry.ref(WORKSPACE, workspace_id).tell(FreeOperator(session_id), lane=Lane.CONTROL)
        raise
    return OperatorFound(operator, staged)


async def _claim(registry: Directory, deps: Deps, session_id: str, workspace_id: str, *, is_dispatch: bool) -> Operator:
    workspace = registry.ref(WORKSPACE, workspace_id)
    try:
        answer = await workspace.ask(ClaimOperator(session_id, is_dispatch), timeout_s=deps.limits.ask_timeout_s)
    except OutcomeUnknownError as error:
        # In the same lane as the claim, so that it is handled after it.
        workspace.tell(FreeOperator(session_id))
        raise UnavailableError("the operator's workspace did not answer") from error
    except trio.Cancelled:
        workspace.tell(FreeOperator(session_id))
        raise
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    return answer


async def _stage(relations: Relations, session_id: str, workspace_id: str) -> Staged:
    return await relations.stage([TupleUpdate(operator_edge(session_id, workspace_id))])
