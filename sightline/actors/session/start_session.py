"""Start of a session: occupies the operator and creates the live input. Runs as a helper of the session actor."""

import trio

from sightline.actors.deps import WORKSPACE, Deps
from sightline.actors.kernel import Directory
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.messages import OccupyOperator, VacateOperator, VideoReady
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError, VideoUnavailableError
from sightline.domain.refusal import Refusal
from sightline.domain.session.model import Session, VideoInput


async def open_video(deps: Deps, session_id: str, *, is_live: bool) -> VideoInput:
    """Create the session's live input, or find the existing one.

    Args:
        is_live: The session is LIVE already: publishers and viewers may use its input.

    Raises:
        VideoUnavailableError: The backend refused or did not answer in `video_timeout_s`. Creation is idempotent, so a
            retry is safe.
    """
    open_input = deps.video.reopen_input if is_live else deps.video.create_input
    with trio.move_on_after(deps.limits.video_timeout_s):
        return await open_input(session_id)
    raise VideoUnavailableError("the video backend took too long")


async def _open_hold(deps: Deps, session: Session) -> str | None:
    """Open the hold that the payer consented to, and return its transaction; None without escrow."""
    if deps.escrow is None or session.terms.consent is None:
        return None
    return await deps.escrow.open_hold(session)


async def occupy_and_open(registry: Directory, deps: Deps, session: Session) -> VideoReady:
    """Make the operator BUSY with this session, open its hold, then create the live input.

    Raises:
        RefusedError: The operator is LIVE in another session, or the contract refuses the hold.
        UnavailableError: The hold is not in a block yet; the operator is released and the session stays ASSIGNED.
        VideoUnavailableError: No live input; the operator is released and the session stays ASSIGNED.
    """
    assert session.operator is not None
    workspace, start_ms = registry.ref(WORKSPACE, session.operator.workspace_id), deps.clock.now_ms()
    undo = VacateOperator(session.id, start_ms)
    try:
        answer = await workspace.ask(OccupyOperator(session.id, start_ms), timeout_s=deps.limits.ask_timeout_s)
    except OutcomeUnknownError as error:
        workspace.tell(undo)
        raise UnavailableError("the operator's workspace did not answer") from error
    except trio.Cancelled:
        workspace.tell(undo)
        raise
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    try:
        # The hold first: an operator films only what is paid.
        hold_tx_hash = await _open_hold(deps, session)
        return VideoReady(await open_video(deps, session.id, is_live=False), start_ms, hold_tx_hash)
    except BaseException:
        workspace.tell(undo, lane=Lane.CONTROL)
        raise
