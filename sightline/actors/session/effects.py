"""Effects of a session on other actors and on video: after a committed step, or after a failed operation."""

from typing import Final

import structlog
import trio

from sightline.actors.deps import DISPATCHER, SESSION, WORKSPACE, Deps
from sightline.actors.kernel import Context, Lane
from sightline.actors.messages import (
    FreeOperator,
    NoShow,
    OperatorClaimed,
    PresenceProved,
    ReopenVideo,
    SessionMessage,
    StartOutcome,
    VacateOperator,
    VideoReady,
    VideoReopened,
)
from sightline.actors.session.start_session import open_video
from sightline.actors.shards import DISPATCHER_ID
from sightline.domain.errors import SightlineError
from sightline.domain.session.messages import (
    ChargeHold,
    CloseVideo,
    EventKind,
    RecordNoShow,
    RecordProof,
    ReleaseHold,
    ReleaseOperator,
    Settle,
    Step,
)
from sightline.domain.session.model import Assigned, Live, Session
from sightline.ports.relations import TupleUpdate

REOPEN_DELAY_MS: Final = 2_000
VIDEO_TIMER: Final = "video"
_REQUEST_EVENTS: Final = frozenset(
    {EventKind.CREATED, EventKind.ASSIGNED, EventKind.REOPENED, EventKind.CANCELLED, EventKind.EXPIRED}
)
"""Events that open or close a request."""

log = structlog.get_logger("sightline.session")


def carry_out(context: Context[SessionMessage], deps: Deps, step: Step, session: Session) -> None:
    """Carry out the effects of a committed step and notify the watchers."""
    for effect in step.effects:
        match effect:
            case ReleaseOperator(workspace_id=workspace_id, start_timed_out=timed_out, is_withdrawn=is_withdrawn):
                consumer = session.terms.consumer_workspace_id if timed_out else None
                _tell_operator(context, workspace_id, FreeOperator(session.id, consumer, is_withdrawn))
                deps.watchers.notify(WORKSPACE, workspace_id, session_id=session.id)
            case RecordNoShow(wallet_address=wallet, at_ms=at_ms):
                _tell_dispatcher(context, NoShow(wallet, at_ms))
            case RecordProof(wallet_address=wallet, at_ms=at_ms):
                _tell_dispatcher(context, PresenceProved(wallet, at_ms))
            case CloseVideo(ref=ref):
                _close_video(context, deps, ref)
            case Settle():
                deps.on_settlement()
            case ReleaseHold() | ChargeHold():
                pass  # done in the transaction
    deps.watchers.notify(SESSION, session.id)
    terms = session.terms
    for workspace_id in {terms.consumer_workspace_id, session.operator.workspace_id if session.operator else ""}:
        deps.watchers.notify(WORKSPACE, workspace_id, session_id=session.id)
    if any(event.kind in _REQUEST_EVENTS for event in step.events):
        deps.watchers.notify_request(session.id, terms.lat, terms.lng)


async def release_unused(
    context: Context[SessionMessage], deps: Deps, claimed: OperatorClaimed, session: Session | None
) -> None:
    """Release an operator whose assignment was not stored, and undo the relation to it."""
    phase = session.phase if session is not None else None
    if isinstance(phase, Assigned | Live) and phase.operator.workspace_id == claimed.operator.workspace_id:
        return
    _tell_operator(context, claimed.operator.workspace_id, FreeOperator(context.id))
    if claimed.staged.undo:
        await _undo(deps, claimed.staged.undo)


def release_video(context: Context[SessionMessage], deps: Deps, outcome: StartOutcome, session: Session | None) -> None:
    """Release what a start acquired, unless the session is LIVE by it."""
    phase = session.phase if session is not None else None
    if not isinstance(outcome, VideoReady) or isinstance(phase, Live):
        return
    if isinstance(phase, Assigned):
        _tell_operator(context, phase.operator.workspace_id, VacateOperator(context.id, outcome.start_ms))
    _close_video(context, deps, outcome.video.ref)


def reopen_video(context: Context[SessionMessage], deps: Deps, session_id: str) -> None:
    """Create the live input again or find it; retried until the backend answers."""

    def retry_later(_error: Exception) -> None:
        context.timers.set(context.ref, context.clock.now_ms() + REOPEN_DELAY_MS, ReopenVideo(), name=VIDEO_TIMER)

    context.spawn(lambda: open_video(deps, session_id, is_live=True), on_value=VideoReopened, on_error=retry_later)


def _tell_operator(context: Context[SessionMessage], workspace_id: str, message: FreeOperator | VacateOperator) -> None:
    context.registry.ref(WORKSPACE, workspace_id).tell(message, lane=Lane.CONTROL)


def _tell_dispatcher(context: Context[SessionMessage], message: NoShow | PresenceProved) -> None:
    context.registry.ref(DISPATCHER, DISPATCHER_ID).tell(message, lane=Lane.CONTROL)


def _close_video(context: Context[SessionMessage], deps: Deps, ref: str) -> None:
    async def close() -> None:
        try:
            await deps.video.close_input(ref)
        except SightlineError as error:
            log.warning("video_close_failed", error=str(error))

    context.spawn(close, on_value=lambda _done: None, on_error=lambda _error: None)


async def _undo(deps: Deps, updates: tuple[TupleUpdate, ...]) -> None:
    """Remove the edges that were written to the graph for an assignment that was not made."""
    try:
        with trio.fail_after(deps.limits.ask_timeout_s):
            await deps.relations.write(updates)
    except (SightlineError, trio.TooSlowError) as error:
        log.warning("relation_undo_failed", error=str(error))
