"""Doubt of claims: does the session of an operator's claim stand by it? A crash may have cut a dispatch in two.

Asked beside the turns of the operator's workspace; what to do about the answers is decided in one.
"""

from collections.abc import Sequence

import structlog
import trio

from sightline.actors.deps import SESSION, Deps
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import CheckClaim, ClaimStanding
from sightline.domain.errors import SightlineError
from sightline.domain.operator.model import Claim, Workspace
from sightline.domain.session.model import Assigned, Live, Session
from sightline.ports.relations import TupleUpdate, operator_edge

log = structlog.get_logger("sightline.workspace")


def doubted_claims(registry: Registry, workspace: Workspace, until_ms: int) -> list[Claim]:
    """The claims as old as this whose session is not known to stand by them."""
    return [
        claim
        for claim in workspace.claims.values()
        if claim.at_ms <= until_ms and not _is_stood_by(registry, workspace.id, claim)
    ]


def _is_stood_by(registry: Registry, workspace_id: str, claim: Claim) -> bool:
    """Whether the session is in memory and says what the claim says; then it need not be asked."""
    session: Session | None = registry.peek(SESSION, claim.session_id)
    phase = session.phase if session is not None else None
    if not isinstance(phase, Assigned | Live) or phase.operator.workspace_id != workspace_id:
        return False
    return isinstance(phase, Live) == claim.is_live


async def ask_sessions(
    registry: Registry, deps: Deps, workspace_id: str, doubted: Sequence[Claim]
) -> tuple[tuple[str, int, ClaimStanding], ...]:
    """The session, time and standing of each claim; those whose session does not answer are left out."""
    standings = []
    for claim in doubted:
        session = registry.ref(SESSION, claim.session_id)
        try:
            check = CheckClaim(workspace_id)
            standing = await session.ask(check, timeout_s=deps.limits.ask_timeout_s)
        except SightlineError:
            continue
        standings.append((claim.session_id, claim.at_ms, standing))
    return tuple(standings)


async def clear_edge(deps: Deps, session_id: str, workspace_id: str) -> bool:
    """Take away the edge that a dispatch cut in two may have left in a graph of its own (not in our transaction).

    Before the claim goes, so that a crash in between finds it again; and in a turn, so that no new claim, with a
    new edge, can come in between. False if the graph does not answer: the claim is doubted again later.
    """
    edge = operator_edge(session_id, workspace_id)
    try:
        with trio.fail_after(deps.limits.ask_timeout_s):
            await deps.relations.write([TupleUpdate(edge, present=False)])
    except (SightlineError, trio.TooSlowError) as error:
        log.warning("relation_not_cleared", session_id=session_id, error=str(error))
        return False
    return True
