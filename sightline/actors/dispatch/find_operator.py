"""Assigns an operator to a session, for a dispatch or an accept. Runs inside a turn of the session actor.

Where the relations graph is kept in the store, the operator's workspace actor writes its claim, the assignment that the
session has prepared, and their relation in one transaction (ADR 0072).

Where the graph is kept apart, the claim is stored first, then the relation is written, then the session stores the
assignment. A crash in between can leave a claim without an assignment; the operator's workspace finds and releases it
(see workspace/claim_reconciliation.py).
"""

import math
from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

import trio

from sightline.actors.deps import DISPATCHER, WORKSPACE, Deps
from sightline.actors.kernel import ActorParkedError, Directory, OverloadedError
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.messages import (
    AssignOperator,
    ClaimOperator,
    FreeOperator,
    GetConduct,
    GetWorkspace,
    OperatorAssigned,
    OperatorClaimed,
    OperatorDiffers,
    PickOperator,
    PreparedAssignment,
)
from sightline.actors.refusals import WORKSPACE_NOT_FOUND
from sightline.actors.shards import DISPATCHER_ID
from sightline.actors.types import OperatorPlace
from sightline.actors.write_rejections import session_rejected
from sightline.domain.errors import OutcomeUnknownError, RefusedError, SightlineError, UnavailableError
from sightline.domain.operator.machine import ClaimByAccept, ClaimByDispatch
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.machine import NOT_AGAIN
from sightline.domain.session.model import Operator, Session
from sightline.domain.units import SECOND_MS
from sightline.domain.value import replace
from sightline.ports.relations import Relations, Staged, TupleUpdate, operator_edge
from sightline.ports.store import Committed, Rejected

TRIES_MAX: Final = 50
"""Operators whose claim may fail before a dispatch gives up."""

PREPARED_MAX: Final = 5
"""Attempts to assign one operator while the session or the operator changes in between."""

Prepare: TypeAlias = Callable[[Operator, OperatorPlace, int], PreparedAssignment]
"""Prepares the assignment of an operator that is idle since a time (ms), from the session's newest state.

Raises RefusedError if it may not be made.
"""

NO_OPERATOR: Final = Refusal(Code.UNAVAILABLE, "dispatch:noOperator", "No operator available", retry_after_s=5)
NO_COVERING_OPERATOR: Final = replace(NO_OPERATOR, message="No operator that covers the place is available")


async def find_operator(
    registry: Directory, deps: Deps, session: Session, prepare: Prepare
) -> OperatorAssigned | OperatorClaimed:
    """Assign the longest-idle operator to a session; if it refuses, the next one.

    Raises:
        RefusedError: UNAVAILABLE if no operator can be claimed; or the session may no longer be assigned.
        AuthzUnavailableError: The relation cannot be written; the claim is released.
        OutcomeUnknownError, ReloadRequestedError: The session's row may have moved on.
    """
    terms, claim = session.terms, ClaimByDispatch(session.id)
    dispatcher = registry.ref(DISPATCHER, DISPATCHER_ID)
    excluded = frozenset(session.unstarted_by)
    for _ in range(TRIES_MAX):
        pick = PickOperator(terms.lat, terms.lng, excluded, terms.requires_coverage)
        operator = await dispatcher.ask(pick, timeout_s=deps.limits.ask_timeout_s)
        if operator is None:
            break
        try:
            assigned = await _assign(registry, deps, session, operator, claim, prepare)
        except (OverloadedError, ActorParkedError):
            pass
        else:
            if not isinstance(assigned, Refusal):
                return assigned
        excluded |= {operator.workspace_id}
    raise RefusedError(NO_COVERING_OPERATOR if terms.requires_coverage else NO_OPERATOR)


async def accept_session(
    registry: Directory, deps: Deps, session: Session, workspace_id: str, prepare: Prepare
) -> OperatorAssigned | OperatorClaimed:
    """Assign the operator that accepts the session.

    Raises:
        RefusedError: The operator may not accept it, its wallet is passed over for no-shows, or the session may no
            longer be assigned.
        AuthzUnavailableError: The relation cannot be written; the claim is released.
        OutcomeUnknownError, ReloadRequestedError: The session's row may have moved on.
    """
    if workspace_id in session.unstarted_by:
        raise RefusedError(NOT_AGAIN)
    workspace = await _newest(registry, deps, workspace_id)
    if workspace is None:
        raise RefusedError(WORKSPACE_NOT_FOUND)
    operator = workspace.as_operator()
    await _require_reliable(registry, deps, operator.wallet_address)
    claim = ClaimByAccept(session.id, session.terms.lat, session.terms.lng, deps.limits.accept)
    assigned = await _assign(registry, deps, session, operator, claim, prepare)
    if isinstance(assigned, Refusal):
        raise RefusedError(assigned)
    return assigned


