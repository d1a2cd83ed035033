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
from sightline.domain.operator.machine import ClaimByAccept, ClaimByDispatch
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.machine import NOT_AGAIN
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
    excluded = frozenset(session.unstarted_by)
    for _ in range(TRIES_MAX):
        pick = PickOperator(terms.lat, terms.lng, excluded)
        workspace_id = await dispatcher.ask(pick, timeout_s=deps.limits.ask_timeout_s)
        if workspace_id is None:
            break
        try:
            return await _claim_and_stage(registry, deps, workspace_id, ClaimByDispatch(session.id))
        except (RefusedError, OverloadedError, ActorParkedError):
            excluded |= {workspace_id}
    raise RefusedError(NO_OPERATOR)


async def accept_session(registry: Directory, deps: Deps, session: Session, workspace_id: str) -> OperatorFound:
    """Claim the operator that accepts the session.

    Raises:
        RefusedError: The operator may not accept it.
        AuthzUnavailableError: The relation cannot be written; the claim is released.
    """
    if workspace_id in session.unstarted_by:
        raise RefusedError(NOT_AGAIN)
    claim = ClaimByAccept(session.id, session.terms.lat, session.terms.lng, deps.limits.accept)
    return await _claim_and_stage(registry, deps, workspace_id, claim)


async def _claim_and_stage(
    registry: Directory, deps: Deps, workspace_id: str, claim: ClaimByDispatch | ClaimByAccept
) -> OperatorFound:
    """Claim one operator for the session and stage the relation between them."""
    operator = await _claim(registry, deps, workspace_id, claim)
    try:
        staged = await _stage(deps.relations, claim.session_id, workspace_id)
    except BaseException:
        registry.ref(WORKSPACE, workspace_id).tell(FreeOperator(claim.session_id), lane=Lane.CONTROL)
        raise
    return OperatorFound(operator, staged)


async def _claim(
    registry: Directory, deps: Deps, workspace_id: str, claim: ClaimByDispatch | ClaimByAccept
) -> Operator:
    workspace = registry.ref(WORKSPACE, workspace_id)
    try:
        answer = await workspace.ask(ClaimOperator(claim), timeout_s=deps.limits.ask_timeout_s)
    except OutcomeUnknownError as error:
        # In the same lane as the claim, so that it is handled after it.
        workspace.tell(FreeOperator(claim.session_id))
        raise UnavailableError("the operator's workspace did not answer") from error
    except trio.Cancelled:
        workspace.tell(FreeOperator(claim.session_id))
        raise
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    return answer


async def _stage(relations: Relations, session_id: str, workspace_id: str) -> Staged:
    return await relations.stage([TupleUpdate(operator_edge(session_id, workspace_id))])
