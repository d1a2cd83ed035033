"""Reconciliation of claims: finds claims of an operator that their sessions do not confirm.

A crash between the claim and the assignment of a dispatch leaves such a claim. The sessions are asked by a helper of
the workspace actor; a turn of the actor then releases what is to be released.
"""

from collections.abc import Sequence

import structlog
import trio

from sightline.actors.deps import SESSION, Deps
from sightline.actors.kernel import Directory
from sightline.actors.messages import CheckClaim, ClaimState
from sightline.domain.errors import SightlineError
from sightline.domain.operator.model import Claim, Workspace
from sightline.domain.session.model import Assigned, Live
from sightline.ports.relations import TupleUpdate, operator_edge

log = structlog.get_logger("sightline.workspace")


def unconfirmed_claims(registry: Directory, workspace: Workspace, until_ms: int) -> list[Claim]:
    """Claims made until `until_ms` that the session's snapshot does not confirm."""
    return [
        claim
        for claim in workspace.claims.values()
        if claim.at_ms <= until_ms and not _is_confirmed(registry, workspace.id, claim)
    ]


def _is_confirmed(registry: Directory, workspace_id: str, claim: Claim) -> bool:
    """Whether the session's snapshot agrees with the claim; then the session need not be asked."""
    session = registry.peek(SESSION, claim.session_id)
    phase = session.phase if session is not None else None
    if not isinstance(phase, Assigned | Live) or phase.operator.workspace_id != workspace_id:
        return False
    return isinstance(phase, Live) == claim.is_live


async def ask_sessions(
    registry: Directory, deps: Deps, workspace_id: str, unconfirmed: Sequence[Claim]
) -> tuple[tuple[str, int, ClaimState], ...]:
    """Session id, time and claim_state of each claim; without those whose session does not answer."""
    claim_states = []
    for claim in unconfirmed:
        session = registry.ref(SESSION, claim.session_id)
        try:
            check = CheckClaim(workspace_id)
            claim_state = await session.ask(check, timeout_s=deps.limits.ask_timeout_s)
        except SightlineError:
            continue
        claim_states.append((claim.session_id, claim.at_ms, claim_state))
    return tuple(claim_states)


async def clear_edge(deps: Deps, session_id: str, workspace_id: str) -> bool:
    """Remove the edge that an interrupted dispatch may have left in an external relations graph.

    Done before the claim is released, so that a crash in between is repaired later, and inside a turn, so that no new
    claim adds the edge meanwhile. Returns False if the graph does not answer: the claim is checked again later.
    """
    edge = operator_edge(session_id, workspace_id)
    try:
        with trio.fail_after(deps.limits.ask_timeout_s):
            await deps.relations.write([TupleUpdate(edge, present=False)])
    except (SightlineError, trio.TooSlowError) as error:
        log.warning("relation_not_cleared", session_id=session_id, error=str(error))
        return False
    return True
