"""Starting a session: occupy the operator, create the live input. Runs beside the session's turns, as its helper."""

from typing import Any

import trio

from sightline.actors.deps import WORKSPACE, Deps
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import OccupyOperator, VacateOperator, VideoReady
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError, VideoUnavailableError
from sightline.domain.refusal import Refusal
from sightline.domain.session.model import Session, VideoInput


async def open_video(deps: Deps, session_id: str) -> VideoInput:
    """Create the session's live input, or find it.

    Raises:
        VideoUnavailableError: Also when the backend takes too long; creating is idempotent, so a retry is safe.
    """
    with trio.move_on_after(deps.limits.video_timeout_s):
        return await deps.video.create_input(session_id)
    raise VideoUnavailableError("the video backend took too long")


async def occupy_and_open(registry: Registry, deps: Deps, session: Session) -> VideoReady:
    """Make the operator BUSY with this session, then create the live input.

    Raises:
        RefusedError: The operator is live elsewhere.
        VideoUnavailableError: The operator is vacated again; the session stays assigned.
    """
    assert session.operator is not None
    workspace = registry.ref(WORKSPACE, session.operator.workspace_id)
    try:
        answer: Any = await workspace.ask(OccupyOperator(session.id), timeout_s=deps.limits.ask_timeout_s)
    except OutcomeUnknownError as error:
        workspace.tell(VacateOperator(session.id))
        raise UnavailableError("the operator's workspace did not answer") from error
    except trio.Cancelled:
        workspace.tell(VacateOperator(session.id))
        raise
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    try:
        return VideoReady(await open_video(deps, session.id))
    except BaseException:
        workspace.tell(VacateOperator(session.id), lane=Lane.CONTROL)
        raise
