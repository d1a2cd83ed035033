"""What a failed turn or load does to an actor: who is told what, and whether and when it is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.actors.kernel.errors import ReloadRequestedError, TurnLostError
from sightline.actors.kernel.supervision import Strikes, Verdict, judge
from sightline.domain.errors import UnavailableError

if TYPE_CHECKING:
    from sightline.actors.kernel.cell import Cell
    from sightline.actors.kernel.envelope import Envelope

RELOAD_RETRIES_MAX = 3
"""How often an ask is handled again after `ReloadRequestedError(retry=True)`."""


def after_failed_turn(cell: Cell, envelope: Envelope, group: BaseExceptionGroup[BaseException]) -> None:
    """Answer or keep the message of the turn, and let the actor be loaded again, or parked."""
    verdict, error = judge(group)
    if cell.is_stopping():
        envelope.fail_if_open(TurnLostError("the actor stopped"))
        if not envelope.is_ask:
            cell.kind.dead_letter(cell.ref.id, envelope, "stopped")
        return
    if verdict is Verdict.CRASH:
        log_failure(cell, "actor_crashed", error, envelope)
        envelope.fail_if_open(TurnLostError(f"the actor crashed: {type(error).__name__}"))
        if not envelope.is_ask:
            cell.kind.dead_letter(cell.ref.id, envelope, "crash")
        _strike(cell, error)
        return
    _settle_after_reload(cell, envelope, verdict, error)
    cell.kind.counters.reloads += 1
    cell.forget_memory()
    _strikes_of(cell).note_reload()


def after_failed_load(cell: Cell, group: BaseExceptionGroup[BaseException]) -> None:
    """Refuse those who ask; go on trying while somebody is served by it."""
    verdict, error = judge(group)
    if verdict is Verdict.CRASH:
        log_failure(cell, "actor_load_failed", error, None)
        _strike(cell, error)
        return
    cell.kind.counters.load_failures += 1
    cell.forget_memory()
    _strikes_of(cell).note_reload()
    refused = error if isinstance(error, UnavailableError) else UnavailableError(f"not loaded: {error}")
    for envelope in cell.mailbox.take_asks():
        envelope.fail_if_open(refused)
    if not cell.was_active and not len(cell.mailbox):
        cell.give_up()


def log_failure(cell: Cell, event: str, error: Exception, envelope: Envelope | None) -> None:
    """Say which actor failed, and at which message."""
    cell.kind.registry.log.error(
        event,
        kind=cell.kind.name,
        id=cell.ref.id,
        message=type(envelope.message).__name__ if envelope is not None else None,
        error=type(error).__name__,
        exc_info=error,
    )


def _settle_after_reload(cell: Cell, envelope: Envelope, verdict: Verdict, error: Exception) -> None:
    """Answer an ask with what is known, or put the message back to be handled after the load."""
    if envelope.is_ask:
        may_retry = isinstance(error, ReloadRequestedError) and error.retry and not envelope.answered
        if may_retry and envelope.retries < RELOAD_RETRIES_MAX:
            _put_back(cell, envelope)
        elif verdict is Verdict.RELOAD:
            envelope.fail_if_open(TurnLostError(f"the actor was loaded again: {error}"))
        else:
            envelope.fail_if_open(error)
    elif envelope.timer is not None:
        pass  # load() sets the timers again
    elif envelope.retries < cell.kind.options.tell_retries_max:
        _put_back(cell, envelope)
    else:
        cell.kind.dead_letter(cell.ref.id, envelope, verdict.value)


def _put_back(cell: Cell, envelope: Envelope) -> None:
    envelope.retries += 1
    # The outcome of a helper has had its turn: the next life is told of it first of all, to undo what it meant.
    envelope.origin = None
    cell.mailbox.put_back(envelope)


def _strike(cell: Cell, error: Exception) -> None:
    """Count a crash, then restart after a pause or park."""
    cell.forget_memory()
    if _strikes_of(cell).note_crash(cell.kind.now()):
        cell.kind.counters.restarts += 1
        return
    reason = f"{type(error).__name__}: {error}"[:200]
    cell.kind.registry.log.error("actor_parked", kind=cell.kind.name, id=cell.ref.id, reason=reason)
    cell.park(reason)


def _strikes_of(cell: Cell) -> Strikes:
    if cell.strikes is None:
        cell.strikes = Strikes(cell.kind.options, cell.kind.registry.rng)
    return cell.strikes