async def _newest(registry: Directory, deps: Deps, workspace_id: str) -> Workspace | None:
    """A workspace as its actor knows it."""
    workspace = registry.peek(WORKSPACE, workspace_id)
    if workspace is not None:
        return workspace
    return await registry.ref(WORKSPACE, workspace_id).ask(GetWorkspace(), timeout_s=deps.limits.ask_timeout_s)


async def _place(registry: Directory, deps: Deps, workspace_id: str, session: Session) -> OperatorPlace:
    """Where an operator is, seen from the session's place; not known if its workspace does not answer."""
    try:
        workspace = await _newest(registry, deps, workspace_id)
    except SightlineError:
        return OperatorPlace()
    if workspace is None:
        return OperatorPlace()
    lat, lng = session.terms.lat, session.terms.lng
    return OperatorPlace(distance_m=workspace.distance_m(lat, lng), covers_place=workspace.covers(lat, lng))


async def _require_reliable(registry: Directory, deps: Deps, wallet: str) -> None:
    """Refuse an operator whose wallet is passed over for its no-shows."""
    dispatcher = registry.ref(DISPATCHER, DISPATCHER_ID)
    conduct = await dispatcher.ask(GetConduct(wallet), timeout_s=deps.limits.ask_timeout_s)
    left_ms = conduct.out_until_ms - deps.clock.now_ms()
    if left_ms > 0:
        wait_s = math.ceil(left_ms / SECOND_MS)
        message = (
            f"Operators of this wallet did not start {len(conduct.no_shows_ms)} assigned sessions lately. "
            f"They can accept again in {wait_s} s"
        )
        raise RefusedError(Refusal(Code.INVALID_STATE, "operator:noShow", message, retry_after_s=wait_s))


async def _assign(
    registry: Directory,
    deps: Deps,
    session: Session,
    operator: Operator,
    claim: ClaimByDispatch | ClaimByAccept,
    prepare: Prepare,
) -> OperatorAssigned | OperatorClaimed | Refusal:
    """Assign one operator; returns its refusal as a value."""
    place = await _place(registry, deps, operator.workspace_id, session)
    if not deps.relations.is_external:
        return await _claim_and_assign(registry, deps, operator, place, claim, prepare)
    try:
        return await _claim_and_stage(registry, deps, operator.workspace_id, place, claim)
    except RefusedError as refused:
        return refused.refusal


async def _claim_and_assign(
    registry: Directory,
    deps: Deps,
    operator: Operator,
    place: OperatorPlace,
    claim: ClaimByDispatch | ClaimByAccept,
    prepare: Prepare,
) -> OperatorAssigned | Refusal:
    """Store the claim and the assignment in one transaction, by the operator's workspace.

    Nothing is released here when the outcome is unknown: the session prevents the assignment or reads it (ADR 0166),
    and the workspace tells it about one that it could not prevent (`RowWritten`).
    """
    workspace, idle_since_ms = registry.ref(WORKSPACE, operator.workspace_id), 0
    for _ in range(PREPARED_MAX):
        prepared = prepare(operator, place, idle_since_ms)
        try:
            answer = await workspace.ask(AssignOperator(claim, prepared.write), timeout_s=deps.limits.ask_timeout_s)
        except RefusedError as refused:
            return refused.refusal
        match answer:
            case Committed():
                return OperatorAssigned(prepared, answer)
            case OperatorDiffers():
                operator, idle_since_ms = answer.operator, answer.idle_since_ms
            case Rejected():
                if prepare(operator, place, idle_since_ms).write.session.version == prepared.write.session.version:
                    raise session_rejected(answer)
            case Refusal():
                return answer
            case _:
                assert_never(answer)
    raise UnavailableError("the session or its operator changed at each attempt to assign it")


async def _claim_and_stage(
    registry: Directory, deps: Deps, workspace_id: str, place: OperatorPlace, claim: ClaimByDispatch | ClaimByAccept
) -> OperatorClaimed:
    """Claim one operator for the session and stage the relation between them."""
    operator = await _claim(registry, deps, workspace_id, claim)
    try:
        staged = await _stage(deps.relations, claim.session_id, workspace_id)
    except BaseException:
        registry.ref(WORKSPACE, workspace_id).tell(FreeOperator(claim.session_id), lane=Lane.CONTROL)
        raise
    return OperatorClaimed(operator, staged, place)


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
